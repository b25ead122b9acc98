"""Real videos, encoded on the spot: H.264 and AAC in MP4, with the index in front."""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.browser.tools import find_program

LOOPS_OF_LONG_FILM, LOOPS_OF_HUGE_FILM = 8, 23
"""Noise takes long to encode, so these films repeat the middle one, 9 MB each time."""


@dataclass(frozen=True)
class Films:
    """Each is made once, when a test first asks for it, also if processes share the folder."""

    folder: Path

    @property
    def small(self) -> Path:
        """100 KB, 2 seconds."""
        return self._film("small", _encode_small)

    @property
    def middle(self) -> Path:
        """9 MB, 8 seconds."""
        return self._film("middle", _encode_middle)

    @property
    def long(self) -> Path:
        """80 MB, 72 seconds."""
        return self._film("long", lambda path: repeat(self.middle, path, LOOPS_OF_LONG_FILM))

    @property
    def huge(self) -> Path:
        """Over 200 MB."""
        return self._film("huge", lambda path: repeat(self.middle, path, LOOPS_OF_HUGE_FILM))

    def _film(self, name: str, make: Callable[[Path], None]) -> Path:
        path = self.folder / f"{name}.mp4"
        with (self.folder / f".{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                new = self.folder / f".new-{name}.mp4"
                make(new)
                new.rename(path)
        return path


def _encode_small(path: Path) -> None:
    encode(path, size="320x180", seconds=2, bits_per_second="400k")


def _encode_middle(path: Path) -> None:
    encode(path, size="320x180", seconds=8, bits_per_second="8M")


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
