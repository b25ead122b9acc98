"""Files that cannot be indexed as they are: what is in them, and what becomes of them."""

from __future__ import annotations

from io import RawIOBase

from app.core.jobs import REMUX, Job, JobCancelled, Lane
from app.core.playback import PlaybackState, Problem
from app.core.upload import Upload
from app.video.index.errors import NotIndexable
from app.video.make.ffmpeg.errors import (
    FfmpegFailed,
    FfmpegInterrupted,
    FfmpegMissing,
    FfmpegStopped,
)
from app.video.make.heartbeat import Heartbeat
from app.video.make.job_errors import NO_FFMPEG
from app.video.make.limits import leave_quick_lane, probe_limits, wait_for_short_ones
from app.video.make.remux import lane_of
from app.video.make.tools import StepTools
from app.video.make.waveform import WAVEFORM
from app.video.serve.browsers import plays_without_index
from app.video.serve.facts import Facts
from app.video.serve.probe import Contents, contents_of
from app.video.serve.signatures import HEAD_BYTES, is_no_film
from app.video.serve.source import reader

INDEXED_TYPES = frozenset({"video/mp4", "video/quicktime"})
"""Types of files that are indexed; browsers play none of them that cannot be."""

EXAMINED = frozenset({"not_mp4", "damaged", "no_tracks"})
"""Codes of `NotIndexable` after which ffmpeg may find a film all the same."""

NO_FILM = Problem(
    "no_film", "This is neither a film nor a sound recording, as far as the server can tell."
)
NEEDS_FFMPEG = Problem(
    NO_FFMPEG,
    "This is no MP4 or MOV file. For other films the server needs ffmpeg, which is not installed.",
)


def is_played_as_it_is(video: Upload) -> bool:
    """Whether browsers may play the file without an index, such as a WebM or MP3 file."""
    return video.is_playable and video.content_type not in INDEXED_TYPES


class OtherFormats:
    """Notes what is in such a file, and queues what makes it playable."""

    def __init__(self, tools: StepTools) -> None:
        self._tools = tools

    def look(
        self, video: Upload, source: RawIOBase, error: NotIndexable, job: Job, beat: Heartbeat
    ) -> None:
        """Examine an open file; `error` says why it has no index. No file is an error here.

        Raises `JobYields` if films whose index is short come first.
        """
        if error.code not in EXAMINED:
            self._describe(video, Problem(error.code, error.detail))
            return
        head = reader(source)(0, HEAD_BYTES)
        if is_no_film(head, video.filename):
            self._describe(video, NO_FILM)
            return
        wait_for_short_ones(job)
        try:
            with self._tools.source.ends_on_disk(source, beat.go_on) as path:
                answer = self._tools.ffmpeg.probe(path, probe_limits(job), stop=beat.stop)
        except FfmpegStopped as stopped:
            raise JobCancelled(str(stopped)) from stopped
        except FfmpegMissing:
            self._describe_unknown(video, NEEDS_FFMPEG)
        except FfmpegInterrupted as interrupted:
            leave_quick_lane(job)
            self._describe_unknown(
                video, Problem("not_examined", f"The file could not be examined: {interrupted}.")
            )
        except FfmpegFailed:
            is_other = error.code == "not_mp4"
            self._describe(video, NO_FILM if is_other else Problem(error.code, error.detail))
        else:
            self._decide(video, contents_of(answer), job)

    def _decide(self, video: Upload, contents: Contents, job: Job) -> None:
        facts = contents.facts
        if not contents.is_film:
            self._describe(video, NO_FILM)
            return
        plays = is_played_as_it_is(video) and plays_without_index(
            *(track.codec for track in facts.tracks if track.kind in {"video", "audio"})
        )
        state = PlaybackState.PLAYABLE if plays else PlaybackState.PROBED
        self._describe(video, facts.problem, state=state, facts=facts)
        # What cannot be watched at all comes before what only gets pictures.
        if not plays:
            self._enqueue(video, REMUX, *lane_of(contents, video.length or 0, job.lane))
        elif contents.picture is None:
            self._enqueue(video, WAVEFORM, Lane.BACKGROUND, 30)
        else:
            self._enqueue(video, REMUX, Lane.BACKGROUND, 40)

    def _describe_unknown(self, video: Upload, problem: Problem) -> None:
        if is_played_as_it_is(video):
            self._describe(video, None, state=PlaybackState.PLAYABLE)
        else:
            self._describe(video, problem)

    def _describe(
        self,
        video: Upload,
        problem: Problem | None,
        *,
        state: PlaybackState = PlaybackState.UNPLAYABLE,
        facts: Facts | None = None,
    ) -> None:
        known = None if facts is None else facts.to_json()
        now = self._tools.clock()
        self._tools.media.describe(video.id, state, now, facts=known, problem=problem)

    def _enqueue(self, video: Upload, step: str, lane: Lane, priority: int) -> None:
        if self._tools.ffmpeg.ffmpeg is None:  # Only ffprobe is there.
            return
        now = self._tools.clock()
        self._tools.jobs.enqueue(video.id, step, lane=lane, priority=priority, now=now, renew=True)
