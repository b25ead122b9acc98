"""Copies a body into a spool that grows as bytes arrive."""

from __future__ import annotations

import random
from collections.abc import Callable

from app.core.errors import ServerBusy
from app.core.ranges import ByteRange
from app.ingest.copy import BodyLimits, FileCopy
from app.ingest.source import BodySource, Watch
from app.storage.s3.spool import Spool

SHORT_PATIENCE = 0.3
"""How long bytes wait for room before they are stored as a piece, as a share of a new spool's time.
A piece costs a request and must be read again."""


class SpoolCopy:
    """Copies the bytes of a span of a file as far as there is room for them.

    When no more room is free, it calls `store_and_tell` to store the bytes, and reuses their room.
    Without `store_and_tell` the bytes must stay, so it waits and then raises `ServerBusy`. Copies
    that wait for each other use random timeouts, so that one fails and the others continue.
    """

    def __init__(
        self,
        spool: Spool,
        limits: BodyLimits,
        store_and_tell: Callable[[], None] | None = None,
    ) -> None:
        self._spool = spool
        self._start = spool.base
        self._store_and_tell = store_and_tell
        self._copy = FileCopy(spool.descriptor, spool.place(spool.room), limits)

    @property
    def position(self) -> int:
        """Position in the file at which the copied bytes end."""
        return self._spool.base + self._copy.position

    @property
    def spooled(self) -> int:
        """Number of bytes in the spool."""
        return self._copy.position

    def run(self, source: BodySource, watch: Watch) -> None:
        """Like `FileCopy.run`."""

        def watch_and_grow() -> None:
            self._spool.note_written(self._copy.position)
            watch()
            if self._copy.is_full and self.position < self._spool.end:
                self._go_on()

        try:
            self._copy.run(source, watch_and_grow)
        finally:
            self._spool.note_written(self._copy.position)

    def begin_again(self) -> None:
        """Continue in the room of bytes that have been stored."""
        self._spool.begin_again(self.position)
        self._copy.move_to(self._spool.place(self._spool.room))

    def _go_on(self) -> None:
        if self._spool.grow(self._patience()):
            room = self._spool.place(self._spool.room)
            self._copy.move_to(ByteRange(self._copy.position, room.end))
        elif self._store_and_tell is None:
            raise ServerBusy("The server waits for its store to take what has arrived.")
        else:
            self._store_and_tell()
            self.begin_again()

    def _patience(self) -> float:
        if self._store_and_tell is None:
            return random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        return SHORT_PATIENCE if self._spool.base == self._start else 0.0
