"""MP4 files that ffmpeg cannot write, made from ordinary ones by changing boxes of their `moov`.

Boxes are those of ISO/IEC 14496-12; section numbers below are of its 2022 edition.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

GIB = 1 << 30
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


def with_several_edits(source: Path, target: Path) -> None:
    """The first second, then the third and fourth: two entries in the edit list (8.6.6)."""
    data = source.read_bytes()
    at_moov = data.index(b"moov") - 4

    def edit(kind: bytes, content: bytes) -> tuple[bytes, bytes]:
        if kind != b"elst":
            return kind, content
        media_time, rate = struct.unpack_from(">iI", content, 12)  # the source begins with one edit
        entries = [(1000, media_time, rate), (2000, media_time + 2 * 12_800, rate)]
        packed = b"".join(struct.pack(">IiI", *entry) for entry in entries)
        return kind, content[:4] + struct.pack(">I", len(entries)) + packed

    target.write_bytes(data[:at_moov] + edited(data[at_moov:], edit))


def with_compact_sizes(source: Path, target: Path) -> None:
    """Sample sizes in 16 bits each (8.7.3.3)."""
    data = source.read_bytes()
    at_moov = data.index(b"moov") - 4

    def compact(kind: bytes, content: bytes) -> tuple[bytes, bytes]:
        if kind != b"stsz":
            return kind, content
        count = struct.unpack_from(">I", content, 8)[0]
        sizes = struct.unpack_from(f">{count}I", content, 12)
        return b"stz2", struct.pack(f">III{count}H", 0, 16, count, *sizes)

    target.write_bytes(data[:at_moov] + edited(data[at_moov:], compact))


def cut_at_60_percent(source: Path, target: Path) -> None:
    """The beginning, as a broken connection leaves it."""
    data = source.read_bytes()
    target.write_bytes(data[: len(data) * 6 // 10])
