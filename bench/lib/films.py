"""Videos of any length for benchmarks: ten seconds are encoded once, and repeated."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.lib.harness import NotRunnable

LENGTHS = {"10 s": 10, "10 min": 600, "1 h": 3600, "2 h": 7200}
"""Seconds, by the name in a table."""

BASE_SECONDS = 10
ENCODING = "-c:v libx264 -preset veryfast -g 125 -c:a aac -b:a 96k"


@dataclass(frozen=True, slots=True)
class Kind:
    """Pixels and bits a second of a picture with 25 frames a second, a key frame every 5 s."""

    width: int
    height: int
    bits_per_second: str


SMALL = Kind(1280, 720, "900k")
LARGE = Kind(1920, 1080, "4M")


def make_films(folder: Path, lengths: Iterable[str], kind: Kind = SMALL) -> dict[str, Path]:
    """Videos of these lengths, by their names; their index is at the end, as cameras write it.

    Raises `NotRunnable` without ffmpeg.
    """
    if shutil.which("ffmpeg") is None:
        raise NotRunnable("ffmpeg is not installed")
    base = folder / "base.mp4"
    picture = f"testsrc2=s={kind.width}x{kind.height}:r=25:d={BASE_SECONDS},noise=c0s=12:c0f=t"
    sources = ["-f", "lavfi", "-i", picture, "-f", "lavfi", "-i", f"sine=d={BASE_SECONDS}"]
    run_ffmpeg(*sources, *ENCODING.split(), "-b:v", kind.bits_per_second, str(base))
    return {name: _repeated(base, LENGTHS[name]) for name in lengths}


def run_ffmpeg(*arguments: str) -> None:
    """Run the ffmpeg of this machine."""
    subprocess.run(["ffmpeg", "-nostdin", "-v", "error", "-y", *arguments], check=True)


def _repeated(base: Path, seconds: int) -> Path:
    path = base.with_name(f"{seconds}.mp4")
    again = str(seconds // BASE_SECONDS - 1)
    run_ffmpeg("-stream_loop", again, "-i", str(base), "-c", "copy", str(path))
    return path
