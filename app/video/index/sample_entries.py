"""Sample entries: the codec of a track (ISO/IEC 14496-12, section 8.5.2, and QuickTime)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from app.video.index.boxes import Box, Fields, box, boxes_in, children, damaged, full_box

TrackKind = Literal["video", "audio", "text", "other"]
HighDynamicRange = Literal["pq", "hlg"]

KINDS: Mapping[bytes, TrackKind] = {
    b"vide": "video",
    b"soun": "audio",
    b"text": "text",
    b"sbtl": "text",
    b"subt": "text",
    b"clcp": "text",
}
"""Track kinds by handler (section 8.4.3)."""

_QUICKTIME_MP3 = (b".mp3", b"ms\0U")
_VISUAL_FIELDS = 78
_SOUND_1_FIELDS, _SOUND_2_FIELDS = 16, 36
_TRANSFERS: Mapping[int, HighDynamicRange] = {16: "pq", 18: "hlg"}
_DOLBY_VISION = (b"dvh1", b"dvhe")
_DOLBY_CHANNELS = (2, 1, 2, 3, 3, 4, 4, 5)


@dataclass(frozen=True, slots=True)
class SampleEntry:
    """A sample entry; fields that do not apply to the kind of track are 0 or None."""

    fourcc: str
    """Such as "avc1"."""
    codec: str
    """RFC 6381 codec name, such as "avc1.64001f"."""
    box: bytes
    width: int = 0
    """Pixels as coded, before `pixel_aspect` and rotation."""
    height: int = 0
    pixel_aspect: Fraction = Fraction(1)
    hdr: HighDynamicRange | None = None
    """HDR transfer function; None for SDR."""
    channels: int = 0
    sample_rate: int = 0


def read_sample_entry(stsd: memoryview, kind: TrackKind) -> SampleEntry:
    """The first entry of an `stsd` box, which describes all samples of nearly every track."""
    fields = Fields(stsd)
    version, _ = fields.version_and_flags()
    fields.unsigned(4)  # number of entries
    entry = next(boxes_in(fields.rest()), None)
    if entry is None:
        raise damaged("a track does not say what it contains")
    fourcc, raw = entry.kind.decode("latin-1"), bytes(entry.raw)
    if kind == "video":
        fields = Fields(entry.payload)
        fields.take(24)
        width, height = fields.unsigned(2), fields.unsigned(2)
        fields.take(_VISUAL_FIELDS - 28)
        boxes = children(fields.rest())
        pixel_aspect = _pixel_aspect(boxes.get(b"pasp"))
        hdr: HighDynamicRange | None = "pq" if entry.kind in _DOLBY_VISION else None
        colours = boxes[b"colr"].payload if b"colr" in boxes else memoryview(b"")
        if len(colours) >= 8 and not hdr and bytes(colours[:4]) in {b"nclx", b"nclc"}:
            # The transfer characteristics (section 12.1.5; ITU-T H.273, table 3).
            hdr = _TRANSFERS.get(int.from_bytes(colours[6:8], "big"))
        codec = codec_name(entry.kind, boxes)
        return SampleEntry(fourcc, codec, raw, width, height, pixel_aspect, hdr)
    if kind == "audio":
        sound = SoundEntry.read(entry, is_quicktime=version == 0)
        channels, sample_rate = sound.channels, sound.sample_rate
        for box_kind, (shortest, layout) in _LAYOUTS.items():
            found = sound.boxes.get(box_kind)
            if found and len(found.payload) >= shortest:
                own_channels, own_rate = layout(found.payload)
                channels, sample_rate = own_channels or channels, own_rate or sample_rate
        codec = codec_name(entry.kind, sound.boxes)
        return SampleEntry(fourcc, codec, raw, channels=channels, sample_rate=sample_rate)
    return SampleEntry(fourcc, codec_name(entry.kind, {}), raw)


def plain_description(stsd: memoryview, kind: TrackKind) -> bytes | memoryview:
    """The payload of an `stsd` box without QuickTime extensions.

    Browsers reject such audio in fragments: versions 1 and 2, and `.mp3`.
    """
    fields = Fields(stsd)
    version, _ = fields.version_and_flags()
    fields.unsigned(4)  # number of entries
    entry = next(boxes_in(fields.rest()), None)
    if kind != "audio" or entry is None:
        return stsd
    sound = SoundEntry.read(entry, is_quicktime=version == 0)
    if sound.is_plain and entry.kind not in _QUICKTIME_MP3:
        return stsd
    # The ISO form of the entry (section 12.2.3), with the boxes that configure its decoder.
    is_mp3 = sound.kind in _QUICKTIME_MP3
    parts = [sound.boxes[kind].raw for kind in _LAYOUTS if kind in sound.boxes]
    rate = sound.sample_rate if sound.sample_rate < 1 << 16 else 0
    plain = box(
        b"mp4a" if is_mp3 else sound.kind,
        bytes(6),
        b"\0\1",  # the first data reference
        bytes(8),
        sound.channels.to_bytes(2, "big"),
        b"\0\x10",  # bits per sample, without meaning
        bytes(4),
        (rate << 16).to_bytes(4, "big"),
        *([mp3_configuration()] if is_mp3 else parts),
    )
    return b"".join((bytes(4), b"\0\0\0\1", plain))


def _pixel_aspect(pasp: Box | None) -> Fraction:
    """Width of a pixel divided by its height (section 12.1.4)."""
    if pasp is None or len(pasp.payload) < 8:
        return Fraction(1)
    across, down = struct.unpack(">II", pasp.payload[:8])
    return Fraction(across, down) if across and down else Fraction(1)


@dataclass(frozen=True, slots=True)
class SoundEntry:
    """An ISO or QuickTime audio sample entry, versions 0 to 2."""

    kind: bytes
    channels: int
    sample_rate: int
    is_plain: bool
    """Whether it has the fields of ISO version 0, which every player can read."""
    boxes: Configuration

    @classmethod
    def read(cls, entry: Box, *, is_quicktime: bool) -> SoundEntry:
        """Reads an entry; `is_quicktime` sets the meaning of versions other than 0."""
        fields = Fields(entry.payload)
        fields.take(8)
        version = fields.unsigned(2)
        fields.take(6)
        channels = fields.unsigned(2)
        fields.take(6)
        sample_rate = fields.unsigned(4) >> 16
        if is_quicktime and version == 1:
            fields.take(_SOUND_1_FIELDS)
        elif is_quicktime and version == 2:
            rate, channels = struct.unpack(">4xdI20x", fields.take(_SOUND_2_FIELDS))
            sample_rate = int(rate) if 0 < rate < 1 << 32 else 0
            channels = channels if channels < 1 << 16 else 0  # ISO has 16 bits for them
        boxes = children(fields.rest())
        is_plain = version == 0 and b"wave" not in boxes
        if b"wave" in boxes:  # QuickTime puts the boxes here that ISO has directly in the entry
            boxes = children(boxes[b"wave"].payload) | boxes
        return cls(entry.kind, channels, sample_rate, is_plain, boxes)


def _aac_layout(esds: memoryview) -> tuple[int, int]:
    object_type, specific = decoder_config(Fields(esds))
    if object_type != AAC_OBJECT_TYPE or len(specific) < 2:
        return 0, 0
    bits = int.from_bytes(specific[:2], "big")
    if bits >> 11 == 31 or bits >> 7 & 0xF == 15:  # the fields are at other positions
        return 0, 0
    configured = bits >> 3 & 0xF
    return (8 if configured == 7 else configured), 0


def _opus_layout(dops: memoryview) -> tuple[int, int]:
    return dops[1], 0


def _ac3_layout(dac3: memoryview) -> tuple[int, int]:
    bits = int.from_bytes(dac3[:3], "big")
    return _DOLBY_CHANNELS[bits >> 11 & 7] + (bits >> 10 & 1), 0


def _eac3_layout(dec3: memoryview) -> tuple[int, int]:
    bits = int.from_bytes(dec3[:5], "big")
    return _DOLBY_CHANNELS[bits >> 9 & 7] + (bits >> 8 & 1), 0


def _flac_layout(dfla: memoryview) -> tuple[int, int]:
    bits = int.from_bytes(dfla[18:21], "big")  # within STREAMINFO (RFC 9639, section 8.2)
    return (bits >> 1 & 7) + 1, bits >> 4


def _alac_layout(alac: memoryview) -> tuple[int, int]:
    return alac[13], int.from_bytes(alac[24:28], "big")


_LAYOUTS: Mapping[bytes, tuple[int, Callable[[memoryview], tuple[int, int]]]] = {
    b"esds": (0, _aac_layout),
    b"dOps": (2, _opus_layout),
    b"dac3": (3, _ac3_layout),
    b"dec3": (5, _eac3_layout),
    b"dfLa": (21, _flac_layout),
    b"alac": (28, _alac_layout),
}
"""Boxes with channels and sample rate, 0 if they do not say: their shortest form, and a reader."""


# ---- codecs --------------------------------------------------------------------------------------

# Codec names for players: the `codecs` parameter of RFC 6381.
#
# The formats of the parameters: ISO/IEC 14496-15, annex E (AVC, HEVC), "AV1 Codec ISO Media File
# Format Binding", section 5, "VP Codec ISO Media File Format Binding", RFC 6381, section 3.3
# (mp4a).


AAC_OBJECT_TYPE, MP3_OBJECT_TYPE = 0x40, 0x6B

_NAMES = {"Opus": "opus", "fLaC": "flac", "mp3": "mp4a.6B", "ms\0U": "mp4a.6B"}
_ES_DESCRIPTOR, _DECODER_CONFIG, _DECODER_SPECIFIC = 3, 4, 5
_HEVC_PROFILE_SPACES = ("", "A", "B", "C")

Configuration = Mapping[bytes, Box]
"""The boxes within a sample entry, by kind."""


def codec_name(kind: bytes, boxes: Configuration) -> str:
    """The codec name of a sample entry; its fourcc if no longer form is known."""
    name = kind.decode("latin-1").strip("\0 .")
    name = _NAMES.get(name, name)
    wanted, named = _RULES.get(kind, (b"", None))
    return named(name, Fields(boxes[wanted].payload)) if named and wanted in boxes else name


def decoder_config(esds: Fields) -> tuple[int, memoryview]:
    """The object type and the specific part of the decoder configuration in an `esds` box.

    ISO/IEC 14496-1, section 7.2.6.
    """
    esds.version_and_flags()
    stream = _descriptor(esds, _ES_DESCRIPTOR)
    stream.unsigned(2)  # its id
    flags = stream.unsigned(1)
    if flags & 0x80:
        stream.take(2)  # the stream it depends on
    if flags & 0x40:
        stream.take(stream.unsigned(1))  # URL
    if flags & 0x20:
        stream.take(2)  # the stream of its clock
    decoder = _descriptor(stream, _DECODER_CONFIG)
    object_type = decoder.unsigned(1)
    decoder.take(12)  # type of the stream, size of its buffer, bit rates
    specific = (
        _descriptor(decoder, _DECODER_SPECIFIC).rest() if decoder.remaining else memoryview(b"")
    )
    return object_type, specific


def mp3_configuration() -> bytes:
    """An `esds` box for MP3, which has no parameters."""
    decoder = bytes((MP3_OBJECT_TYPE, 0x15)) + bytes(11)  # an audio stream; rates unknown
    stream = bytes(3) + bytes((_DECODER_CONFIG, len(decoder))) + decoder + b"\6\1\2"
    return full_box(b"esds", 0, 0, bytes((_ES_DESCRIPTOR, len(stream))), stream)


def _descriptor(fields: Fields, wanted: int) -> Fields:
    """The contents of the next descriptor tagged `wanted`; empty if there is none."""
    while fields.remaining:
        tag, length = fields.unsigned(1), 0
        for _ in range(4):
            byte = fields.unsigned(1)
            length = length << 7 | byte & 0x7F
            if byte < 0x80:
                break
        contents = fields.take(min(length, fields.remaining))
        if tag == wanted:
            return Fields(contents)
    return Fields(memoryview(b""))


def _avc(name: str, fields: Fields) -> str:
    fields.unsigned(1)  # version of the configuration
    return f"{name}.{fields.take(3).hex()}"


def _hevc(name: str, fields: Fields) -> str:
    fields.unsigned(1)  # version of the configuration
    profile = fields.unsigned(1)
    compatible = int(f"{fields.unsigned(4):032b}"[::-1], 2)
    constraints = bytes(fields.take(6)).rstrip(b"\0")
    tier = "H" if profile & 0x20 else "L"
    space = _HEVC_PROFILE_SPACES[profile >> 6]
    parts = [name, f"{space}{profile & 0x1F}", f"{compatible:X}", f"{tier}{fields.unsigned(1)}"]
    return ".".join(parts + [f"{byte:X}" for byte in constraints])


def _av1(name: str, fields: Fields) -> str:
    fields.unsigned(1)  # marker and version of the configuration
    profile_and_level, flags = fields.unsigned(1), fields.unsigned(1)
    depth = 8 if not flags & 0x40 else 12 if flags & 0x20 else 10
    tier = "H" if flags & 0x80 else "M"
    return f"{name}.{profile_and_level >> 5}.{profile_and_level & 0x1F:02}{tier}.{depth:02}"


def _vp(name: str, fields: Fields) -> str:
    fields.version_and_flags()
    profile, level = fields.unsigned(1), fields.unsigned(1)
    return f"{name}.{profile:02}.{level:02}.{fields.unsigned(1) >> 4:02}"


def _mpeg4_audio(name: str, fields: Fields) -> str:
    object_type, specific = decoder_config(fields)
    if object_type != AAC_OBJECT_TYPE:
        return f"{name}.{object_type:02X}"
    # The first field of an AudioSpecificConfig (ISO/IEC 14496-3, section 1.6.2.1). Only AAC LC, of
    # type 2, may omit its configuration.
    audio_type = specific[0] >> 3 if len(specific) >= 2 else 2
    if audio_type == 31:
        audio_type = 32 + ((specific[0] & 7) << 3 | specific[1] >> 5)
    return f"{name}.40.{audio_type}"


def _mpeg4_visual(name: str, fields: Fields) -> str:
    object_type, specific = decoder_config(fields)
    start = bytes(specific[:5])
    if object_type == 0x20 and start.startswith(b"\0\0\1\xb0") and len(start) == 5:
        return f"{name}.20.{start[4]}"
    return f"{name}.{object_type:02X}"


def _dolby_vision(name: str, fields: Fields) -> str:
    fields.take(2)  # version
    profile_and_level = fields.unsigned(2)
    return f"{name}.{profile_and_level >> 9:02}.{profile_and_level >> 3 & 0x3F:02}"


_RULES: Mapping[bytes, tuple[bytes, Callable[[str, Fields], str]]] = {
    b"avc1": (b"avcC", _avc),
    b"avc3": (b"avcC", _avc),
    b"hvc1": (b"hvcC", _hevc),
    b"hev1": (b"hvcC", _hevc),
    b"dvh1": (b"dvcC", _dolby_vision),
    b"dvhe": (b"dvcC", _dolby_vision),
    b"av01": (b"av1C", _av1),
    b"vp08": (b"vpcC", _vp),
    b"vp09": (b"vpcC", _vp),
    b"mp4a": (b"esds", _mpeg4_audio),
    b"mp4v": (b"esds", _mpeg4_visual),
}
"""The box with a codec's parameters, and the function that builds its name from them."""
