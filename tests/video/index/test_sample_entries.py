"""What tracks contain, by the names that players ask for."""

from __future__ import annotations

import struct

import pytest

from app.video.index.boxes import box, boxes_in
from app.video.index.sample_entries import plain_description, read_sample_entry
from tests.video.films import FilmStore
from tests.video.index.making import indexed

CODECS = {
    "h264.mp4": ["avc1.4D400B", "mp4a.40.2"],
    "hevc.mp4": ["hvc1.1.6.L30.90", "mp4a.40.2"],
    "hdr10.mp4": ["hvc1.2.4.L30.90", "mp4a.40.2"],
    "av1.mp4": ["av01.0.00M.08", "opus"],
    "vp9.mp4": ["vp09.00.10.08", "opus"],
    "mpeg2.mp4": ["mp4v.61", "mp4a.6B"],
    "prores.mov": ["apco", "sowt"],
    "surround-ac3.mp4": ["avc1.4D400B", "ac-3"],
    "surround-eac3.mp4": ["avc1.4D400B", "ec-3"],
    "mp3.mp4": ["avc1.4D400B", "mp4a.6B"],
}


@pytest.mark.parametrize("name", CODECS)
def test_codecs_have_the_names_of_rfc_6381(film: FilmStore, name: str) -> None:
    codecs = [track.codec for track in indexed(film(name)).tracks]
    assert [codec.lower() for codec in codecs] == [codec.lower() for codec in CODECS[name]]


def test_channels_languages_and_dynamic_range_are_known(film: FilmStore) -> None:
    assert [track.language for track in indexed(film("two-languages.mp4")).tracks] == [
        "und",
        "en",
        "de",
    ]
    for name in ("surround-aac.mp4", "surround-ac3.mp4", "surround-eac3.mp4"):
        assert indexed(film(name)).tracks[1].entry.channels == 6
    assert indexed(film("hdr10.mp4")).tracks[0].entry.hdr == "pq"
    assert indexed(film("h264.mp4")).tracks[0].entry.hdr is None


def test_a_stretched_picture_has_the_width_that_is_shown(film: FilmStore) -> None:
    track = indexed(film("anamorphic.mp4")).tracks[0]
    assert (track.width, track.height) == (320, 96)


def test_a_turned_picture_has_the_size_that_is_shown(film: FilmStore) -> None:
    track = indexed(film("rotated.mp4")).tracks[0]
    assert (track.rotation, track.width, track.height) == (90, 96, 160)


def test_sound_of_quicktime_is_rewritten_as_browsers_read_it(film: FilmStore) -> None:
    track = indexed(film("quicktime.mov")).tracks[1]
    stsd = track.description[8:]
    plain = memoryview(plain_description(stsd, "audio"))
    (entry,) = boxes_in(plain[8:])
    assert bytes(entry.payload[8:10]) == b"\0\0"
    assert read_sample_entry(plain, "audio").codec == track.codec
    assert bytes(plain) != bytes(stsd)


def test_mp3_of_quicktime_gets_the_configuration_of_iso() -> None:
    fields = (
        bytes(6) + b"\0\1" + bytes(8) + b"\0\2\0\x10" + bytes(4) + (44_100 << 16).to_bytes(4, "big")
    )
    stsd = memoryview(bytes(4) + b"\0\0\0\1" + box(b".mp3", fields))
    plain = read_sample_entry(memoryview(plain_description(stsd, "audio")), "audio")
    assert (plain.fourcc, plain.codec, plain.channels) == ("mp4a", "mp4a.6B", 2)


def test_more_channels_than_iso_can_express_are_unknown_ones() -> None:
    """QuickTime's version 2 has 32 bits for their number."""
    version_2 = bytes(4) + struct.pack(">dI", 48_000.0, 0x7FFF_FFFF) + bytes(20)
    fields = bytes(6) + b"\0\1" + b"\0\2" + bytes(18) + version_2
    stsd = memoryview(bytes(4) + b"\0\0\0\1" + box(b"mp4a", fields))
    plain = read_sample_entry(memoryview(plain_description(stsd, "audio")), "audio")
    assert (plain.channels, plain.sample_rate) == (0, 48_000)
