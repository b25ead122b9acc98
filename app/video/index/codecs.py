"""Names of codecs as players ask for them: the `codecs` parameter of RFC 6381.

The formats of the parameters: ISO/IEC 14496-15, annex E (AVC, HEVC), "AV1 Codec ISO Media File
Format Binding", section 5, "VP Codec ISO Media File Format Binding", RFC 6381, section 3.3 (mp4a).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app.video.index.boxes import Box, Fields, full_box

AAC_OBJECT_TYPE, MP3_OBJECT_TYPE = 0x40, 0x6B

_NAMES = {"Opus": "opus", "fLaC": "flac", "mp3": "mp4a.6B", "ms\0U": "mp4a.6B"}
_ES_DESCRIPTOR, _DECODER_CONFIG, _DECODER_SPECIFIC = 3, 4, 5
_HEVC_PROFILE_SPACES = ("", "A", "B", "C")

Configuration = Mapping[bytes, Box]
"""The boxes within a sample entry, by kind."""


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """What an `esds` box says (ISO/IEC 14496-1, section 7.2.6)."""

    object_type: int
    specific: memoryview


def codec_name(kind: bytes, boxes: Configuration) -> str:
    """The name of a sample entry's codec; its four characters where no longer form is known."""
    rule = _RULES.get(kind)
    if rule is None:
        return _plain_name(kind)
    box = boxes.get(rule.box)
    return rule.name(_plain_name(kind), Fields(box.payload)) if box else _plain_name(kind)


def decoder_config(esds: Fields) -> DecoderConfig:
    """The decoder configuration in an `esds` box."""
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
    return DecoderConfig(object_type, specific)


def mp3_configuration() -> bytes:
    """An `esds` box for MP3, which has no parameters."""
    decoder = bytes((MP3_OBJECT_TYPE, 0x15)) + bytes(11)  # a stream of sound; rates unknown
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


def audio_object_type(specific: memoryview) -> int:
    """The first field of an AudioSpecificConfig (ISO/IEC 14496-3, section 1.6.2.1)."""
    if len(specific) < 2:
        return 2  # AAC LC, the only one that leaves its configuration out
    first = specific[0] >> 3
    return first if first < 31 else 32 + ((specific[0] & 7) << 3 | specific[1] >> 5)


def _plain_name(kind: bytes) -> str:
    name = kind.decode("latin-1").strip("\0 .")
    return _NAMES.get(name, name)


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
    config = decoder_config(fields)
    if config.object_type == AAC_OBJECT_TYPE:
        return f"{name}.40.{audio_object_type(config.specific)}"
    return f"{name}.{config.object_type:02X}"


def _mpeg4_visual(name: str, fields: Fields) -> str:
    config = decoder_config(fields)
    start = bytes(config.specific[:5])
    if config.object_type == 0x20 and start.startswith(b"\0\0\1\xb0") and len(start) == 5:
        return f"{name}.20.{start[4]}"
    return f"{name}.{config.object_type:02X}"


def _dolby_vision(name: str, fields: Fields) -> str:
    fields.take(2)  # version
    profile_and_level = fields.unsigned(2)
    return f"{name}.{profile_and_level >> 9:02}.{profile_and_level >> 3 & 0x3F:02}"


@dataclass(frozen=True, slots=True)
class _Rule:
    """The box that holds a codec's parameters, and how its name is made from them."""

    box: bytes
    name: Callable[[str, Fields], str]


_RULES: Mapping[bytes, _Rule] = {
    b"avc1": _Rule(b"avcC", _avc),
    b"avc3": _Rule(b"avcC", _avc),
    b"hvc1": _Rule(b"hvcC", _hevc),
    b"hev1": _Rule(b"hvcC", _hevc),
    b"dvh1": _Rule(b"dvcC", _dolby_vision),
    b"dvhe": _Rule(b"dvcC", _dolby_vision),
    b"av01": _Rule(b"av1C", _av1),
    b"vp08": _Rule(b"vpcC", _vp),
    b"vp09": _Rule(b"vpcC", _vp),
    b"mp4a": _Rule(b"esds", _mpeg4_audio),
    b"mp4v": _Rule(b"esds", _mpeg4_visual),
}
