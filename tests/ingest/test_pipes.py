"""Pipes that are kept for the next body."""

from __future__ import annotations

import os
from collections import deque
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from app.core.errors import BodyTruncated
from app.ingest import copy
from app.ingest.copy import Pipe, empty_pipe


@pytest.fixture
def idle() -> deque[Pipe]:
    """No idle pipes yet."""
    return deque[Pipe]()


def test_an_empty_pipe_is_reused(idle: deque[Pipe]) -> None:
    with empty_pipe(idle) as first:
        pass
    with empty_pipe(idle) as second:
        assert second is first
    first.close()


def test_a_pipe_is_not_kept_after_an_error(idle: deque[Pipe]) -> None:
    with suppress(BodyTruncated), empty_pipe(idle) as pipe:
        os.write(pipe.writer, b"left over")
        raise BodyTruncated
    assert not idle
    assert not Path(f"/proc/self/fd/{pipe.reader}").exists()


def test_a_pipe_that_is_too_small_is_not_kept(idle: deque[Pipe]) -> None:
    with empty_pipe(idle, size=os.sysconf("SC_PAGE_SIZE")) as pipe:
        assert pipe.size < copy.USEFUL_PIPE_BYTES
    assert not idle


def test_only_a_few_of_many_pipes_are_kept(idle: deque[Pipe]) -> None:
    with ExitStack() as stack:
        pipes = [stack.enter_context(empty_pipe(idle)) for _ in range(copy.KEPT_PIPES + 4)]
    useful = [pipe for pipe in pipes if pipe.size >= copy.USEFUL_PIPE_BYTES]
    assert len(idle) == min(copy.KEPT_PIPES, len(useful))
    for pipe in idle:
        pipe.close()
