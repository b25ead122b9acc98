"""`play.mp4` has its index first and every sample of the original."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.domain.ranges import ByteRange
from app.media.index.fast_start import fast_start
from tests.media.films import FilmStore
from tests.media.frames import packets
from tests.media.index.making import indexed, write


@pytest.mark.parametrize(
    "name",
    [
        "moov-last.mp4",
        "quicktime.mov",
        "variable-rate.mp4",
        "signed-offsets.mp4",
        "hevc-open-gop.mp4",
        "late-sound.mp4",
        "several-edits.mp4",
        "compact-sizes.mp4",
        "two-languages.mp4",
        "prores.mov",
    ],
)
def test_every_packet_is_shown_at_its_time(film: FilmStore, tmp_path: Path, name: str) -> None:
    pieces = list(fast_start(indexed(film(name))))
    shown = write(pieces, film(name), tmp_path / f"play{Path(name).suffix}")
    assert isinstance(pieces[0], bytes)
    assert shown.read_bytes().index(b"moov") < shown.read_bytes().index(b"mdat")
    for stream in range(len(indexed(film(name)).tracks)):
        assert packets(shown, str(stream)) == packets(film(name), str(stream))


def test_the_original_is_served_where_its_index_is_first(film: FilmStore) -> None:
    length = film("h264.mp4").stat().st_size
    assert list(fast_start(indexed(film("h264.mp4")))) == [ByteRange(0, length)]


def test_media_beyond_4_gib_is_found_and_the_hole_before_it_left_out(
    film: FilmStore, tmp_path: Path
) -> None:
    shown = write(fast_start(indexed(film("huge.mp4"))), film("huge.mp4"), tmp_path / "play.mp4")
    assert shown.stat().st_size < 1 << 20
    assert packets(shown, "v:0") == packets(film("moov-last.mp4"), "v:0")


def test_a_truncated_film_plays_as_far_as_it_goes(film: FilmStore, tmp_path: Path) -> None:
    movie = indexed(film("truncated.mp4"))
    shown = write(fast_start(movie), film("truncated.mp4"), tmp_path / "play.mp4")
    assert movie.is_truncated
    for stream, track in enumerate(movie.tracks):
        whole = packets(film("h264.mp4"), str(stream))
        assert packets(shown, str(stream)) == whole[: len(track.samples)]
        assert len(track.samples) > len(whole) // 2
