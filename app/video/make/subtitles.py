"""The step `subtitles`: writes text tracks and chapters of a video as WebVTT files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction

from app.core.jobs import Job
from app.video.index.boxes import NotIndexable, ReadAt
from app.video.index.movie import Movie
from app.video.index.texts import (
    Cue,
    escaped,
    read_chapters,
    read_cues,
    subtitle_tracks,
    webvtt,
    within_limit,
)
from app.video.make.steps import Heartbeat, StepTools, needing_index
from app.video.serve.folder import writing

SUBTITLES = "subtitles"

CHAPTERS = "chapters.vtt"
"""Name of a file in the folder of a video. Subtitle files have the number of their track among all
text tracks of the video, from 1 on."""

SHORTEST_CHAPTER = Fraction(1, 1000)


class SubtitlesStep:
    """Writes the files of an indexed video. A track that cannot be read is left out."""

    def __init__(self, tools: StepTools) -> None:
        self._tools = tools

    def __call__(self, job: Job, beat: Heartbeat) -> None:
        """Do the job."""
        with self._tools.opened(job.upload_id) as (video, source):
            with needing_index():
                movie, read_at = self._tools.read_movie(job, source)
            for name, cues in _files(movie, _with_beat(read_at, beat)):
                if cues:
                    with writing(self._tools.folder, video.id, name) as target:
                        target.write(webvtt(cues).encode())


def _with_beat(read_at: ReadAt, beat: Heartbeat) -> ReadAt:
    """A reader that raises when the job is lost: a track has up to 100 000 samples."""

    def reading(offset: int, count: int) -> bytes:
        beat.go_on()
        return read_at(offset, count)

    return reading


def _files(movie: Movie, read_at: ReadAt) -> Iterator[tuple[str, list[Cue]]]:
    """Yields the name and the cues of each file."""
    yield CHAPTERS, _chapters(movie, read_at)
    readable = {track.id for track in subtitle_tracks(movie)}
    texts = (track for track in movie.tracks if track.kind == "text")
    for number, track in enumerate(texts, start=1):
        if track.id in readable:
            with suppress(NotIndexable):
                yield f"subs-{number}.vtt", list(within_limit(read_cues(track, read_at)))


def _chapters(movie: Movie, read_at: ReadAt) -> list[Cue]:
    """Chapters as cues, each up to the start of the next."""
    chapters = read_chapters(movie, read_at)
    ends = [*(chapter.start for chapter in chapters[1:]), movie.duration]
    return [
        Cue(chapter.start, end, escaped(chapter.title))
        for chapter, end in zip(chapters, ends, strict=False)
        if end - chapter.start >= SHORTEST_CHAPTER and chapter.title.strip()
    ]
