"""Films whose index is far more work to read than it has bytes.

They are small MP4 files that claim to contain millions of samples, chunks or edits; the media is
zeros.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tests.media.rewritten import FIXED_ONE, box

HEAD = box(b"ftyp", b"isom" + bytes(4))

_CONFIGURATION = box(b"avcC", b"\1\x42\0\x1e\xff\xe1\0\0\1\0\0")
_DESCRIPTION = box(
    b"stsd",
    struct.pack(">II", 0, 1)
    + box(b"avc1", bytes(24) + bytes((1, 64, 0, 64)) + bytes(50) + _CONFIGURATION),
)


def track(
    samples: int, *, chunks: int = 1, edits: Sequence[tuple[int, int]] = (), number: int = 1
) -> bytes:
    """The `trak` of a video with frames of a byte, all of them key frames, at 25 a second.

    An edit is a duration and where it begins, in frames.
    """
    tables = _DESCRIPTION + box(b"stts", struct.pack(">IIII", 0, 1, samples, 1))
    tables += box(b"stsz", struct.pack(">III", 0, 1, samples))
    tables += box(b"stsc", struct.pack(">IIIII", 0, 1, 1, -(-samples // chunks), 1))
    tables += box(b"stco", struct.pack(">II", 0, chunks) + struct.pack(">I", 64) * chunks)
    media = box(b"mdhd", struct.pack(">IIIIIHH", 0, 0, 0, 25, samples, 0x55C4, 0))
    media += box(b"hdlr", bytes(8) + b"vide" + bytes(13))
    media += box(b"minf", box(b"vmhd", bytes(12)) + box(b"stbl", tables))
    matrix = struct.pack(">9i", FIXED_ONE, 0, 0, 0, FIXED_ONE, 0, 0, 0, 1 << 30)
    header = struct.pack(">IIIIII", 3, 0, 0, number, 0, samples) + bytes(16) + matrix
    size = struct.pack(">II", 64 * FIXED_ONE, 64 * FIXED_ONE)
    listed = b"".join(struct.pack(">IiI", *edit, FIXED_ONE) for edit in edits)
    cuts = box(b"edts", box(b"elst", struct.pack(">II", 0, len(edits)) + listed)) if edits else b""
    return box(b"trak", box(b"tkhd", header + size) + cuts + box(b"mdia", media))


def index(*tracks: bytes) -> bytes:
    """What a film with these tracks begins with."""
    header = box(b"mvhd", struct.pack(">IIIII", 0, 0, 0, 25, 0) + bytes(80))
    return HEAD + box(b"moov", header + b"".join(tracks))


def film(*tracks: bytes, media_bytes: int) -> bytes:
    """The whole film."""
    return index(*tracks) + box(b"mdat", bytes(media_bytes))


def of_many_samples(count: int = 9_900_000) -> bytes:
    """A film whose table of 20 bytes describes so many frames."""
    return film(track(count), media_bytes=count)


def of_many_chunks(count: int = 2_000_000) -> bytes:
    """A film with two frames in each of so many chunks."""
    return film(track(2 * count, chunks=count), media_bytes=2 * count)


def of_many_edits(tracks: int = 32, samples: int = 309_000) -> bytes:
    """A film of which every track is shown twice."""
    return film(*edited_tracks(tracks, samples), media_bytes=tracks * samples)


def edited_tracks(tracks: int, samples: int) -> list[bytes]:
    """The tracks of that film."""
    twice = ((samples, 0), (samples, 0))
    return [track(samples, edits=twice, number=number + 1) for number in range(tracks)]
