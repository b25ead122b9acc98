"""Films whose index is far more work to read than it has bytes.

They are small MP4 files that claim to contain millions of samples, chunks or edits; the media is
zeros.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tests.video.rewritten import FIXED_ONE, box

HEAD = box(b"ftyp", b"isom" + bytes(4))

_CONFIGURATION = box(b"avcC", b"\1\x42\0\x1e\xff\xe1\0\0\1\0\0")
_DESCRIPTION = box(
    b"stsd",
    struct.pack(">II", 0, 1)
    + box(b"avc1", bytes(24) + bytes((1, 64, 0, 64)) + bytes(50) + _CONFIGURATION),
)

_AAC_LC = b"\3\x19\0\1\0\4\x11\x40\x15" + bytes(11) + b"\5\2\x12\x08"
"""Descriptors of AAC LC, 44.1 kHz, one channel (ISO/IEC 14496-1, 7.2.6; 14496-3, 1.6.2.1)."""

_SOUND_DESCRIPTION = box(
    b"stsd",
    struct.pack(">II", 0, 1)
    + box(
        b"mp4a",
        struct.pack(">6xH8xHHII", 1, 1, 16, 0, 44_100 << 16) + box(b"esds", bytes(4) + _AAC_LC),
    ),
)

RATE = 25
"""Ticks a second of the film, and frames a second."""


def track(
    samples: int,
    *,
    chunks: int = 1,
    edits: Sequence[tuple[int, int]] = (),
    number: int = 1,
    more_tables: bytes = b"",
) -> bytes:
    """The `trak` of a video with frames of a byte, all of them key frames, at 25 a second.

    An edit is a duration and where it begins, in frames. `more_tables` may say otherwise.
    """
    tables = more_tables + _DESCRIPTION + _times((samples, 1))
    tables += box(b"stsz", struct.pack(">III", 0, 1, samples))
    tables += _chunks(-(-samples // chunks), chunks)
    media = _media(b"vide", box(b"vmhd", bytes(12)), tables, timescale=RATE)
    return _track(media, edits=edits, number=number)


def sound(
    *runs: tuple[int, int],
    timescale: int = 44_100,
    edits: Sequence[tuple[int, int]] = (),
    number: int = 1,
) -> bytes:
    """The `trak` of sound in AAC with packets of a byte.

    A run is how many packets there are, and how many ticks of `timescale` each lasts. Durations of
    edits are in 1/25 s.
    """
    samples = sum(count for count, _ in runs)
    tables = _SOUND_DESCRIPTION + _times(*runs) + _chunks(samples)
    tables += box(b"stsz", struct.pack(">III", 0, 1, samples))
    media = _media(b"soun", box(b"smhd", bytes(8)), tables, timescale=timescale)
    return _track(media, edits=edits, number=number)


def _times(*runs: tuple[int, int]) -> bytes:
    rows = b"".join(struct.pack(">II", *run) for run in runs)
    return box(b"stts", struct.pack(">II", 0, len(runs)) + rows)


def _chunks(samples: int, count: int = 1) -> bytes:
    """So many chunks, all of them where the media begins, with so many samples in each."""
    places = struct.pack(">II", 0, count) + struct.pack(">I", 64) * count
    return box(b"stsc", struct.pack(">IIIII", 0, 1, 1, samples, 1)) + box(b"stco", places)


def _media(handler: bytes, header: bytes, tables: bytes, *, timescale: int) -> bytes:
    media = box(b"mdhd", struct.pack(">IIIIIHH", 0, 0, 0, timescale, 0, 0x55C4, 0))
    media += box(b"hdlr", bytes(8) + handler + bytes(13))
    return box(b"mdia", media + box(b"minf", header + box(b"stbl", tables)))


def _track(media: bytes, *, edits: Sequence[tuple[int, int]], number: int) -> bytes:
    matrix = struct.pack(">9i", FIXED_ONE, 0, 0, 0, FIXED_ONE, 0, 0, 0, 1 << 30)
    header = struct.pack(">IIIIII", 3, 0, 0, number, 0, 0) + bytes(16) + matrix
    size = struct.pack(">II", 64 * FIXED_ONE, 64 * FIXED_ONE)
    listed = b"".join(struct.pack(">IiI", *edit, FIXED_ONE) for edit in edits)
    cuts = box(b"edts", box(b"elst", struct.pack(">II", 0, len(edits)) + listed)) if edits else b""
    return box(b"trak", box(b"tkhd", header + size) + cuts + media)


def index(*tracks: bytes) -> bytes:
    """What a film with these tracks begins with."""
    header = box(b"mvhd", struct.pack(">IIIII", 0, 0, 0, RATE, 0) + bytes(80))
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


def of_sound_that_is_almost_counted_by_chunks(samples: int = 9_900_000) -> bytes:
    """A film whose sound begins like PCM of one tick a sample, and then has longer ones."""
    return film(sound((1, 1), (samples - 1, 2)), media_bytes=samples)


def of_late_sound(tracks: int = 1, *, packet: int = 1024, seconds: int = 3000) -> bytes:
    """A film with tracks of four packets of `packet` ticks of 1/44100 s, that begin so late."""
    edits = ((seconds * RATE, -1), (0, 0))
    traks = (sound((4, packet), edits=edits, number=number + 1) for number in range(tracks))
    return film(*traks, media_bytes=100)


def of_many_edits(tracks: int = 32, samples: int = 309_000) -> bytes:
    """A film of which every track is shown twice."""
    return film(*edited_tracks(tracks, samples), media_bytes=tracks * samples)


def edited_tracks(tracks: int, samples: int) -> list[bytes]:
    """The tracks of that film."""
    twice = ((samples, 0), (samples, 0))
    return [track(samples, edits=twice, number=number + 1) for number in range(tracks)]
