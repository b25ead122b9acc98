"""A pleasant film to show: an evening sky, and three ridges of hills that pass by."""

from __future__ import annotations

import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.browser.tools import find_program

SIZE, SHOWN_SIZE = "640x360", "1280x720"
"""Computed, and as the film has it: computing the larger one would take four times as long."""

WIDE_SIZE = "960x360"
"""Ridges are wider than the film by what they travel."""

SUN = "hypot(X-W*0.68,Y-H*0.40)"


@dataclass(frozen=True)
class Ridge:
    """`top` and `height` as shares of the picture, `speed` in pixels a second."""

    top: float
    height: float
    phase: int
    colour: tuple[int, int, int]
    speed: int


RIDGES = (
    Ridge(0.55, 0.10, 1, (150, 86, 120), 6),
    Ridge(0.68, 0.09, 4, (86, 70, 92), 14),
    Ridge(0.83, 0.08, 2, (30, 42, 62), 30),
)
"""From far to near."""


def make_landscape(path: Path, *, seconds: int, length: int) -> None:
    """An MP4 of exactly `length` bytes: the film, and a box of zeros that players skip."""
    graph = [f"{_still(SIZE, 'gbrp', _sky())}[sky]"]
    below = "sky"
    for number, ridge in enumerate(RIDGES):
        graph.append(f"{_still(WIDE_SIZE, 'gbrap', _hills(ridge))}[ridge{number}]")
        moving = f"overlay=x='-{ridge.speed}*t':shortest=0:format=gbrp"
        graph.append(f"[{below}][ridge{number}]{moving}[film{number}]")
        below = f"film{number}"
    graph.append(f"[{below}]trim=duration={seconds},scale={SHOWN_SIZE},format=yuv420p[film]")
    command = [find_program("ffmpeg"), "-nostdin", "-v", "error", "-y"]
    command += ["-filter_complex", ";".join(graph), "-map", "[film]"]
    command += ["-c:v", "libx264", "-crf", "16", "-movflags", "+faststart", str(path)]
    subprocess.run(command, check=True)
    _pad(path, length)


def _still(size: str, pixels: str, expression: str) -> str:
    """One computed picture, repeated: computing every frame would take minutes."""
    source = f"color=s={size}:r=24,format={pixels},trim=end_frame=1"
    return f"{source},geq={expression},loop=-1:1"


def _sky() -> str:
    """Dark at the top, bright at the horizon, with the sun and its glow."""
    channels = {"r": (38, 250, 70), "g": (52, 176, 60), "b": (104, 122, 40)}
    return ":".join(f"{name}='{_light(*values)}'" for name, values in channels.items())


def _light(top: int, horizon: int, glow: int) -> str:
    disc = f"255-{255 - horizon}*0.3"
    sky = f"{top}+({horizon}-{top})*min(Y/H/0.6,1)+{glow}*exp(-{SUN}/H/0.22)"
    return f"if(lt({SUN},H*0.07),{disc},min({sky},255))"


def _hills(ridge: Ridge) -> str:
    """One colour below a line of three waves, and nothing above it."""
    waves = ((0.6, 0.7, 1), (0.3, 1.9, 2), (0.1, 4.7, 3))
    sum_of_waves = "+".join(
        f"{share}*sin(X/100*{frequency}+{ridge.phase * shift})" for share, frequency, shift in waves
    )
    line = f"H*({ridge.top}+{ridge.height}*({sum_of_waves}))"
    red, green, blue = ridge.colour
    return f"r={red}:g={green}:b={blue}:a='255*clip(Y-{line},0,1)'"


def _pad(path: Path, length: int) -> None:
    """Adds a `free` box (ISO/IEC 14496-12, 8.1.2), as a sparse end of the file."""
    size = length - path.stat().st_size
    with path.open("ab") as file:
        file.write(struct.pack(">I4s", size, b"free"))
        file.truncate(length)
