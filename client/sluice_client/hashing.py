"""Computes the SHA-256 of a whole file during the transfer instead of after it."""

from __future__ import annotations

import hashlib
import threading

from sluice_client.errors import Interrupted, SluiceError
from sluice_client.local_file import READ_BYTES, read_at


class BackgroundHash:
    """Hashes a file in its own thread, never beyond the byte it may read.

    An upload lets it read slightly ahead of what is being sent, so that each byte is read from the
    disk once and from the page cache the second time. A download lets it read what has arrived.
    """

    def __init__(self, descriptor: int, length: int, stop: threading.Event) -> None:
        self._descriptor = descriptor
        self._length = length
        self._stop = stop
        self._allowed = 0
        self._digest = hashlib.sha256()
        self._error: SluiceError | None = None
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="sha256", daemon=True)
        self._thread.start()

    def allow(self, position: int) -> None:
        """Bytes before `position` may be read."""
        with self._changed:
            self._allowed = max(self._allowed, min(position, self._length))
            self._changed.notify()

    def result(self) -> str:
        """The digest in hexadecimal, once everything is read; raises any error of reading."""
        self.allow(self._length)
        while self._thread.is_alive():
            self._thread.join(0.1)
            if self._stop.is_set():
                raise Interrupted("Stopped while computing the checksum.")
        if self._error is not None:
            raise self._error
        return self._digest.hexdigest()

    def close(self) -> None:
        """End the thread, whose descriptor is about to be closed."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        position = 0
        try:
            while position < self._length:
                end = self._await_allowance(position)
                if end is None:
                    return
                block = read_at(self._descriptor, min(READ_BYTES, end - position), position)
                self._digest.update(block)
                position += len(block)
        except SluiceError as error:
            self._error = error

    def _await_allowance(self, position: int) -> int | None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._allowed > position)
            return None if self._is_closed else self._allowed
