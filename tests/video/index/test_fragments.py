"""Fragmented films are read whole and become plain ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.video.films import FilmStore, ffmpeg
from tests.video.frames import packets
from tests.video.index.making import indexed, play_file, write

FRAGMENTED = "frag_keyframe+delay_moov"


@pytest.fixture(params=["+default_base_moof", "", "+separate_moof", "+negative_cts_offsets"])
def fragmented(request: pytest.FixtureRequest, film: FilmStore, tmp_path: Path) -> Path:
    """A film cut into fragments by ffmpeg, in each of the ways it knows."""
    path = tmp_path / "fragmented.mp4"
    flags = ("-movflags", FRAGMENTED + request.param)
    ffmpeg("-i", str(film("moov-last.mp4")), "-map", "0", "-c", "copy", *flags, str(path))
    return path


def test_every_packet_is_shown_at_its_time(
    film: FilmStore, fragmented: Path, tmp_path: Path
) -> None:
    movie = indexed(fragmented)
    shown = write(play_file(fragmented), fragmented, tmp_path / "play.mp4")
    assert movie.is_fragmented
    assert b"moof" not in shown.read_bytes()
    for stream in ("v:0", "a:0"):
        found, expected = packets(shown, stream), packets(film("moov-last.mp4"), stream)
        assert [(packet.presented, packet.digest) for packet in found] == [
            (packet.presented, packet.digest) for packet in expected
        ]


def test_a_film_cut_off_in_a_fragment_plays_as_far_as_it_goes(
    film: FilmStore, tmp_path: Path
) -> None:
    whole = film("fragmented.mp4").read_bytes()
    cut = tmp_path / "cut.mp4"
    cut.write_bytes(whole[: len(whole) * 6 // 10])
    movie = indexed(cut)
    shown = packets(write(play_file(cut), cut, tmp_path / "play.mp4"), "v:0")
    assert movie.is_truncated
    assert shown == packets(film("fragmented.mp4"), "v:0")[: len(shown)]
    assert len(shown) > 30
