"""What a file is, as far as its first bytes tell: noise and archives cost no run of ffprobe."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from app.video.index.movie import FIRST_BOXES

HEAD_BYTES = 64 * 1024
"""What is looked at of a file. Recordings of DVB may begin with the rest of a packet or picture."""

_NO_FILMS = (
    # ZIP, RAR, 7z, gzip, bzip2, xz, Zstandard, tar
    *((0, mark) for mark in (b"PK\3\4", b"Rar!\x1a\7", b"7z\xbc\xaf\x27\x1c", b"\x1f\x8b\x08")),
    *((0, mark) for mark in (b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd")),
    (257, b"ustar"),
    # JPEG, PNG, GIF, TIFF, WebP, PDF, and programs
    *((0, mark) for mark in (b"\xff\xd8\xff", b"\x89PNG\r\n", b"GIF8", b"II*\0", b"MM\0*")),
    *((8, b"WEBP"), (0, b"%PDF-"), (0, b"\x7fELF"), (0, b"MZ")),
)
"""Where in which files there are which bytes, as in their specifications."""

_BEGINNINGS = (
    b"\x1a\x45\xdf\xa3",  # Matroska and WebM (RFC 8794)
    *(b"RIFF", b"RF64", b"BW64", b"RIFX", b"ON2 ", b"FORM", b"caff", b"fLaC", b"OggS", b"ID3"),
    b"riff\x2e\x91\xcf\x11",  # Wave64
    b"FLV",
    *(b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", b".RMF", b".ra\xfd"),  # ASF, RealMedia
    *(b"\xb7\xd8\x00\x20\x37\x49\xda\x11", b"DKIF", b"nut/multimedia"),  # WTV, IVF, NUT
    *(b"\0\0\0\0\1\xbc", b"\x1f\x07\0"),  # GXF, DV
    *(b"\x0b\x77", b"\x77\x0b"),  # AC-3 and E-AC-3
    *(b"\x7f\xfe\x80\x01", b"\xfe\x7f\x01\x80", b"\x1f\xff\xe8\x00", b"\xff\x1f\x00\xe8"),  # DTS
    *(b"\x64\x58\x20\x25", b"\x12\0"),  # DTS-HD, AV1 as OBUs
)

_UNMARKED_EXTENSIONS = (
    *(".y4m", ".mjpeg", ".mjpg", ".bik", ".bk2", ".smk", ".nuv", ".roq", ".h261", ".h263"),
    *(".wv", ".ape", ".au", ".amr", ".tta", ".mpc"),
)
"""Of films and sound whose beginnings are not above: such files are rare, and ffprobe sees each.
A file called .mp4 that begins otherwise is none."""

_FIRST_BOXES = FIRST_BOXES | frozenset(b"junk pict udta ediw prfl meta emsg ssix prft pdin".split())
"""Kinds of boxes with which ffmpeg takes a file for MP4 or MOV."""

_ANYWHERE = (
    re.compile(rb"\x06\x0e\x2b\x34"),  # MXF, after a run-in of up to 64 KiB (SMPTE ST 377-1)
    # Start codes of MPEG-1, 2 and 4; of parameter sets, key frames and delimiters of H.264, HEVC.
    re.compile(
        rb"\x00\x00\x01[\xba\xb3\xb0\xb5\xb6\x00\x07\x09\x67\x47\x27\x65\x25\x40\x42\x44\x46\x26\x28\x2a]"
    ),
    # Packets of MPEG-TS: 188 bytes, perhaps with a time before them or a checksum after them.
    *(re.compile(rb"\x47(?:.{%d}\x47){4}" % (size - 1), re.DOTALL) for size in (188, 192, 204)),
)
"""One expression each: those that begin with a known byte take 50 us for 64 KiB."""

_FRAME = re.compile(rb"\xff[\xe2-\xff]")
"""How frames of MPEG audio and of ADTS begin, among other things."""

_FRAMES_IN_A_ROW = 3

_MOST_FRAMES = 500
"""Beginnings of frames of which what follows is looked at, in 0.4 ms: this is done in the thread
that looks for all work. 64 KiB of random bytes have thirty."""

_RATES = {
    (3, 1): (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (3, 2): (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
}
"""kbit/s in MPEG-1, by the bits for version and layer III or II (ISO/IEC 11172-3, 2.4.2.3)."""

_LOWER_RATES = (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
"""The same in MPEG-2 and 2.5, both layers (ISO/IEC 13818-3, 2.4.2.3)."""

_FREQUENCIES = (44100, 48000, 32000)
_DIVISORS = {3: 1, 2: 2, 0: 4}
"""Of the frequencies, by the bits for the version."""


def is_no_film(head: bytes, filename: str = "") -> bool:
    """Whether a file that begins with these `HEAD_BYTES` is none, so that nothing else looks at it.

    Of files of random bytes, one in a thousand seems to be a film. ffprobe takes an archive of
    songs for a song.
    """
    if filename.lower().endswith(_UNMARKED_EXTENSIONS):
        return False
    if any(head.startswith(mark, at) for at, mark in _NO_FILMS):
        return True
    return head[4:8] not in _FIRST_BOXES and not (
        head.lstrip(b"\0").startswith(_BEGINNINGS)
        or head.startswith(_BEGINNINGS)
        or any(expression.search(head) for expression in _ANYWHERE)
        or any(_are_frames(head, found.start()) for found in _first_frames(head))
    )


def _first_frames(head: bytes) -> Iterator[re.Match[bytes]]:
    return islice(_FRAME.finditer(head), _MOST_FRAMES)


def _are_frames(head: bytes, at: int) -> bool:
    """Whether several frames of sound of one kind follow each other from `at` on."""
    kind = head[at + 1] & 0xFE  # without the bit for a checksum
    for _ in range(_FRAMES_IN_A_ROW):
        if len(head) < at + 6 or head[at] != 0xFF or head[at + 1] & 0xFE != kind:
            return False
        length = _frame_bytes(head[at : at + 6])
        if length is None:
            return False
        at += length
    return True


def _frame_bytes(header: bytes) -> int | None:
    """The length of a frame of MPEG audio or ADTS; None if no frame can begin so."""
    version, layer = header[1] >> 3 & 3, header[1] >> 1 & 3
    if layer == 0:  # ADTS (ISO/IEC 13818-7, 6.2)
        length = (header[3] & 3) << 11 | header[4] << 3 | header[5] >> 5
        return length if length > 7 and header[1] >= 0xF0 else None
    rate, frequency = header[2] >> 4, header[2] >> 2 & 3
    if version == 1 or layer == 3 or not 0 < rate < 15 or frequency == 3:
        return None
    bits = 1000 * _RATES.get((version, layer), _LOWER_RATES)[rate - 1]
    samples = 576 if layer == 1 and version != 3 else 1152
    return samples // 8 * bits // (_FREQUENCIES[frequency] // _DIVISORS[version]) + (
        header[2] >> 1 & 1
    )
