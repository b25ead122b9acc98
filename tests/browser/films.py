"""Real videos, encoded on the spot: H.264 and AAC in MP4, with the index in front."""

from __future__ import annotations

import hashlib
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.browser.tools import find_program

LOOPS_OF_LONG_FILM = 8
"""Noise takes long to encode, so the long film repeats the middle one, 26 MB each time."""


@dataclass(frozen=True)
class Films:
    """`small` is 100 KB, `middle` 26 MB and 8 seconds, `long` over 200 MB and 72 seconds."""

    small: Path
    middle: Path
    long: Path


def make_films(folder: Path) -> Films:
    """Takes a few seconds."""
    small, middle, long = (folder / f"{name}.mp4" for name in ("small", "middle", "long"))
    encode(small, size="320x180", seconds=2, bits_per_second="400k")
    encode(middle, size="640x360", seconds=8, bits_per_second="24M")
    repeat(middle, long, LOOPS_OF_LONG_FILM)
    return Films(small, middle, long)


def encode(path: Path, *, size: str, seconds: int, bits_per_second: str) -> None:
    """A moving test picture with noise, which compresses badly, and a tone."""
    picture = f"testsrc2=size={size}:rate=30,noise=c0s=60:c0f=t"
    sources = ["-f", "lavfi", "-i", picture, "-f", "lavfi", "-i", "sine=440"]
    video = ["-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-g", "30"]
    rate = ["-b:v", bits_per_second, "-minrate", bits_per_second]
    end = ["-t", str(seconds), "-c:a", "aac", "-movflags", "+faststart", str(path)]
    _ffmpeg(*sources, *video, *rate, *end)


def repeat(source: Path, target: Path, times: int) -> None:
    """The film followed by `times` repetitions, without encoding again."""
    loop = ["-stream_loop", str(times), "-i", str(source)]
    _ffmpeg(*loop, "-c", "copy", "-movflags", "+faststart", str(target))


def index_last(source: Path, target: Path) -> None:
    """The same film with its index, the `moov` box, at the end, as cameras write it."""
    _ffmpeg("-i", str(source), "-c", "copy", str(target))
    content = target.read_bytes()
    assert content.rindex(b"moov") > content.index(b"mdat") + len(content) // 2


def _ffmpeg(*arguments: str) -> None:
    command = [find_program("ffmpeg"), "-nostdin", "-v", "error", "-y", *arguments]
    subprocess.run(command, check=True)


def sha256_of(path: Path) -> str:
    """SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
