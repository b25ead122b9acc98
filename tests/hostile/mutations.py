"""Damaged copies of a film, each by a few random changes of its index."""

from __future__ import annotations

import random
from collections.abc import Iterator

INTERESTING = (0, 1, 2, 7, 8, 0x7F, 0x80, 0xFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFE, 0xFFFF_FFFF)
KINDS = (b"trak", b"moov", b"stsz", b"stco", b"co64", b"mdat", b"elst", b"stz2", b"trun", b"free")


def mutations(film: bytes, *, count: int, seed: int) -> Iterator[bytes]:
    """Copies of `film`, each with one to six changes outside its media."""
    chance = random.Random(seed)
    index = _outside_media(film)
    for _ in range(count):
        copy = bytearray(film)
        for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
            _change(copy, chance, min(chance.choice(index), len(copy) - 1))
        yield bytes(copy[: chance.randrange(len(copy))] if chance.random() < 0.02 else copy)


def _outside_media(film: bytes) -> list[int]:
    """Places of bytes in boxes of the top level other than `mdat`."""
    places: list[int] = []
    position = 0
    while position < len(film):
        size, kind = (
            int.from_bytes(film[position : position + 4], "big"),
            film[position + 4 : position + 8],
        )
        places += range(position, position + (8 if kind == b"mdat" else size))
        position += size
    return places


def _change(copy: bytearray, chance: random.Random, place: int) -> None:
    action = chance.randrange(6)
    if action == 0:
        copy[place] ^= 1 << chance.randrange(8)
    elif action == 1:
        copy[place] = chance.randrange(256)
    elif action == 2:
        copy[place : place + 4] = chance.choice(INTERESTING).to_bytes(4, "big")
    elif action == 3:
        copy[place : place + 4] = chance.choice(KINDS)
    elif action == 4:
        length = chance.choice((1, 4, 8, 12, 100))
        del copy[place : place + length]
    else:
        length = chance.choice((1, 4, 8, 12, 100))
        copy[place:place] = copy[place : place + length]
