"""The step `waveform`: how loud a file that has only sound is at each moment, for its picture."""

from __future__ import annotations

import json
import sys
from array import array
from contextlib import closing

from app.core.jobs import Job
from app.core.upload import Upload
from app.video.make.ffmpeg.errors import FfmpegFailed
from app.video.make.ffmpeg.program import Conversion
from app.video.make.heartbeat import Heartbeat
from app.video.make.job_errors import as_job_errors
from app.video.make.sandbox.process import Limits
from app.video.make.tools import StepTools
from app.video.serve.folder import writing
from app.video.serve.source import length_of

WAVEFORM = "waveform"

FILE = "waveform.json"
"""Name of a file in the folder of a video."""

RATE = 8000
"""Samples a second that are looked at."""

_MONO = ("-ac", "1", "-ar", str(RATE), "-f", "s16le")

SHORTEST_POINT = RATE // 50
"""Samples of a point at first; it gets longer with the file."""

FEWEST_POINTS = 1000
"""Of a long file; it has fewer than twice as many."""

FULL_SCALE = 32768
MOST_CPU_SECONDS = 7200


class Waveform:
    """Decodes all of the sound; memory does not grow with it."""

    def __init__(self, tools: StepTools) -> None:
        self._tools = tools

    def __call__(self, job: Job, beat: Heartbeat) -> None:
        """Do the job."""
        video = self._tools.uploads.get(job.upload_id)
        with as_job_errors("no_waveform", "No waveform can be made of this file"):
            peaks = self._peaks(video, beat)
        with writing(self._tools.folder, video.id, FILE) as target:
            target.write(peaks.to_json().encode())

    def _peaks(self, video: Upload, beat: Heartbeat) -> Peaks:
        peaks = Peaks()
        with (
            closing(self._tools.source.open(video)) as source,
            self._tools.source.on_disk(source, beat.go_on) as path,
        ):
            conversion = Conversion(
                ["-threads", "1", "-i", str(path), "-map", "0:a:0", *_MONO, "-"],
                readable=[path],
                limits=_limits(length_of(source)),
            )
            self._tools.ffmpeg.run(conversion, on_output=peaks.add, stop=beat.stop)
        peaks.end()
        if not peaks.samples:
            raise FfmpegFailed("there is no sound in it")
        return peaks


class Peaks:
    """The loudest sample of each point; points get longer rather than more."""

    def __init__(self) -> None:
        self._levels: list[int] = []
        self._point = SHORTEST_POINT
        self._waiting = bytearray()
        self.samples = 0
        """Of which points were made."""

    def add(self, block: bytes) -> None:
        """Take more of the sound: 16 bits a sample, little-endian."""
        self._waiting += block
        while len(self._waiting) >= 2 * self._point:
            self._add_point(self._point)

    def end(self) -> None:
        """Make a point of what is left."""
        if rest := len(self._waiting) // 2:
            self._add_point(rest)

    def to_json(self) -> str:
        """`peaks` are 0 to 1, `points_per_second` of them a second; `duration` in seconds."""
        found = {
            "duration": round(self.samples / RATE, 3),
            "points_per_second": RATE / self._point,
            "peaks": [round(level / FULL_SCALE, 3) for level in self._levels],
        }
        return json.dumps(found, separators=(",", ":"))

    def _add_point(self, count: int) -> None:
        samples = _samples(self._waiting[: 2 * count])
        del self._waiting[: 2 * count]
        self.samples += count
        highest, lowest = max(samples), min(samples)
        self._levels.append(max(highest, -lowest))
        if len(self._levels) == 2 * FEWEST_POINTS:
            self._levels = list(map(max, self._levels[::2], self._levels[1::2]))
            self._point *= 2


def _samples(data: bytearray) -> array[int]:
    samples = array("h", bytes(data))
    if sys.byteorder == "big":
        samples.byteswap()
    return samples


def _limits(length: int) -> Limits:
    """In proportion to the file: sound of 8 kbit/s takes 2 s of a slow machine for a megabyte."""
    cpu_seconds = min(60 + 4 * length / 1e6, MOST_CPU_SECONDS)
    return Limits(
        cpu_seconds=cpu_seconds,
        wall_seconds=4 * cpu_seconds,
        memory_bytes=1 << 30,
        output_bytes=1 << 20,
    )
