"""The step `sound`: encodes audio that not every browser plays in segments as AAC, which all do.

All such tracks of a video are encoded once, as a whole, into a separate file. The video track stays
in the original.
"""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Iterator
from contextlib import closing, contextmanager
from io import RawIOBase
from pathlib import Path

from app.core.jobs import Heartbeat, Job, JobFailed
from app.core.playback import PlaybackProblem, PlaybackState
from app.core.upload import UploadId
from app.video.index.movie import Movie
from app.video.make.ffmpeg import Conversion, FfmpegFailed
from app.video.make.sandbox.process import ProgramLimits
from app.video.make.steps import StepTools, as_job_errors, needing_index
from app.video.make.video_files import encoded_sounds, keep_streams, sounds_in, sounds_to_encode
from app.video.serve.facts import SOUND_FILE
from app.video.serve.source import length_of

MOST_CHANNELS = 6
"""5.1; tracks with more channels are mixed down to that."""

BITS_OF_A_CHANNEL = 80_000
MOST_BITS = 384_000
"""Per second."""

_IN_TIME = "aresample=async=1000:min_comp=0.01:first_pts=0"
"""Audio begins at time 0, after silence if needed. If its timestamps and its samples differ by
10 ms, it is stretched by up to 2 %, and gaps are filled, so that it stays in sync."""

SOME_DAMAGED = PlaybackProblem(
    "sound_damaged",
    "Not all audio of this video can be played: in some of its tracks, nothing can be decoded.",
)


def encode_sound(tools: StepTools, job: Job, beat: Heartbeat) -> None:
    """Encode the audio file of an indexed video, and offer its tracks as streams."""
    with tools.opened(job.upload_id) as (video, source):
        with needing_index():
            movie, read_at = tools.read_movie(job, source)
        try:
            with (
                as_job_errors("no_sound", "The audio of this video cannot be converted"),
                _new_sound_file(tools, video.id, movie, source, beat) as made,
            ):
                keep_streams(movie, video.id, tools.files, read_at=read_at, new_sound=made)
        except JobFailed as error:
            if movie.picture is not None and (error.is_final or job.is_last_attempt):
                _report(tools, video.id, error.problem)
            raise
        encoded = encoded_sounds(movie, tools.files, video.id)
        if len(encoded) < len(sounds_to_encode(movie)):
            _report(tools, video.id, SOME_DAMAGED)
    playback = tools.media.get(video.id)
    if playback and playback.state is PlaybackState.PROBED:
        tools.media.move(video.id, PlaybackState.PLAYABLE, tools.clock())


def _report(tools: StepTools, video_id: UploadId, problem: PlaybackProblem) -> None:
    """Store a problem for viewers: the video lacks audio in most browsers."""
    known = tools.media.get(video_id)
    if known is not None and known.problem is None:
        now = tools.clock()
        tools.media.describe(video_id, known.state, now, facts=known.facts, problem=problem)


@contextmanager
def _new_sound_file(
    tools: StepTools, video_id: UploadId, movie: Movie, source: RawIOBase, beat: Heartbeat
) -> Iterator[Path | None]:
    """Encodes the audio into a temporary file; yields None if the video has its audio file."""
    if tools.has(video_id, SOUND_FILE):
        yield None
        return
    tracks = sounds_to_encode(movie)
    seconds = max(float(movie.duration), 1.0)
    room = int(seconds * len(tracks) * MOST_BITS / 8)
    # Encodes everything that can be decoded, however much is damaged.
    options = ["-max_error_rate", "1", "-map_metadata", "-1", "-map_chapters", "-1"]
    for number, track in enumerate(tracks):
        options += ["-map", f"0:i:{track.id}", *as_aac(number, track.entry.channels)]
    # Generous: 20 s of 5.1 were converted per second.
    cpu_seconds = 30 + seconds * len(tracks) / 3
    limits = ProgramLimits(
        cpu_seconds=cpu_seconds,
        wall_seconds=600 + 4 * cpu_seconds,
        memory_bytes=1 << 30,
        output_bytes=2 * room + (1 << 20),
    )

    def on_progress(reached: float) -> None:
        tools.files.scratch.require_room()  # Before uploads lack space.
        beat(reached / seconds)

    with (
        tools.source.on_disk(source, beat.go_on) as path,
        tools.files.scratch.folder(room) as scratch,
    ):
        conversion = Conversion(
            # Keeps the timestamps of the file: others would count from its first track.
            ["-copyts", "-i", str(path), *options, "-f", "mp4", SOUND_FILE],
            readable=[path],
            writable=scratch,
            limits=limits,
            formats="mov",
        )
        tools.ffmpeg.run(conversion, progress=on_progress, stop=beat.stop)
        with (scratch / SOUND_FILE).open("rb", buffering=0) as file:
            if not sounds_in(file, movie):
                raise FfmpegFailed("nothing in it can be decoded")
        yield scratch / SOUND_FILE


def as_aac(number: int, channels: int | None) -> list[str]:
    """Options for the audio track with this number in the output."""
    count = min(channels or 2, MOST_CHANNELS)
    return [
        *(f"-c:a:{number}", "aac", f"-filter:a:{number}", _IN_TIME),
        *(f"-b:a:{number}", str(min(count * BITS_OF_A_CHANNEL, MOST_BITS))),
        *((f"-ac:a:{number}", str(count)) if channels else ()),
    ]


# ---- waveform ------------------------------------------------------------------------------------

# The step `waveform`: the loudness of an audio-only file over time, for its waveform image.


WAVEFORM = "waveform"

FILE = "waveform.json"
"""Name of a derived file."""

RATE = 8000
"""Samples per second that are examined."""

_MONO = ("-ac", "1", "-ar", str(RATE), "-f", "s16le")

SHORTEST_POINT = RATE // 50
"""Initial samples per point; points get longer with the file."""

FEWEST_POINTS = 1000
"""For a long file; it has fewer than twice as many."""

FULL_SCALE = 32768
MOST_CPU_SECONDS = 7200


def make_waveform(tools: StepTools, job: Job, beat: Heartbeat) -> None:
    """Decode the whole audio track, in constant memory."""
    video = tools.uploads.get(job.upload_id)
    peaks = Peaks()
    with (
        as_job_errors("no_waveform", "No waveform can be made of this file"),
        closing(tools.source.open(video)) as source,
        tools.source.on_disk(source, beat.go_on) as path,
    ):
        # In proportion to the file: 1 MB of audio at 8 kbit/s takes 2 s on a slow machine.
        cpu_seconds = min(60 + 4 * length_of(source) / 1e6, MOST_CPU_SECONDS)
        conversion = Conversion(
            ["-threads", "1", "-i", str(path), "-map", "0:a:0", *_MONO, "-"],
            readable=[path],
            limits=ProgramLimits(
                cpu_seconds=cpu_seconds,
                wall_seconds=4 * cpu_seconds,
                memory_bytes=1 << 30,
                output_bytes=1 << 20,
            ),
        )
        tools.ffmpeg.run(conversion, on_output=peaks.add, stop=beat.stop)
        peaks.end()
        if not peaks.samples:
            raise FfmpegFailed("there is no audio in it")
    with tools.files.writing(video.id, FILE) as target:
        target.write(peaks.to_json().encode())


class Peaks:
    """The loudest sample of each point; for longer files, points get longer instead of more."""

    def __init__(self) -> None:
        self._levels: list[int] = []
        self._point = SHORTEST_POINT
        self._waiting = bytearray()
        self.samples = 0
        """Number of samples in the points so far."""

    def add(self, block: bytes) -> None:
        """Add audio: 16 bits per sample, little-endian."""
        self._waiting += block
        while len(self._waiting) >= 2 * self._point:
            self._add_point(self._point)

    def end(self) -> None:
        """Make a point of the rest."""
        if rest := len(self._waiting) // 2:
            self._add_point(rest)

    def to_json(self) -> str:
        """JSON: `peaks` from 0 to 1, `points_per_second`, and `duration` in seconds."""
        found = {
            "duration": round(self.samples / RATE, 3),
            "points_per_second": RATE / self._point,
            "peaks": [round(level / FULL_SCALE, 3) for level in self._levels],
        }
        return json.dumps(found, separators=(",", ":"))

    def _add_point(self, count: int) -> None:
        samples = array("h", bytes(self._waiting[: 2 * count]))
        if sys.byteorder == "big":
            samples.byteswap()
        del self._waiting[: 2 * count]
        self.samples += count
        highest, lowest = max(samples), min(samples)
        self._levels.append(max(highest, -lowest))
        if len(self._levels) == 2 * FEWEST_POINTS:
            self._levels = list(map(max, self._levels[::2], self._levels[1::2]))
            self._point *= 2
