"""How long an index is, is known before its tables are read."""

from __future__ import annotations

import pytest

from app.video.index.boxes import LongIndex, NotIndexable
from app.video.index.movie import Movie, read_movie
from app.video.index.samples import LONG_INDEX, MAX_ENTRIES, SHORT_INDEX
from tests.long_tests import long
from tests.video import hostile_indexes
from tests.video.films import RECIPES, FilmStore


def read(data: bytes, most_entries: int = LONG_INDEX, arrived: int | None = None) -> Movie:
    return read_movie(
        lambda offset, count: data[offset : offset + count],
        len(data),
        most_entries=most_entries,
        arrived=arrived,
    )


@pytest.mark.parametrize(
    ("data", "least"),
    [
        (hostile_indexes.of_many_samples(), 9_900_000),
        (hostile_indexes.of_many_chunks(), 6_000_000),
        (hostile_indexes.of_many_edits(), 9_900_000),
        (hostile_indexes.of_sound_that_is_almost_counted_by_chunks(), 9_900_000),
    ],
    ids=["samples", "chunks", "edits", "sound"],
)
def test_an_index_that_is_long_is_not_read(data: bytes, least: int) -> None:
    with pytest.raises(LongIndex) as refused:
        read(data)
    assert refused.value.entries >= least


def test_the_tracks_of_a_file_are_counted_together() -> None:
    one = hostile_indexes.track(SHORT_INDEX - 500)
    assert read(hostile_indexes.film(one, media_bytes=SHORT_INDEX), SHORT_INDEX).tracks
    with pytest.raises(LongIndex):
        read(hostile_indexes.film(one, one, media_bytes=2 * SHORT_INDEX), SHORT_INDEX)


def test_the_edits_of_tracks_that_no_player_shows_are_not_applied() -> None:
    data = hostile_indexes.film(*hostile_indexes.edited_tracks(3, 1000), media_bytes=3000)
    first, *others = read(data).tracks
    assert len(first.samples) == 2000
    assert [len(track.samples) for track in others] == [1000, 1000]


def test_only_as_many_samples_are_believed_as_bytes_have_arrived() -> None:
    data = hostile_indexes.film(hostile_indexes.track(5000), media_bytes=5000)
    assert read(data, arrived=5001).tracks
    with pytest.raises(NotIndexable) as refused:
        read(data, arrived=4999)
    assert refused.value.code == "too_many_samples"


def test_all_packets_of_sound_that_arrives_are_counted() -> None:
    data = hostile_indexes.of_sound_that_is_almost_counted_by_chunks(5000)
    assert read(data, arrived=5001).tracks
    with pytest.raises(NotIndexable) as refused:
        read(data, arrived=4999)
    assert refused.value.code == "too_many_samples"


def test_silence_before_sound_is_counted() -> None:
    """A second of it is 43 packets: an edit list of 24 bytes asks for 129 000 in 751 segments."""
    assert read(hostile_indexes.of_late_sound(2), SHORT_INDEX).tracks
    with pytest.raises(LongIndex) as refused:
        read(hostile_indexes.of_late_sound(3), SHORT_INDEX)
    assert refused.value.entries == 3 * (129_199 + 30 * 751)


def test_segments_are_counted() -> None:
    """Packets that last 4 s make one each."""
    packets = (9500, 4 * 44_100)
    one, two = (
        hostile_indexes.film(*[hostile_indexes.sound(packets)] * count, media_bytes=20_000)
        for count in (1, 2)
    )
    assert read(one, SHORT_INDEX).tracks
    with pytest.raises(LongIndex) as refused:
        read(two, SHORT_INDEX)
    assert refused.value.entries == 2 * 30 * 9500


def test_what_no_step_reads_is_refused() -> None:
    """Each of these packets is late enough to be a segment of its own."""
    edits = ((0xFFFF_FFFF, -1), (0, 0))
    sound = hostile_indexes.sound((MAX_ENTRIES // 30 + 1, 2), edits=edits)
    with pytest.raises(NotIndexable) as refused:
        read(hostile_indexes.film(sound, media_bytes=MAX_ENTRIES // 30 + 1), MAX_ENTRIES)
    assert refused.value.code == "too_many_samples"


def test_samples_of_fragments_that_take_no_bytes_are_counted(film: FilmStore) -> None:
    data = film("fragmented.mp4").read_bytes()
    assert read(data).tracks
    with pytest.raises(LongIndex):
        read(data, most_entries=300)


KINDS = ("h264.mp4", "fragmented.mp4", "long-gop.mp4", "prores.mov", "sound.m4a", "subtitles.mp4")
OTHERS = [name for name in RECIPES if name.endswith(("mp4", "mov", "m4a")) and name not in KINDS]


@pytest.mark.parametrize("name", [*KINDS, *long(OTHERS)])
def test_films_of_seconds_have_a_short_index(film: FilmStore, name: str) -> None:
    assert read(film(name).read_bytes(), SHORT_INDEX // 100).tracks
