"""HLS made of the original: every sample once, at its time, in segments cut at key frames."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest

from app.video.index.boxes import NotIndexable
from app.video.index.movie import read_movie
from app.video.index.segments import can_begin_late, segmented_sound, segmented_video
from tests.long_tests import long
from tests.video import hostile_indexes
from tests.video.films import FilmStore
from tests.video.frames import packets, watch
from tests.video.index.making import indexed, write_segments

FILMS = [
    "long-gop.mp4",
    "open-gop.mp4",
    "hevc-open-gop.mp4",
    "variable-rate.mp4",
    "ntsc.mp4",
    "signed-offsets.mp4",
    "av1.mp4",
    *long(["moov-last.mp4", "quicktime.mov", "surround-eac3.mp4"]),
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


@pytest.mark.parametrize(
    "name",
    ["late-sound.mp4", "opus-from-5.mp4", "surround-from-2.mp4", *long(["sound-from-5.mp4"])],
)
def test_sound_that_begins_late_has_silence_before(
    film: FilmStore, tmp_path: Path, name: str
) -> None:
    """Players cannot begin, or seek, where one of the streams has nothing."""
    movie = indexed(film(name))
    starts = [segment.start for segment in segmented_video(movie.tracks[0]).segments()]
    segmented = segmented_sound(movie.tracks[1], starts[1:])
    segments = list(segmented.segments())
    assert segments[0].start == 0
    assert len(segments) == len(starts)
    shown = write_segments(segmented, film(name), tmp_path / "hls.mp4")
    found, original = packets(shown, "0"), packets(film(name), "1")
    silent = len(found) - len(original)
    assert silent > 0
    assert [packet.digest for packet in found[silent:]] == [packet.digest for packet in original]
    assert [packet.presented for packet in found[silent:]] == pytest.approx(
        [packet.presented for packet in original], abs=0.000_03
    )
    packet = original[2].presented - original[1].presented
    assert 0 <= found[0].presented < 2 * packet
    for before, after in pairwise(found[: silent + 1]):
        assert after.presented - before.presented == pytest.approx(packet, abs=0.001)
    assert watch(shown).beeps == watch(film(name)).beeps


@pytest.mark.parametrize(("packet", "is_known"), [(1024, True), (401, True), (400, False)])
def test_packets_that_are_shorter_than_any_encoder_makes_are_not_repeated(
    packet: int, is_known: bool
) -> None:
    """Four packets of a tick would ask for 132 million of silence; such sound is encoded."""
    data = hostile_indexes.of_late_sound(packet=packet)
    track = read_movie(lambda at, count: data[at : at + count], len(data)).tracks[0]
    assert can_begin_late(track) is is_known
    assert segmented_sound(track).silence.count == is_known * 3000 * 44_100 // packet


def test_sound_that_begins_after_an_hour_is_left_to_play_mp4(film: FilmStore) -> None:
    track = indexed(film("moov-last.mp4")).tracks[1]
    late = replace(track, timeline=replace(track.timeline, shift=3601 * track.timescale, end=None))
    with pytest.raises(NotIndexable) as refused:
        segmented_sound(late)
    assert refused.value.code == "complex_edits"


def test_a_recording_that_begins_late_in_an_open_group_begins_at_time_0(
    film: FilmStore, tmp_path: Path
) -> None:
    """Its leading pictures cannot be decoded: the key frame is what there is to be shown."""
    name = "open-gop-cut.mp4"
    track = indexed(film(name)).tracks[0]
    late = replace(track, timeline=replace(track.timeline, shift=track.timescale, end=None))
    segmented = segmented_video(late)
    segments = list(segmented.segments())
    assert segments[0].start == 0
    assert segments[-1].start + segments[-1].duration == late.duration
    found = packets(write_segments(segmented, film(name), tmp_path / "hls.mp4"), "0")
    times = [late.shown_at(number) / late.timescale for number in range(len(late.samples))]
    assert min(times) < times[0]
    assert [packet.presented for packet in found] == pytest.approx([0, *times[1:]])


def test_a_short_rest_belongs_to_the_segment_before(film: FilmStore) -> None:
    track = indexed(film("h264.mp4")).tracks[0]
    keys = track.samples.key_frames
    for extra, count in ((1, 2), (24, 3)):
        shorter = replace(track, samples=track.samples.up_to(keys[8] + extra))
        assert len(list(segmented_video(shorter).segments())) == count


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
