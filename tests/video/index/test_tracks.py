"""Properties of tracks. Their rates are those of ffprobe, also for tracks that start late."""

from __future__ import annotations

import struct
from fractions import Fraction
from pathlib import Path

import pytest

from tests.video.films import FilmStore, ffmpeg
from tests.video.frames import probe
from tests.video.index.making import indexed
from tests.video.rewritten import Part, with_edits

LATE: list[Part] = [(10.0, None), (1.0, 1.2), (1.44, 4.2)]
CUT: list[Part] = LATE[1:]


def check_rates(path: Path, expected: Path) -> None:
    """Compare the rates in `path` with those that ffprobe reports of `expected`."""
    tracks = indexed(path).tracks
    streams = probe(expected)["streams"]
    assert len(tracks) == len(streams) == 2
    for track, stream in zip(tracks, streams, strict=True):
        assert track.bit_rate == pytest.approx(int(stream["bit_rate"]), rel=0.01)
        if track.kind == "video":
            assert track.frame_rate == Fraction(stream["avg_frame_rate"])


@pytest.mark.parametrize("parts", [LATE, CUT], ids=["late", "cut"])
def test_edits_change_no_rates(film: FilmStore, tmp_path: Path, parts: list[Part]) -> None:
    path = tmp_path / "edited.mp4"
    with_edits(film("moov-last.mp4"), path, *parts)
    check_rates(path, path)


def test_fragments_that_start_late_change_no_rates(film: FilmStore, tmp_path: Path) -> None:
    path = tmp_path / "fragmented.mp4"
    flags = ("-movflags", "frag_keyframe+empty_moov+default_base_moof")
    ffmpeg("-i", str(film("moov-last.mp4")), "-map", "0", "-c", "copy", *flags, str(path))
    late = tmp_path / "late.mp4"
    late.write_bytes(with_late_track(path.read_bytes(), track=2, ticks=10_000_000))
    assert indexed(late).sounds[0].samples.decode_times[0] > 0
    # ffprobe counts the time before the track, too.
    check_rates(late, path)


def test_the_key_frame_before_a_time_is_shown_at_it_or_earlier(film: FilmStore) -> None:
    track = indexed(film("moov-last.mp4")).tracks[0]
    times = (Fraction(0), Fraction(99, 100), Fraction(1), Fraction(5, 2), Fraction(1000))
    numbers = [track.key_frame_before(time) for time in times]
    assert numbers[:4] == [0, 0, 25, 50]
    assert numbers[4] == track.samples.key_frames[-1]


def with_late_track(data: bytes, *, track: int, ticks: int) -> bytes:
    """The film with all fragments of a track decoded later (ISO/IEC 14496-12, 8.8.12)."""
    changed = bytearray(data)
    at = data.find(b"tfhd")
    while at >= 0:
        if struct.unpack_from(">I", data, at + 8)[0] == track:
            time = data.index(b"tfdt", at) + 8
            struct.pack_into(">Q", changed, time, struct.unpack_from(">Q", data, time)[0] + ticks)
        at = data.find(b"tfhd", at + 1)
    return bytes(changed)
