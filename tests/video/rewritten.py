"""Files that ffmpeg cannot write, most of them MP4 with changed boxes in their `moov`.

Boxes are those of ISO/IEC 14496-12; section numbers below are of its 2022 edition.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

GIB = 1 << 30
FIXED_ONE = 1 << 16
"""1 as a fixed-point number with 16 bits for each side of the point."""

TS_PACKET_BYTES = 188
TS_SOUND = 0x101
"""The identifier that ffmpeg gives the first sound track: ISO/IEC 13818-1, 2.4.3.2."""

CONTAINERS = {b"moov", b"trak", b"edts", b"mdia", b"minf", b"stbl"}

Edit = Callable[[bytes, bytes], tuple[bytes, bytes]]
"""From a box's kind and content to another kind and content."""


def boxes(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Kind and content of each box at this level; the sources have no 64-bit sizes."""
    at = 0
    while at < len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        yield kind, data[at + 8 : at + length]
        at += length


def box(kind: bytes, content: bytes) -> bytes:
    """A box with its header."""
    return struct.pack(">I4s", len(content) + 8, kind) + content


def edited(data: bytes, edit: Edit) -> bytes:
    """Boxes with those that hold no others changed by `edit`, at every level."""
    out = []
    for kind, content in boxes(data):
        if kind in CONTAINERS:
            out.append(box(kind, edited(content, edit)))
        else:
            out.append(box(*edit(kind, content)))
    return b"".join(out)


def change_moov(source: Path, target: Path, edit: Edit) -> None:
    """A copy with its `moov` edited, which must keep its length or be the last box."""
    data = source.read_bytes()
    at_moov = data.index(b"moov") - 4
    end = at_moov + struct.unpack_from(">I", data, at_moov)[0]
    moov = edited(data[at_moov:end], edit)
    assert at_moov + len(moov) == end or end == len(data)
    target.write_bytes(data[:at_moov] + moov + data[end:])


def beyond_4_gib(source: Path, target: Path) -> None:
    """The same film with 4 GiB of nothing in front of its samples, as a sparse file (8.7.5)."""
    data = source.read_bytes()
    at_mdat = data.index(b"mdat") - 4
    length = struct.unpack_from(">I", data, at_mdat)[0]
    hole = 4 * GIB

    def move(kind: bytes, content: bytes) -> tuple[bytes, bytes]:
        if kind != b"stco":
            return kind, content
        offsets = struct.unpack_from(f">{struct.unpack_from('>I', content, 4)[0]}I", content, 8)
        moved = [offset + 8 + hole for offset in offsets]  # the header of mdat grows by 8
        return b"co64", content[:8] + struct.pack(f">{len(moved)}Q", *moved)

    with target.open("wb") as file:
        file.write(data[:at_mdat])
        file.write(struct.pack(">I4sQ", 1, b"mdat", length + 8 + hole))
        file.seek(hole, 1)
        file.write(data[at_mdat + 8 : at_mdat + length])
        file.write(edited(data[at_mdat + length :], move))


def a_quarter_turn_clockwise(source: Path, target: Path) -> None:
    """As a phone that is held upright records it: the matrix of the track turns it (8.3.2)."""

    def turn(kind: bytes, content: bytes) -> tuple[bytes, bytes]:
        if kind != b"tkhd" or not any(content[-8:]):  # sound has no width
            return kind, content
        height = struct.unpack(">I", content[-4:])[0]
        matrix = struct.pack(">9i", 0, FIXED_ONE, 0, -FIXED_ONE, 0, 0, height, 0, 1 << 30)
        return kind, content[:40] + matrix + content[76:]

    change_moov(source, target, turn)


Part = tuple[float, float | None]
"""Seconds that are shown, and where in the film they begin; None to show nothing."""


def with_edits(source: Path, target: Path, *parts: Part) -> None:
    """The film cut into parts by the edit lists of all tracks (8.6.6). Its `moov` is last."""
    data = source.read_bytes()
    timescales: list[int] = []

    def find(kind: bytes, content: bytes) -> tuple[bytes, bytes]:
        timescales.extend(struct.unpack_from(">I", content, 12) if kind == b"mdhd" else ())
        return kind, content

    def cut(kind: bytes, content: bytes) -> tuple[bytes, bytes]:
        if kind != b"elst":
            return kind, content
        timescale, begin = timescales.pop(0), struct.unpack_from(">i", content, 12)[0]
        starts = (-1 if at is None else begin + round(at * timescale) for _, at in parts)
        lengths = (round(seconds * 1000) for seconds, _ in parts)
        entries = [
            struct.pack(">IiI", *each, FIXED_ONE) for each in zip(lengths, starts, strict=True)
        ]
        return kind, content[:4] + struct.pack(">I", len(entries)) + b"".join(entries)

    edited(data[data.index(b"moov") - 4 :], find)
    change_moov(source, target, cut)


def with_several_edits(source: Path, target: Path) -> None:
    """Two parts, both of which begin between key frames, as if some seconds had been cut out."""
    with_edits(source, target, (1.2, 0.2), (3.2, 2.2))


def with_hidden_start(source: Path, target: Path) -> None:
    """As phones trim a film: what is hidden from its beginning is needed to decode the rest."""
    with_edits(source, target, (4.6, 1.2))


def with_one_picture_for_all(source: Path, target: Path) -> None:
    """Each sample is the same half of the file, so that all together are many times as long.

    Only the first is a key frame. Its `moov` is last.
    """
    half = source.stat().st_size // 2
    counts: list[int] = []

    def overlap(kind: bytes, content: bytes) -> tuple[bytes, bytes]:
        if kind == b"stsz":
            counts.append(struct.unpack_from(">I", content, 8)[0])
            return kind, struct.pack(">III", 0, half, counts[-1])
        if kind == b"stss":
            return kind, struct.pack(">III", 0, 1, 1)
        if kind == b"stsc":
            return kind, struct.pack(">IIIII", 0, 1, 1, 1, 1)
        if kind == b"stco":
            return kind, struct.pack(f">II{counts[-1]}I", 0, counts[-1], *[48] * counts[-1])
        return kind, content

    change_moov(source, target, overlap)


def with_compact_sizes(source: Path, target: Path) -> None:
    """Sample sizes in 16 bits each (8.7.3.3)."""

    def compact(kind: bytes, content: bytes) -> tuple[bytes, bytes]:
        if kind != b"stsz":
            return kind, content
        count = struct.unpack_from(">I", content, 8)[0]
        sizes = struct.unpack_from(f">{count}I", content, 12)
        return b"stz2", struct.pack(f">III{count}H", 0, 16, count, *sizes)

    change_moov(source, target, compact)


def cut_at_60_percent(source: Path, target: Path) -> None:
    """The beginning, as a broken connection leaves it."""
    data = source.read_bytes()
    target.write_bytes(data[: len(data) * 6 // 10])


def from_55_percent_on(source: Path, target: Path) -> None:
    """A transport stream from the middle on, as a recording of a broadcast begins."""
    data = source.read_bytes()
    start = len(data) * 55 // 100
    target.write_bytes(data[start - start % TS_PACKET_BYTES :])


def without_samples(source: Path, target: Path) -> None:
    """A film whose recording ended before its first picture: all tables are empty."""
    tables = {b"stts", b"stss", b"stsc", b"stco", b"ctts"}

    def emptied(kind: bytes, content: bytes) -> tuple[bytes, bytes]:
        if kind == b"stsz":
            return kind, bytes(12)
        return kind, bytes(8) if kind in tables else content

    change_moov(source, target, emptied)


def with_hole(source: Path, target: Path) -> None:
    """Noise over a tenth of it, in the middle, as a bad disk leaves it. Its `moov` is at an end."""
    data = bytearray(source.read_bytes())
    start, length = len(data) * 45 // 100, len(data) // 10
    data[start : start + length] = random.Random(16).randbytes(length)
    target.write_bytes(data)


def with_lost_sound(source: Path, target: Path) -> None:
    """A transport stream without every tenth packet of its sound, as a bad aerial leaves it."""
    data = source.read_bytes()
    packets = [data[at : at + TS_PACKET_BYTES] for at in range(0, len(data), TS_PACKET_BYTES)]
    of_sound = [n for n, packet in enumerate(packets) if _packet_id(packet) == TS_SOUND]
    lost = set(of_sound[10::10])
    target.write_bytes(b"".join(packet for n, packet in enumerate(packets) if n not in lost))


def _packet_id(packet: bytes) -> int:
    identifier: int = struct.unpack_from(">H", packet, 1)[0] & 0x1FFF
    return identifier
