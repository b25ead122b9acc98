"""Chunked bodies with faults, made from a grammar, and what a strict reader says of each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from random import Random

CRLF = b"\r\n"

SIZE_FAULTS = (
    *(b"%x ", b" %x", b"\t%x", b"+%x", b"-%x", b"0x%x", b"%x_0", b"%xg", b"%x\x00", b"\x00%x"),
    *(b"%x\r", b"%x\n", b"%x\n0", b"000000000000000%x", b"%x,0", b"%x\xd9\xa3", b"%x.0", b"\xef%x"),
)
EXTENSION_FAULTS = (b";a\rb", b";a\nb", b";a\x00b", b" a", b";a\r\r", b";\x7f", b';a="\n0\r"')
LINE_END_FAULTS = (b"", b"\n", b"\r", b"\n\r", b"\r\r\n", b"\x00\r\n", b" \r\n", b"\n\n")
TRAILER_FAULTS = (
    *(b"no colon", b"A : b", b" folded: x", b"A: b\n", b"A: b\rC: d", b"A: \x00", b": b"),
    *(b"Content-Length: 3", b"Transfer-Encoding: chunked", b"Host: elsewhere"),
)
EXTENSIONS = (b";a", b";a=b", b' ; a = "b c"')
TRAILERS = (b"A: b", b"X-Checksum: 1")

HEADER_FAULTS = (
    b"Transfer-Encoding: chunked\r\nContent-Length: %d",
    b"Content-Length: %d\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding: chunked, chunked",
    b"Transfer-Encoding: xchunked",
    b"Transfer-Encoding : chunked",
    b"Transfer-Encoding: chunked, identity",
    b"Transfer-Encoding: \x0bchunked",
    b"Transfer-Encoding:\n chunked",
    b"Transfer_Encoding: chunked\r\nContent-Length: 0%d\r\nContent-Length: 1",
    b"Content-Length: +%d",
    b"Content-Length: %d, %d",
    b"Content-Length: 0x%x",
    b"Content-Length: -%d",
    b"Content-Length: %d\r\nContent-Length: 0",
)
"""Each leaves the length of the body ambiguous."""

_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?\r\n")
_TRAILER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*\r\n")
_FORBIDDEN = re.compile(rb"(?i)(content-length|transfer-encoding|host|trailer|authorization):")


@dataclass(frozen=True)
class Shape:
    """A body as tokens; between any two of them its sender may pause."""

    tokens: tuple[bytes, ...]

    @property
    def body(self) -> bytes:
        """The whole body."""
        return b"".join(self.tokens)


def random_shape(random: Random, payload: bytes, faults: int) -> Shape:
    """`payload` in chunks, with some of the tokens replaced by faulty ones."""
    tokens: list[tuple[str, bytes]] = []
    for piece in _cut(random, payload):
        tokens += [("size", b"%x" % len(piece)), ("extension", _sometimes(random, EXTENSIONS))]
        tokens += [("end", CRLF), ("data", piece), ("end", CRLF)]
    tokens += [("size", b"0"), ("extension", _sometimes(random, EXTENSIONS)), ("end", CRLF)]
    trailer = _sometimes(random, TRAILERS)
    tokens += [("trailer", trailer), ("end", CRLF if trailer else b""), ("end", CRLF)]
    for _ in range(faults):
        index = random.randrange(len(tokens))
        tokens[index] = "spoilt", _spoil(random, *tokens[index])
    return Shape(tuple(token for _, token in tokens if token))


def _cut(random: Random, payload: bytes) -> list[bytes]:
    cuts = sorted(random.randrange(len(payload) + 1) for _ in range(random.randrange(3)))
    edges = [0, *cuts, len(payload)]
    pieces = [payload[start:end] for start, end in pairwise(edges)]
    return [piece for piece in pieces if piece]


def _sometimes(random: Random, choices: tuple[bytes, ...]) -> bytes:
    return random.choice(choices) if random.random() < 0.2 else b""


def _spoil(random: Random, kind: str, token: bytes) -> bytes:
    if kind == "size":
        return random.choice(SIZE_FAULTS).replace(b"%x", token)
    if kind == "extension":
        return random.choice(EXTENSION_FAULTS)
    if kind == "end":
        return random.choice(LINE_END_FAULTS)
    if kind == "trailer":
        return random.choice(TRAILER_FAULTS)
    return random.choice([token[:-1], token + b"x", token + CRLF, b""])


class Malformed(Exception):
    """No reader may continue after such a body."""


def end_of_body(data: bytes) -> int | None:
    """Where the chunked body at the start of `data` ends; None if it goes on, or `Malformed`."""
    position = 0
    while CRLF in data[position:]:
        match = _SIZE_LINE.match(data, position)
        if match is None:
            raise Malformed
        size, position = int(match[1], 16), match.end()
        if size == 0:
            return _end_of_trailers(data, position)
        position += size
        if not CRLF.startswith(data[position : position + 2]):
            raise Malformed
        position += 2
    return None


def _end_of_trailers(data: bytes, position: int) -> int | None:
    if data.startswith(CRLF, position):
        return position + 2
    end = data.find(CRLF + CRLF, position)
    if end < 0:
        return None
    while position < end:
        match = _TRAILER.match(data, position)
        if match is None or _FORBIDDEN.match(data, position):
            raise Malformed
        position = match.end()
    return end + 4
