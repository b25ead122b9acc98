"""Which qualities are offered of which picture, and what a manifest says of their segments."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.video.serve import renditions as formats
from app.video.serve.facts import Manifest, Stream
from app.video.serve.ladder import Capability, ladder, read_capability, write_capability

FAST = Capability(encoder="5.1 on 8", megapixels_per_second=10_000)
H264, HEVC = "avc1.64001f", "hvc1.1.6.L93.B0"
NOW = datetime(2026, 5, 1, tzinfo=UTC)


def picture(width: int, height: int, codecs: str = H264, **more: Any) -> Stream:
    values: dict[str, Any] = {
        "name": "source",
        "kind": "video",
        "codecs": codecs,
        "peak_rate": 30_000_000,
        "mean_rate": 20_000_000,
        "ends": (1000, 2000),
        "durations": (4.0, 2.5),
        "reaches": (1000, 2000),
        "width": width,
        "height": height,
        "frame_rate": 25.0,
    }
    return Stream(**values | more)


@pytest.mark.parametrize(
    ("source", "sizes"),
    [
        (picture(1920, 1080), {360: (640, 360), 720: (1280, 720)}),
        (picture(1080, 1920), {360: (360, 640), 720: (720, 1280)}),
        (picture(3840, 2160), {360: (640, 360), 720: (1280, 720), 1080: (1920, 1080)}),
        (picture(1920, 1080, HEVC), {360: (640, 360), 720: (1280, 720), 1080: (1920, 1080)}),
        (picture(1280, 720, video_range="PQ"), {360: (640, 360), 720: (1280, 720)}),
        (picture(854, 480, "ap4h", is_played=False), {360: (640, 360)}),
        (picture(641, 361), {360: (640, 360)}),
        (picture(640, 360), {}),
        (picture(160, 96), {}),
        (picture(161, 97, "ap4h", is_played=False), {360: (160, 96)}),
        (picture(160, 96, HEVC), {360: (160, 96)}),
        (picture(7680, 1080), {360: (2560, 360), 720: (5120, 720)}),
        (picture(0, 0), {}),
    ],
)
def test_rungs_are_smaller_than_the_source_unless_browsers_need_one_of_its_size(
    source: Stream, sizes: dict[int, tuple[int, int]]
) -> None:
    assert {
        rendition.quality: (rendition.width, rendition.height) for rendition in ladder(source, FAST)
    } == sizes


def test_a_film_with_open_groups_is_offered_in_its_own_size() -> None:
    """Chromium gives up after a seek in segments of the original."""
    whole = picture(1280, 720)
    assert [rendition.quality for rendition in ladder(whole, FAST)] == [360]
    assert [
        rendition.quality for rendition in ladder(replace(whole, has_open_groups=True), FAST)
    ] == [
        360,
        720,
    ]


def test_a_host_without_an_encoder_offers_nothing() -> None:
    assert ladder(picture(1920, 1080), None) == []


@pytest.mark.parametrize(
    ("speed", "expected"), [(1, [360]), (38, [360]), (50, [360, 720]), (200, [360, 720])]
)
def test_what_the_host_cannot_encode_in_time_is_hidden_except_the_lowest(
    speed: float, expected: list[int]
) -> None:
    capability = Capability(encoder="5.1 on 2", megapixels_per_second=speed)
    found = ladder(picture(1920, 1080), capability)
    assert [rendition.quality for rendition in found] == expected


@pytest.mark.parametrize(("seconds", "is_offered"), [(10, True), (60, True), (600, False)])
def test_a_film_with_few_key_frames_is_not_offered_in_other_qualities(
    seconds: int, is_offered: bool
) -> None:
    """All that is between two of them may have to be decoded for one segment."""
    capability = Capability(encoder="5.1 on 2", megapixels_per_second=50)
    film = picture(1920, 1080, longest_group=25 * seconds)
    assert bool(ladder(film, capability)) == is_offered


def test_no_rung_needs_more_bits_than_the_source() -> None:
    for rendition in ladder(picture(1920, 1080, mean_rate=800_000), FAST):
        assert rendition.mean_rate < rendition.peak_rate <= 800_000


def test_levels_are_those_of_h264() -> None:
    usual = ladder(picture(1920, 1080, HEVC), FAST)
    assert [rendition.codecs for rendition in usual] == [
        "avc1.64001e",
        "avc1.64001f",
        "avc1.640028",
    ]
    fast = ladder(picture(1920, 1080, HEVC, frame_rate=60.0), FAST)
    assert [rendition.level for rendition in fast] == [31, 32, 42]
    assert fast[1].peak_rate > usual[1].peak_rate


def test_a_manifest_keeps_what_it_says_of_rungs() -> None:
    plain = picture(640, 360)
    cut = picture(640, 360, "ap4h", rung_durations=(4.0, 2.0, 0.5), is_played=False)
    assert list(Manifest.from_json(Manifest([plain, cut]).to_json()).streams) == [plain, cut]
    assert plain.rung_segments == plain.durations
    assert cut.rung_segments == (4.0, 2.0, 0.5)


def test_a_manifest_from_before_there_were_rungs_can_be_read() -> None:
    stored = Manifest([picture(640, 360)]).to_json()
    older = stored.replace(b', "rung_durations": [], "is_played": true', b"")
    assert older != stored
    assert Manifest.from_json(older) == Manifest.from_json(stored)


def test_a_manifest_of_an_earlier_version_tells_of_a_beginning_in_an_open_group() -> None:
    stored = Manifest([picture(640, 360, has_open_groups=True)]).to_json()
    older = stored.replace(b"has_open_groups", b"begins_tied")
    assert Manifest.from_json(older) == Manifest.from_json(stored)


def test_a_capability_is_read_anew_when_it_has_changed(tmp_path: Path) -> None:
    assert read_capability(tmp_path) is None
    (tmp_path / "scratch").mkdir()
    for speed in (20.0, 30.0):
        measured = Capability(encoder="5.1 on 2", megapixels_per_second=speed)
        write_capability(measured, tmp_path, tmp_path / "scratch")
        assert read_capability(tmp_path) == measured


def test_a_request_for_a_segment_is_urgent_when_it_is_new_and_stale_when_it_is_old() -> None:
    assert formats.asked_for(formats.segments_argument(720, 15)) == (720, 15)
    earlier, now = formats.priority_at(NOW), formats.priority_at(NOW + timedelta(seconds=5))
    assert now < earlier
    assert not formats.is_stale(earlier, NOW + timedelta(seconds=formats.ASKED_SECONDS - 1))
    assert formats.is_stale(earlier, NOW + timedelta(seconds=formats.ASKED_SECONDS + 1))
