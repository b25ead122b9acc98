"""Reads a remote file in blocks, and keeps the last few."""

from __future__ import annotations

from collections import OrderedDict
from io import RawIOBase

BLOCK_BYTES = 256 * 1024
"""Indexes are read in pieces of a few bytes to some hundred KiB, mostly near each other."""

KEPT_BLOCKS = 16


class Blocks:
    """A reader of a file in a bucket; long reads bypass the cached blocks."""

    def __init__(self, file: RawIOBase) -> None:
        self._file = file
        self._blocks: OrderedDict[int, bytes] = OrderedDict()

    def read_at(self, offset: int, count: int) -> bytes:
        """So many bytes; fewer at the end of the file."""
        if count > BLOCK_BYTES:
            return read_fully(self._file, offset, count)
        found, end = b"", offset + count
        while offset < end:
            number, skipped = divmod(offset, BLOCK_BYTES)
            piece = self._block(number)[skipped : skipped + end - offset]
            if not piece:
                break
            found, offset = found + piece, offset + len(piece)
        return found

    def _block(self, number: int) -> bytes:
        block = self._blocks.get(number)
        if block is None:
            block = read_fully(self._file, number * BLOCK_BYTES, BLOCK_BYTES)
            self._blocks[number] = block
            if len(self._blocks) > KEPT_BLOCKS:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end(number)
        return block


def read_fully(file: RawIOBase, offset: int, count: int) -> bytes:
    """So many bytes of a file from an offset, in as many reads as it takes; fewer at its end."""
    file.seek(offset)
    blocks = []
    while count > 0 and (block := file.read(count)):
        blocks.append(block)
        count -= len(block)
    return b"".join(blocks)
