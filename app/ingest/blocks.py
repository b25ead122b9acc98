"""Memory for the bytes between a socket and a file, shared by the requests of a process."""

from __future__ import annotations

import mmap
from collections import deque
from types import TracebackType

BLOCK_BYTES = 1024 * 1024
"""Size of one write. Smaller ones cost CPU (64 KiB: 0.95 s/GB, 1 MiB: 0.43, 4 MiB: 0.41), larger
ones memory."""

SMALL_BLOCK_BYTES = 64 * 1024

MOST_BLOCKS = 16
"""At most this many requests of a process hold a block at once; others get a small block."""

KEPT_BLOCKS = 4
KEPT_SMALL_BLOCKS = 16
"""Free blocks of each size that a process keeps for later requests: 5 MiB."""


class BlockPool:
    """A pool of blocks of one size. Reuses a few: fresh memory costs a page fault every 4 KiB.

    A fresh map takes only as much memory as is filled, whereas a bytearray takes all of it at
    once. A spliced body fills only what came with the headers.
    """

    def __init__(self, size: int, *, kept: int) -> None:
        self._size = size
        self._most_kept = kept
        self._kept = deque[memoryview]()

    def take(self) -> memoryview:
        """Returns a free block, preferably the most recently used one."""
        try:
            return self._kept.pop()
        except IndexError:
            # Private: by default, forked processes would share the memory of the map.
            return memoryview(mmap.mmap(-1, self._size, flags=mmap.MAP_PRIVATE))

    def give_back(self, block: memoryview) -> None:
        """Return a block to the pool, or free it if the pool is full."""
        if len(self._kept) < self._most_kept:
            self._kept.append(block)


_free_blocks = deque(range(MOST_BLOCKS))
"""One item for each block that may still be taken."""

_blocks = BlockPool(BLOCK_BYTES, kept=KEPT_BLOCKS)
_small_blocks = BlockPool(SMALL_BLOCK_BYTES, kept=KEPT_SMALL_BLOCKS)


class borrowed_block:  # noqa: N801 - reads as the statement it is used in
    """Context manager that borrows a block of at most `wanted` bytes.

    It has at most `BLOCK_BYTES`, or `SMALL_BLOCK_BYTES` while many requests hold one; with None it
    is as large as possible.
    """

    __slots__ = ("_block", "_is_small", "_pool", "_wanted")

    def __init__(self, wanted: int | None, pool: BlockPool = _blocks) -> None:
        self._wanted = wanted
        self._pool = pool

    def __enter__(self) -> memoryview:
        is_small = self._wanted is not None and self._wanted <= SMALL_BLOCK_BYTES
        self._is_small = is_small or not _has_free_block()
        try:
            self._block = (_small_blocks if self._is_small else self._pool).take()
        except BaseException:
            self._let_next()
            raise
        return self._block[: self._wanted]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        (_small_blocks if self._is_small else self._pool).give_back(self._block)
        self._let_next()

    def _let_next(self) -> None:
        if not self._is_small:
            _free_blocks.append(0)


def _has_free_block() -> bool:
    """Take one of the free blocks; False if there is none."""
    try:
        _free_blocks.pop()
    except IndexError:
        return False
    return True
