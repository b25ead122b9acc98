"""A few samples of a film as a film of their own."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from app.video.index.muxing import extract, key_frame_before
from tests.long_tests import long
from tests.video.films import FilmStore
from tests.video.frames import packets, watch
from tests.video.index.making import indexed, write


@pytest.mark.parametrize("name", ["fragmented.mp4", "hevc-open-gop.mp4", *long(["moov-last.mp4"])])
def test_key_frames_are_pictures_of_their_time(film: FilmStore, tmp_path: Path, name: str) -> None:
    track = indexed(film(name)).tracks[0]
    keys = track.samples.key_frames
    shown = watch(write(extract(track, keys), film(name), tmp_path / "keys.mp4"))
    original = {frame.number: frame for frame in watch(film(name)).frames}
    assert len(shown.frames) == len(keys) > 1
    for frame in shown.frames:
        assert frame.digest == original[frame.number].digest
        assert frame.time == pytest.approx(original[frame.number].time)


def test_a_range_is_what_the_film_has_there(film: FilmStore, tmp_path: Path) -> None:
    track = indexed(film("moov-last.mp4")).tracks[0]
    first, last = track.samples.key_frames[1:3]
    pieces = extract(track, range(first, last))
    shown = packets(write(pieces, film("moov-last.mp4"), tmp_path / "part.mp4"), "v:0")
    assert shown == packets(film("moov-last.mp4"), "v:0")[first:last]


def test_the_key_frame_before_a_time_is_shown_at_it_or_earlier(film: FilmStore) -> None:
    track = indexed(film("moov-last.mp4")).tracks[0]
    times = (Fraction(0), Fraction(99, 100), Fraction(1), Fraction(5, 2), Fraction(1000))
    numbers = [key_frame_before(track, time) for time in times]
    assert numbers[:4] == [0, 0, 25, 50]
    assert numbers[4] == track.samples.key_frames[-1]
