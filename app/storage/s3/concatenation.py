"""Gives a file the bytes of others; those still in pieces are shared, without a copy."""

from __future__ import annotations

from collections.abc import Sequence

from app.core.pieces import spans_of_pieces
from app.core.ranges import ByteRange
from app.storage.base import BytesLost
from app.storage.s3.pieces import PieceReader, PieceStore


def concatenate(store: PieceStore, key: str, sources: Sequence[tuple[str, int]]) -> None:
    """Give a file the pieces of others, given with their lengths. Repeatable.

    Those that are one object already are read and put again. Raises `BytesLost` if one of the
    others is missing.
    """
    file = store.catalog.require(key)
    if file.name is not None or store.has_all(key, sum(length for _, length in sources)):
        return
    shared, position = list[tuple[str, int]](), 0
    for source_key, length in sources:
        if store.catalog.require(source_key).name is not None:
            _put_again(store, key, source_key, length, position)
        elif store.has_all(source_key, length):
            shared.append((source_key, position))
        else:
            raise BytesLost(source_key)
        position += length
    store.catalog.share(key, shared)


def _put_again(store: PieceStore, key: str, source_key: str, length: int, position: int) -> None:
    """Put bytes of another file as pieces; its first byte is the one at `position`."""
    with PieceReader(store, source_key, length) as source:
        for span in spans_of_pieces(ByteRange(0, length), length):
            with store.spools.open(span.start) as spool:
                spool.fill(source, span.length)
                moved = ByteRange(position + span.start, position + span.end)
                piece = store.put(key, moved, spool.slice(span))
            store.catalog.add_alone(key, [piece])
