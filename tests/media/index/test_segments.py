"""HLS made of the original: every sample once, at its time, in segments cut at key frames."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest

from app.media.index.errors import NotIndexable
from app.media.index.segments import segmented_sound, segmented_video
from tests.media.films import FilmStore
from tests.media.frames import packets
from tests.media.index.making import indexed, write_segments

FILMS = [
    "moov-last.mp4",
    "quicktime.mov",
    "long-gop.mp4",
    "open-gop.mp4",
    "hevc-open-gop.mp4",
    "variable-rate.mp4",
    "ntsc.mp4",
    "signed-offsets.mp4",
    "late-sound.mp4",
    "av1.mp4",
    "surround-eac3.mp4",
]


@pytest.mark.parametrize("name", FILMS)
def test_every_packet_is_shown_once_and_at_its_time(
    film: FilmStore, tmp_path: Path, name: str
) -> None:
    movie = indexed(film(name))
    video = segmented_video(movie.tracks[0])
    starts = [segment.start for segment in video.segments()]
    sound = segmented_sound(movie.tracks[1], starts[1:])
    for stream, segmented in enumerate((video, sound)):
        shown = packets(write_segments(segmented, film(name), tmp_path / "hls.mp4"), "0")
        original = packets(film(name), str(stream))
        assert [packet.digest for packet in shown] == [packet.digest for packet in original]
        assert [packet.presented for packet in shown] == pytest.approx(
            [packet.presented for packet in original], abs=0.000002
        )


def test_segments_begin_at_key_frames_and_join_without_a_gap(film: FilmStore) -> None:
    track = indexed(film("long-gop.mp4")).tracks[0]
    segments = list(segmented_video(track).segments())
    assert [(each.start, each.duration) for each in segments] == [
        (Fraction(0), Fraction(30)),
        (Fraction(30), Fraction(10)),
    ]


def test_sound_is_cut_where_pictures_are_and_then_in_its_own_steps(film: FilmStore) -> None:
    track = indexed(film("long-gop.mp4")).tracks[1]
    segments = list(segmented_sound(track, [Fraction(30)]).segments())
    packet = 1024 / track.sample_rate
    # Each cut is at the next packet, and the last one is counted from the one before.
    assert [float(each.start) for each in segments] == pytest.approx([0, 30, 34], abs=2 * packet)
    for before, after in pairwise(segments):
        assert before.start + before.duration == after.start
    assert segments[-1].start + segments[-1].duration == track.duration


def test_pictures_that_begin_late_begin_at_time_0_in_hls(film: FilmStore) -> None:
    """Players stall at a gap; the first picture is shown longer instead."""
    track = indexed(film("moov-last.mp4")).tracks[0]
    late = replace(track, timeline=replace(track.timeline, shift=12_800 - 1024, end=None))
    segments = list(segmented_video(late).segments())
    assert segments[0].start == 0
    assert segments[0].duration == 1 + next(segmented_video(track).segments()).duration
    assert segments[-1].start + segments[-1].duration == track.duration + 1


def test_a_film_that_changes_its_coding_is_left_to_play_mp4(
    film: FilmStore, tmp_path: Path
) -> None:
    data = bytearray(film("moov-last.mp4").read_bytes())
    table = data.index(b"stsc") + 12
    data[table + 8 : table + 12] = b"\0\0\0\2"
    path = tmp_path / "two-descriptions.mp4"
    path.write_bytes(data)
    with pytest.raises(NotIndexable) as refused:
        segmented_video(indexed(path).tracks[0])
    assert refused.value.code == "several_codecs"
