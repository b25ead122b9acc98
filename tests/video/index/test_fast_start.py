"""`play.mp4` has its index first and every sample of the original."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.core.ranges import ByteRange
from app.video.index.boxes import children, descend
from app.video.index.movie import read_movie
from tests.long_tests import long
from tests.video.films import FilmStore, ffmpeg
from tests.video.frames import packets
from tests.video.index.making import indexed, play_file, write
from tests.video.rewritten import GIB, change_moov, edited


@pytest.mark.parametrize(
    "name",
    [
        "compact-sizes.mp4",
        "variable-rate.mp4",
        "signed-offsets.mp4",
        "hevc-open-gop.mp4",
        "late-sound.mp4",
        "several-edits.mp4",
        "two-languages.mp4",
        *long(["moov-last.mp4", "quicktime.mov", "prores.mov"]),
    ],
)
def test_every_packet_is_shown_at_its_time(film: FilmStore, tmp_path: Path, name: str) -> None:
    pieces = list(play_file(film(name)))
    shown = write(pieces, film(name), tmp_path / f"play{Path(name).suffix}")
    assert isinstance(pieces[0], bytes)
    assert shown.read_bytes().index(b"moov") < shown.read_bytes().index(b"mdat")
    for stream in range(len(indexed(film(name)).tracks)):
        assert packets(shown, str(stream)) == packets(film(name), str(stream))


def test_the_original_is_served_where_its_index_is_first(film: FilmStore) -> None:
    length = film("h264.mp4").stat().st_size
    assert list(play_file(film("h264.mp4"))) == [ByteRange(0, length)]


@pytest.mark.parametrize(
    "name", ["open-gop.mp4", "open-gop-first.mp4", "open-gop-fragmented.mp4", "h264.mp4"]
)
def test_players_begin_only_at_pictures_that_are_independent(
    film: FilmStore, tmp_path: Path, name: str
) -> None:
    """Chromium gives up after a seek to another key frame."""
    shown = write(play_file(film(name)), film(name), tmp_path / "play.mp4")
    track = indexed(shown).stored_tracks[0]
    assert [track.samples.composition_time(key) for key in track.samples.key_frames] == [
        round(time * track.timescale) for time in idr_times(shown)
    ]
    for stream in ("v:0", "a:0"):
        found, expected = packets(shown, stream), packets(film(name), stream)
        assert [(packet.presented, packet.digest) for packet in found] == [
            (packet.presented, packet.digest) for packet in expected
        ]


def test_a_film_without_an_independent_picture_begins_at_its_first_key_frame(
    film: FilmStore, tmp_path: Path
) -> None:
    name = "open-gop-cut.mp4"
    shown = write(play_file(film(name)), film(name), tmp_path / "play.mp4")
    assert list(idr_times(shown)) == []
    assert list(indexed(shown).stored_tracks[0].samples.key_frames) == [0]


@pytest.mark.parametrize("kind", [b"stps", b"sbgp", b"sgpd"])
def test_no_other_table_names_pictures_to_begin_at(
    film: FilmStore, tmp_path: Path, kind: bytes
) -> None:
    """Chromium takes partial sync samples and random access points for key frames."""
    source = tmp_path / "partial.mp4"

    def with_table(box_kind: bytes, content: bytes) -> tuple[bytes, bytes]:
        return (kind if box_kind == b"stss" else box_kind), content

    change_moov(film("moov-last.mp4"), source, with_table)
    shown = write(play_file(source), source, tmp_path / "play.mp4")
    assert kind in children(indexed(source).stored_tracks[0].tables)
    assert kind not in children(indexed(shown).stored_tracks[0].tables)


def idr_times(path: Path) -> Iterator[float]:
    """When the IDR pictures of a film are shown, in seconds by its own times; found by ffmpeg."""
    only_idr = ("-c", "copy", "-copyts", "-bsf:v", "filter_units=pass_types=5")
    listed = ffmpeg(
        "-ignore_editlist", "1", "-i", str(path), "-map", "v:0", *only_idr, "-f", "framecrc", "-"
    )
    timescale = 0
    for line in listed.decode().splitlines():
        if line.startswith("#tb 0: "):
            timescale = int(line.partition("/")[2])
        elif not line.startswith("#"):
            yield int(line.split(",")[2]) / timescale


def test_a_fragmented_film_lasts_until_its_last_picture_has_been_shown(
    film: FilmStore, tmp_path: Path
) -> None:
    """By its media header as well, which GStreamer plays by (section 8.4.2.3)."""
    name = "fragmented.mp4"
    shown = write(play_file(film(name)), film(name), tmp_path / "play.mp4")
    found = packets(shown, "v:0")
    last_shown = max(packet.presented for packet in found)
    assert last_shown > max(packet.decoded for packet in found)
    track = indexed(shown).stored_tracks[0]
    header = descend(track.box.payload, b"mdia", b"mdhd")
    assert header is not None
    assert header[0] == 1
    ticks = int.from_bytes(header[24:32], "big")
    assert ticks / track.timescale == pytest.approx(last_shown + 1 / 25)


def test_media_beyond_4_gib_is_found_and_the_hole_before_it_left_out(
    film: FilmStore, tmp_path: Path
) -> None:
    shown = write(play_file(film("huge.mp4")), film("huge.mp4"), tmp_path / "play.mp4")
    assert shown.stat().st_size < 1 << 20
    assert packets(shown, "v:0") == packets(film("moov-last.mp4"), "v:0")


def test_a_truncated_film_plays_as_far_as_it_goes(film: FilmStore, tmp_path: Path) -> None:
    movie = indexed(film("truncated.mp4"))
    shown = write(play_file(film("truncated.mp4")), film("truncated.mp4"), tmp_path / "play.mp4")
    assert movie.is_truncated
    for stream, track in enumerate(movie.tracks):
        whole = packets(film("h264.mp4"), str(stream))
        assert packets(shown, str(stream)) == whole[: len(track.samples)]
        assert len(track.samples) > len(whole) // 2


def test_a_track_without_samples_does_no_harm(film: FilmStore, tmp_path: Path) -> None:
    """The first track of `moov-last.mp4` with a table of sizes that is empty."""
    data = bytearray(film("moov-last.mp4").read_bytes())
    place = data.index(b"stsz") + 12
    data[place : place + 4] = bytes(4)
    source = tmp_path / "empty-track.mp4"
    source.write_bytes(data)
    movie = indexed(source)
    assert [len(track.samples) > 0 for track in movie.tracks] == [False, True]
    shown = write(play_file(source), source, tmp_path / "play.mp4")
    assert packets(shown, "a:0") == packets(film("moov-last.mp4"), "a:0")


def test_offsets_have_64_bits_where_the_new_file_is_larger_than_4_gib(
    film: FilmStore, tmp_path: Path
) -> None:
    """The last chunk of each track is 5 GiB behind the others, in a sparse file."""
    source = tmp_path / "wide.mp4"
    data = film("moov-last.mp4").read_bytes()
    at_mdat, at_moov = data.index(b"mdat") - 4, data.index(b"moov") - 4
    start = at_mdat - 8  # the header grows by as much, into the `free` box before it
    with source.open("wb") as file:
        file.write(data[:start] + struct.pack(">I4sQ", 1, b"mdat", 6 * GIB - start))
        file.write(data[at_mdat + 8 : at_moov])
        file.seek(6 * GIB)
        file.write(edited(data[at_moov:], _with_last_chunk_far))
    movie = indexed(source)
    head, media = play_file(source)
    assert isinstance(head, bytes)
    assert isinstance(media, ByteRange)
    assert media.length > 5 * GIB
    shown = read_movie(
        lambda offset, count: head[offset : offset + count], len(head) + media.length
    )
    for track, original in zip(shown.tracks, movie.tracks, strict=True):
        places = [offset - len(head) + media.start for offset in track.samples.offsets]
        assert places == list(original.samples.offsets)


def _with_last_chunk_far(kind: bytes, content: bytes) -> tuple[bytes, bytes]:
    if kind != b"stco":
        return kind, content
    offsets = list(struct.unpack(f">{len(content) // 4 - 2}I", content[8:]))
    offsets[-1] += 5 * GIB
    return b"co64", content[:8] + struct.pack(f">{len(offsets)}Q", *offsets)
