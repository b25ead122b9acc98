"""Gives a file the bytes of others; those still in pieces are shared, without a copy."""

from __future__ import annotations

from collections.abc import Sequence

from app.core.pieces import StoredFile, spans_of_pieces
from app.core.ranges import ByteRange
from app.storage.base import BytesLost
from app.storage.s3.pieces import PieceReader, PieceStore


def concatenate(store: PieceStore, key: str, sources: Sequence[tuple[str, int]]) -> None:
    """Give a file the pieces of others, given with their lengths. Repeatable.

    Those that are one object already are read and put again. Does nothing if the file is one object
    already. Raises `BytesLost` if one of the others is missing.
    """
    total = sum(length for _, length in sources)
    if store.catalog.require(key).name is not None or store.has_all(key, total):
        return
    try:
        _take(store, key, sources)
    except BytesLost:
        # Another request may have finished this and removed the sources. Check for pieces first:
        # they are deleted when the file becomes one object.
        if not store.has_all(key, total) and store.catalog.require(key).name is None:
            raise


def _take(store: PieceStore, key: str, sources: Sequence[tuple[str, int]]) -> None:
    shared, position = list[tuple[str, int]](), 0
    for source_key, length in sources:
        source = store.catalog.require(source_key)
        if source.name is not None:
            _put_again(store, key, source, length, position)
        elif store.has_all(source_key, length):
            shared.append((source_key, position))
        else:
            raise BytesLost(source_key)
        position += length
    store.catalog.share(key, shared)


def _put_again(store: PieceStore, key: str, source: StoredFile, length: int, position: int) -> None:
    """Put the first `length` bytes of another file as pieces, from `position` on."""
    with PieceReader(store, source.key, source.length) as file:
        for span in spans_of_pieces(ByteRange(0, length), length):
            with store.spools.open(span.start) as spool:
                spool.fill(file, span.length)
                moved = ByteRange(position + span.start, position + span.end)
                piece = store.put(key, moved, spool.slice(span))
            store.catalog.add_alone(key, [piece])
