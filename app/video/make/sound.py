"""The step `sound`: what not every browser plays in segments, as AAC, the one codec that all do.

All such tracks of a film are encoded once and whole, in a file beside it. The picture stays where
it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import RawIOBase

from app.core.jobs import Job, JobFailed
from app.core.playback import PlaybackState, Problem
from app.core.upload import UploadId
from app.video.index.movie import Movie
from app.video.index.tracks import Track
from app.video.make.ffmpeg.errors import FfmpegFailed
from app.video.make.ffmpeg.program import Conversion
from app.video.make.heartbeat import Heartbeat
from app.video.make.job_errors import as_job_errors, needing_index
from app.video.make.sandbox.process import Limits
from app.video.make.tools import StepTools
from app.video.serve.film_files import (
    SOUND_FILE,
    encoded_sounds,
    keep_streams,
    sounds_in,
    sounds_to_encode,
)

MOST_CHANNELS = 6
"""5.1; what has more is mixed down to that."""

BITS_OF_A_CHANNEL = 80_000
MOST_BITS = 384_000
"""A second."""

_IN_TIME = "aresample=async=1000:min_comp=0.01:first_pts=0"
"""Sound begins at time 0, after silence if need be. Where its times and its samples disagree by
10 ms, it is stretched by up to 2 %, and gaps are filled, so that it stays with the picture."""

SOME_DAMAGED = Problem(
    "sound_damaged",
    "Not all sound of this film can be played: in some of its tracks, nothing can be decoded.",
)


class Sound:
    """Makes that file of an indexed film, and offers its tracks as streams."""

    def __init__(self, tools: StepTools) -> None:
        self._tools = tools

    def __call__(self, job: Job, beat: Heartbeat) -> None:
        """Do the job."""
        with self._tools.opened(job.upload_id) as (video, source):
            with needing_index():
                movie, read_at = self._tools.read_movie(job, source)
            try:
                if self._tools.folder.find(video.id, SOUND_FILE) is None:
                    with as_job_errors("no_sound", "The sound of this film cannot be converted"):
                        self._make(video.id, movie, source, beat)
            except JobFailed as error:
                if movie.picture is not None and (error.is_final or job.is_last_attempt):
                    self._tell(video.id, error.problem)
                raise
            encoded = encoded_sounds(movie, self._tools.folder, video.id)
            if len(encoded) < len(sounds_to_encode(movie)):
                self._tell(video.id, SOME_DAMAGED)
            keep_streams(movie, video.id, self._tools.folder, read_at=read_at)
        playback = self._tools.media.get(video.id)
        if playback and playback.state is PlaybackState.PROBED:
            self._tools.media.move(video.id, PlaybackState.PLAYABLE, self._tools.clock())

    def _tell(self, video_id: UploadId, problem: Problem) -> None:
        """Those who watch the film, which lacks sound in most browsers."""
        known = self._tools.media.get(video_id)
        if known is not None and known.problem is None:
            now = self._tools.clock()
            self._tools.media.describe(
                video_id, known.state, now, facts=known.facts, problem=problem
            )

    def _make(self, video_id: UploadId, movie: Movie, source: RawIOBase, beat: Heartbeat) -> None:
        tracks = sounds_to_encode(movie)
        seconds = max(float(movie.duration), 1.0)
        room = int(seconds * len(tracks) * MOST_BITS / 8)

        def tell(reached: float) -> None:
            self._tools.folder.require_room()  # Before uploads miss it.
            beat(reached / seconds)

        with (
            self._tools.source.on_disk(source, beat.go_on) as path,
            self._tools.folder.scratch_folder(room) as scratch,
        ):
            conversion = Conversion(
                # The times of the file stay: others would count from its first track.
                ["-copyts", "-i", str(path), *_options(tracks), "-f", "mp4", SOUND_FILE],
                readable=[path],
                writable=scratch,
                limits=_limits(seconds, len(tracks), room),
                formats="mov",
            )
            self._tools.ffmpeg.run(conversion, progress=tell, stop=beat.stop)
            with (scratch / SOUND_FILE).open("rb", buffering=0) as file:
                if not sounds_in(file, movie):
                    raise FfmpegFailed("nothing in it can be decoded")
            self._tools.folder.keep(scratch / SOUND_FILE, video_id, SOUND_FILE)


def as_aac(number: int, channels: int | None) -> list[str]:
    """Options for the sound track with this number among those of the output."""
    count = min(channels or 2, MOST_CHANNELS)
    return [
        *(f"-c:a:{number}", "aac", f"-filter:a:{number}", _IN_TIME),
        *(f"-b:a:{number}", str(min(count * BITS_OF_A_CHANNEL, MOST_BITS))),
        *((f"-ac:a:{number}", str(count)) if channels else ()),
    ]


def _options(tracks: Sequence[Track]) -> list[str]:
    # However much of it is damaged, what can be decoded is encoded.
    options = ["-max_error_rate", "1", "-map_metadata", "-1", "-map_chapters", "-1"]
    for number, track in enumerate(tracks):
        options += ["-map", f"0:i:{track.id}", *as_aac(number, track.channels)]
    return options


def _limits(seconds: float, tracks: int, room: int) -> Limits:
    """Generous: 20 s of 5.1 were converted in a second."""
    cpu_seconds = 30 + seconds * tracks / 3
    return Limits(
        cpu_seconds=cpu_seconds,
        wall_seconds=600 + 4 * cpu_seconds,
        memory_bytes=1 << 30,
        output_bytes=2 * room + (1 << 20),
    )
