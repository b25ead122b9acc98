"""Blocks shared by the requests of a process."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack

import pytest

from app.ingest.copy import (
    BLOCK_BYTES,
    KEPT_BLOCKS,
    MOST_BLOCKS,
    SMALL_BLOCK_BYTES,
    BlockPool,
    borrowed_block,
)


@pytest.fixture
def pool() -> BlockPool:
    """A fresh pool of blocks."""
    return BlockPool(BLOCK_BYTES, kept=KEPT_BLOCKS)


@pytest.mark.parametrize(
    ("wanted", "size"),
    [(None, BLOCK_BYTES), (1 << 40, BLOCK_BYTES), (SMALL_BLOCK_BYTES + 1,) * 2, (10, 10), (0, 0)],
)
def test_a_block_is_as_long_as_wanted_up_to_the_block_size(wanted: int | None, size: int) -> None:
    with borrowed_block(wanted) as block:
        assert len(block) == size


def test_beside_many_others_a_request_gets_a_small_block() -> None:
    with ExitStack() as stack:
        for _ in range(MOST_BLOCKS):
            assert len(stack.enter_context(borrowed_block(None))) == BLOCK_BYTES
        assert len(stack.enter_context(borrowed_block(None))) == SMALL_BLOCK_BYTES
    with borrowed_block(None) as block:
        assert len(block) == BLOCK_BYTES


def test_a_block_is_reused_even_after_an_error(pool: BlockPool) -> None:
    def fail() -> None:
        with borrowed_block(None, pool) as block:
            block[:4] = b"mark"
            raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        fail()
    with borrowed_block(None, pool) as block:
        assert bytes(block[:4]) == b"mark"


def test_a_failed_borrow_does_not_use_up_a_block(
    monkeypatch: pytest.MonkeyPatch, pool: BlockPool
) -> None:
    def fail() -> memoryview:
        raise MemoryError

    with monkeypatch.context() as full:
        full.setattr(pool, "take", fail)
        for _ in range(MOST_BLOCKS):
            with pytest.raises(MemoryError), borrowed_block(None, pool):
                pass
    with borrowed_block(None, pool) as block:
        assert len(block) == BLOCK_BYTES


def test_processes_do_not_share_a_block() -> None:
    script = (
        "import os\n"
        "from app.ingest.copy import borrowed_block\n"
        "with borrowed_block(None) as block:\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        block[:4] = b'mark'\n"
        "        os._exit(0)\n"
        "    os.waitpid(child, 0)\n"
        "    assert bytes(block[:4]) == bytes(4)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_only_a_few_of_many_blocks_are_kept(pool: BlockPool) -> None:
    with ExitStack() as stack:
        for _ in range(MOST_BLOCKS):
            stack.enter_context(borrowed_block(None, pool))[:4] = b"mark"
    taken = [pool.take() for _ in range(MOST_BLOCKS)]
    assert sum(bytes(block[:4]) == b"mark" for block in taken) == KEPT_BLOCKS
