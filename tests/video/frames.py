"""What someone sees and hears who plays a film of `tests.video.films`, and how two showings differ.

`differences` is empty if every frame is shown once, in order, with the same pixels, at the same
time, and every beep is heard at the same time; otherwise it says in words what is wrong.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.browser.tools import find_program
from tests.video.films import BITS, SQUARE
from tests.video.remembered import remembered

TIME_BASE = Fraction(1, 1_000_000)
FRAME_TOLERANCE = 0.0015
"""Seconds: HLS rounds to 1/90 000, Matroska to 1/1000."""

BEEP_TOLERANCE = 0.020
SILENCE_ENDS = "lavfi.silence_end"
BEEPS = f"silencedetect=noise=-30dB:d=0.2,ametadata=print:key={SILENCE_ENDS}"
"""A beep begins where silence ends."""


@dataclass(frozen=True)
class Frame:
    """A decoded frame: when it is shown, in seconds, its number, and MD5 of its pixels."""

    time: float
    number: int
    digest: str = field(repr=False)


@dataclass(frozen=True)
class Showing:
    """All frames, and when each audio track beeps, in seconds."""

    frames: tuple[Frame, ...]
    beeps: tuple[tuple[float, ...], ...]

    @property
    def anchor(self) -> float:
        """When the last frame is shown, from which others are counted; 0 for sound alone."""
        return self.frames[-1].time if self.frames else 0.0


@remembered
def watch(source: Path | str, *, options: tuple[str, ...] = ()) -> Showing:
    """Decode a film whole with ffmpeg; `options` stand before its input."""
    kinds = [stream["codec_type"] for stream in probe(source)["streams"]]
    graph: list[str] = []
    outputs: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        if "video" in kinds:
            graph += _picture_graph()
            outputs += _picture_outputs(folder)
        for track in range(kinds.count("audio")):
            graph.append(f"[0:a:{track}]{BEEPS}:file={folder}/beeps-{track}[sound{track}]")
            outputs += ["-map", f"[sound{track}]", "-f", "null", "-"]
        read = ["-copyts", "-noautorotate", *options, "-i", str(source)]
        _ffmpeg("-y", *read, "-filter_complex", ";".join(graph), *outputs)
        beeps = sorted(Path(folder).glob("beeps-*"))
        return Showing(tuple(_frames(folder)), tuple(tuple(_beeps(path)) for path in beeps))


def seen(frames: Sequence[Frame]) -> Iterator[Frame]:
    """Those that last long enough to be seen, without the last one: others may have needed it."""
    for frame, after in pairwise(frames):
        if after.time - frame.time > FRAME_TOLERANCE:
            yield frame


def differences(original: Showing, shown: Showing, *, same_pixels: bool = True) -> list[str]:
    """What is wrong with `shown`, in words. Time counts from each one's last frame.

    The first frame may be shown too early, from time 0 on, as players cannot begin in a gap.
    """
    found = [*_miscounted(original, shown), *_out_of_order(shown)]
    if not found:
        found += _badly_timed(original, shown)
        found += _repainted(original, shown) if same_pixels else []
    return found + list(_badly_heard(original, shown))


@remembered
def probe(source: Path | str) -> dict[str, Any]:
    """ffprobe's JSON about the format, the streams, and all packets of a file."""
    asked = ["-show_format", "-show_streams", "-show_packets", "-show_data_hash", "md5"]
    command = [find_program("ffprobe"), "-v", "error", "-of", "json", *asked, str(source)]
    found: dict[str, Any] = json.loads(
        subprocess.run(command, check=True, capture_output=True).stdout
    )
    return found


@dataclass(frozen=True)
class Packet:
    """An encoded frame or piece of sound; times in seconds."""

    presented: float
    decoded: float
    digest: str
    is_key: bool


def packets(source: Path | str, stream: str) -> list[Packet]:
    """The packets of a stream such as `v:0`, or the first one for `0`, in decode order."""
    kind, _, number = stream.rpartition(":")
    found = probe(source)
    streams = [each for each in found["streams"] if each["codec_type"].startswith(kind)]
    index = streams[int(number)]["index"]
    return [
        Packet(
            presented=float(packet["pts_time"]),
            decoded=float(packet["dts_time"]),
            digest=packet["data_hash"],
            is_key="K" in packet["flags"],
        )
        for packet in found["packets"]
        if packet["stream_index"] == index
    ]


def duration_of(source: Path | str) -> float:
    """Seconds, as the container says."""
    return float(probe(source)["format"]["duration"])


def _picture_graph() -> list[str]:
    squares = f"crop={BITS * SQUARE}:{SQUARE}:0:0,scale={BITS}:1:flags=area,format=gray"
    return [f"[0:v:0]settb={TIME_BASE},split[whole][edge]", f"[edge]{squares}[squares]"]


def _picture_outputs(folder: str) -> list[str]:
    every = ["-fps_mode", "passthrough", "-enc_time_base", str(TIME_BASE)]
    whole = ["-map", "[whole]", *every, "-f", "framemd5", f"{folder}/digests"]
    return [*whole, "-map", "[squares]", *every, "-f", "rawvideo", f"{folder}/squares"]


def _frames(folder: str) -> Iterator[Frame]:
    digests, squares = Path(folder, "digests"), Path(folder, "squares")
    if not digests.exists():
        return
    rows = [line.split(",") for line in digests.read_text().splitlines() if line[0] != "#"]
    levels = squares.read_bytes()
    for index, row in enumerate(rows):
        light = levels[index * BITS : (index + 1) * BITS]
        number = sum(1 << bit for bit, level in enumerate(light) if level > 127)
        yield Frame(float(int(row[2]) * TIME_BASE), number, row[5].strip())


def _beeps(path: Path) -> Iterator[float]:
    for line in path.read_text().splitlines():
        key, _, value = line.partition("=")
        if key == SILENCE_ENDS:
            yield float(value)


def _miscounted(original: Showing, shown: Showing) -> Iterator[str]:
    expected = Counter(frame.number for frame in original.frames)
    found = Counter(frame.number for frame in shown.frames)
    if missing := sorted((expected - found).elements()):
        yield f"{len(missing)} frames are missing: {missing[:10]}"
    if surplus := sorted((found - expected).elements()):
        yield f"{len(surplus)} frames are shown too often: {surplus[:10]}"


def _out_of_order(shown: Showing) -> Iterator[str]:
    for before, after in pairwise(shown.frames):
        if after.number <= before.number or after.time <= before.time:
            yield f"after {before} comes {after}"


def _badly_timed(original: Showing, shown: Showing) -> Iterator[str]:
    for frame, other in zip(original.frames, shown.frames, strict=True):
        late = (other.time - shown.anchor) - (frame.time - original.anchor)
        if abs(late) > FRAME_TOLERANCE and other.time:
            yield f"frame {frame.number} is {late * 1000:.1f} ms late"


def _repainted(original: Showing, shown: Showing) -> Iterator[str]:
    for frame, other in zip(original.frames, shown.frames, strict=True):
        if frame.digest != other.digest:
            yield f"frame {frame.number} has other pixels"


def _badly_heard(original: Showing, shown: Showing) -> Iterator[str]:
    if len(original.beeps) != len(shown.beeps):
        yield f"{len(shown.beeps)} audio tracks instead of {len(original.beeps)}"
        return
    for track, (expected, found) in enumerate(zip(original.beeps, shown.beeps, strict=True)):
        if len(expected) != len(found):
            yield f"track {track} beeps {len(found)} times instead of {len(expected)}"
            continue
        for beep, heard in zip(expected, found, strict=True):
            late = (heard - shown.anchor) - (beep - original.anchor)
            if abs(late) > BEEP_TOLERANCE:
                yield f"track {track} beeps {late * 1000:.0f} ms late at {beep:.2f} s"


def _ffmpeg(*arguments: str) -> None:
    command = [find_program("ffmpeg"), "-nostdin", "-v", "error", *arguments]
    subprocess.run(command, check=True, capture_output=True)
