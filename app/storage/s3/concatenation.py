"""Gives a file the bytes of others, without a copy where these are whole pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.core.pieces import Piece, Taken, is_whole, spans_of_pieces
from app.core.ranges import ByteRange, RangeSet
from app.storage.base import BytesLost
from app.storage.s3.pieces import PieceReader, PieceStore


def concatenate(store: PieceStore, key: str, sources: Sequence[tuple[str, int]]) -> None:
    """Give a file the pieces of others, given with their lengths. Repeatable.

    Objects that hold other bytes as well are read and put again. Raises `BytesLost` if one of the
    others is missing.
    """
    file = store.catalog.require(key)
    length = sum(length for _, length in sources)
    if file.name is not None or store.has_all(key, length):
        return
    shared, position = dict[str, list[Piece]](), 0
    for source_key, source_length in sources:
        for piece, span in _taken_of(store, source_key, source_length):
            if is_whole((piece, span)) and piece.crc32c:
                moved = ByteRange(position + span.start, position + span.end)
                shared.setdefault(source_key, []).append(replace(piece, id=0, span=moved))
            else:
                _put_again(store, key, source_key, span, position)
        position += source_length
    store.catalog.share(key, shared)


def _taken_of(store: PieceStore, key: str, length: int) -> list[Taken]:
    """Where all bytes of a file are; raises `BytesLost` if some are missing."""
    whole, file = ByteRange(0, length), store.catalog.require(key)
    if file.name is not None:
        return [(Piece(0, whole, file.name, ""), whole)]
    found = [*store.all_taken(key, 0, length)]
    if not RangeSet.of(span for _, span in found).covers(whole):
        raise BytesLost(key)
    return found


def _put_again(
    store: PieceStore, key: str, source_key: str, span: ByteRange, position: int
) -> None:
    """Put bytes of another file as pieces; its first byte is the one at `position`."""
    file = store.catalog.require(source_key)
    with PieceReader(store, source_key, file.length) as source:
        for part in spans_of_pieces(span, length=span.end):
            source.seek(part.start)
            with store.spools.open(part.start) as spool:
                spool.fill(source, part.length)
                moved = ByteRange(position + part.start, position + part.end)
                piece = store.put(key, moved, spool.slice(part))
            store.catalog.add_alone(key, [piece])
