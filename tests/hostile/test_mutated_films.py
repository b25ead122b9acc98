"""Whatever a film's index contains, it is used or refused, and soon: no other error, no hang."""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction

import pytest

from app.video.index.boxes import NotIndexable
from app.video.index.fast_start import fast_start
from app.video.index.movie import Movie, read_movie
from app.video.index.muxing import mp4_of
from app.video.index.segments import RenditionCuts, SegmentedTrack, segmented_sound, segmented_video
from app.video.index.texts import read_chapters, read_cues, subtitle_tracks, webvtt
from tests.hostile.conftest import Scaled
from tests.hostile.mutations import mutations
from tests.video.films import FilmStore


def use(film: bytes) -> Movie:
    """Index a film and do all that can be done with it."""

    def read_at(offset: int, count: int) -> bytes:
        return film[offset : offset + count]

    movie = read_movie(read_at, len(film))
    read_chapters(movie, read_at)
    for _ in fast_start(movie, read_at):
        pass
    for track in movie.tracks:
        cut = segmented_video if track.kind == "video" else segmented_sound
        segmented = cut(track)
        assert segmented.initialization
        assert sum(len(segment.pieces) for segment in segmented.segments())
        if track.kind == "video":
            other_quality(segmented)
        assert track.key_frame_before(Fraction(1)) < len(track.samples)
        for _ in mp4_of(track, track.samples):
            pass
    for track in subtitle_tracks(movie):
        webvtt(read_cues(track, read_at))
    return movie


def other_quality(picture: SegmentedTrack) -> None:
    """Cut it as for an encoder."""
    cuts = RenditionCuts.of(picture)
    assert len(cuts.durations) == len(cuts)
    for number in (1, len(cuts)):
        assert len(cuts.excerpt(number).samples)


@pytest.mark.parametrize(
    "name",
    [
        "subtitles.mp4",
        "chapters.mp4",
        "fragmented.mp4",
        "quicktime.mov",
        "late-sound.mp4",
        "several-edits.mp4",
        "hidden-start.mp4",
    ],
)
def test_mutated_indexes_are_used_or_refused(film: FilmStore, scaled: Scaled, name: str) -> None:
    original = film(name).read_bytes()
    used = 0
    for mutated in mutations(original, count=scaled(short=50, long=15_000), seed=14):
        with suppress(NotIndexable):
            use(mutated)
            used += 1
    assert used > 0
