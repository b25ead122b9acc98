"""Bodies read no faster than their senders' shares of the bandwidth limit."""

from __future__ import annotations

import time

from app.ingest.line import Line
from app.ingest.slots import without_slot
from app.ingest.source import BodySource, SpliceSource, Watch, no_watch

TICK_SECONDS = 0.25
"""Longest sleep, after which the request checks whether it should end."""


def paced(source: BodySource, line: Line, sender: str) -> BodySource:
    """The same body, read no faster than its sender's share of the bandwidth limit."""
    slot = line.slot(sender)
    if isinstance(source, SpliceSource):
        return _PacedSplice(source, source, line, slot)
    return _Paced(source, line, slot)


class _Paced:
    """A body whose reads wait for the sender's turn."""

    def __init__(self, source: BodySource, line: Line, slot: int) -> None:
        self._source = source
        self._line = line
        self._slot = slot

    @property
    def remaining(self) -> int | None:
        """Bytes still to come; None if unknown."""
        return self._source.remaining

    @property
    def is_verified_at_end(self) -> bool:
        """Same as the wrapped source."""
        return self._source.is_verified_at_end

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Read some bytes; None after a short wait if it is not the sender's turn."""
        if not self.may_go_on():
            return None
        count = self._source.readinto(buffer[: self._line.quantum()])
        if count:
            self._line.took(self._slot, count)
        return count

    def finish(self, watch: Watch = no_watch, /) -> None:
        """Finish the wrapped source."""
        self._source.finish(watch)

    def may_go_on(self) -> bool:
        """Whether it is the sender's turn, perhaps after a short sleep."""
        wait = self._line.wait_seconds(self._slot)
        if wait:
            with without_slot():
                time.sleep(min(wait, TICK_SECONDS))
        return wait <= TICK_SECONDS


class _PacedSplice(_Paced, SpliceSource):
    """A paced body that can be spliced, without a copy in user space."""

    def __init__(self, source: BodySource, spliced: SpliceSource, line: Line, slot: int) -> None:
        super().__init__(source, line, slot)
        self._spliced = spliced

    @property
    def can_splice(self) -> bool:
        """Same as the wrapped source."""
        return self._spliced.can_splice

    def wait(self, count: int) -> bool:
        """Wait for the sender's turn, then for its bytes."""
        return self.may_go_on() and self._spliced.wait(min(count, self._line.quantum()))

    def splice_into(self, pipe: int, count: int) -> int:
        """Move as many bytes as the sender may send now."""
        moved = self._spliced.splice_into(pipe, min(count, self._line.quantum()))
        if moved:
            self._line.took(self._slot, moved)
        return moved
