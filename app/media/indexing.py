"""The step `index`: the first look at a file, which makes most films playable."""

from __future__ import annotations

from contextlib import closing

from app.domain.jobs import Job, Lane
from app.domain.playback import PlaybackState, Problem
from app.domain.upload import Upload
from app.media.facts import Facts
from app.media.film_files import is_playable, keep_play_file, keep_streams
from app.media.heartbeat import Heartbeat
from app.media.index.errors import NotIndexable
from app.media.index.movie import Movie, read_movie
from app.media.index.texts import read_chapters
from app.media.pictures import PICTURES
from app.media.source import length_of, reader
from app.media.subtitles import SUBTITLES
from app.media.tools import StepTools
from app.media.waveform import WAVEFORM

INDEXED_TYPES = frozenset({"video/mp4", "video/quicktime"})
"""Types of files that are indexed; browsers play none of them that cannot be."""


def is_played_as_it_is(video: Upload) -> bool:
    """Whether browsers may play the file without an index, such as a WebM or MP3 file."""
    return video.is_playable and video.content_type not in INDEXED_TYPES


class Indexing:
    """Indexes a complete file, notes what was found, and queues what else is to be done with it."""

    def __init__(self, tools: StepTools) -> None:
        self._tools = tools

    def __call__(self, job: Job, _beat: Heartbeat) -> None:
        """Do the job."""
        video = self._tools.uploads.get(job.upload_id)
        with closing(self._tools.source.open(video)) as source:
            try:
                read_at = reader(source)
                movie = read_movie(read_at, length_of(source))
                facts = Facts.of(movie, read_chapters(movie, read_at))
                if is_playable(movie):
                    keep_play_file(movie, video.id, self._tools.folder)
            except NotIndexable as error:
                self._describe_other(video, error)
                return
            self._describe(video, movie, facts)
            if is_playable(movie):
                keep_streams(movie, video.id, self._tools.folder)
            self._queue_what_follows(video, movie, facts)

    def _describe(self, video: Upload, movie: Movie, facts: Facts) -> None:
        state, problem = PlaybackState.PLAYABLE, None
        if not is_playable(movie):
            state, problem = PlaybackState.UNPLAYABLE, _unknown_codec(facts)
        elif movie.is_truncated:
            problem = Problem(
                "truncated", "The file is damaged or cut off. It plays as far as it goes."
            )
        self._tools.media.describe(
            video.id, state, self._tools.clock(), facts=facts.to_json(), problem=problem
        )

    def _describe_other(self, video: Upload, error: NotIndexable) -> None:
        plays = is_played_as_it_is(video)
        state = PlaybackState.PLAYABLE if plays else PlaybackState.UNPLAYABLE
        problem = None if plays else Problem(error.code, error.detail)
        self._tools.media.describe(
            video.id, state, self._tools.clock(), facts=None, problem=problem
        )
        if video.content_type.startswith("audio/"):
            self._enqueue(video, WAVEFORM, priority=30)

    def _queue_what_follows(self, video: Upload, movie: Movie, facts: Facts) -> None:
        """What is made unasked; the shortest comes first."""
        if facts.chapters or facts.of_kind("text"):
            self._enqueue(video, SUBTITLES, priority=10)
        if movie.picture is not None:
            self._enqueue(video, PICTURES, priority=20)
        elif movie.sounds:
            self._enqueue(video, WAVEFORM, priority=30)

    def _enqueue(self, video: Upload, step: str, *, priority: int) -> None:
        lane, now = Lane.BACKGROUND, self._tools.clock()
        self._tools.jobs.enqueue(video.id, step, lane=lane, priority=priority, now=now, renew=True)


def _unknown_codec(facts: Facts) -> Problem:
    codecs = ", ".join(track.codec for track in facts.tracks if track.kind in {"video", "audio"})
    return Problem("unknown_codec", f"Browsers cannot play what is in this file: {codecs}.")
