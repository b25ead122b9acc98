"""Wakes the background worker: a datagram to a socket in the data folder signals new work.

Nothing depends on it: a worker that receives none polls a moment later.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

SOCKET = "media.sock"

log = logging.getLogger(__name__)


class Waker:
    """For every process that queues jobs, ends uploads or records events for webhooks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def wake(self) -> None:
        """Wake the worker, if there is one. Never blocks and never fails; takes 15 us."""
        with (
            suppress(OSError),  # No worker listens, or enough datagrams are queued already.
            _reachable(self._folder) as address,
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender,
        ):
            sender.sendto(b"!", address)


class WakeupSocket:
    """The worker's end. If several listen in one folder, the last one to open is woken."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._socket: socket.socket | None = None
        self._own_reader = self._own_writer = -1
        self.count = 0
        """How often it was woken."""

    def open(self) -> None:
        """Start listening. If the folder does not allow a socket, logs that and works without."""
        self._own_reader, self._own_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            with _reachable(self._folder) as address:
                (self._folder / SOCKET).unlink(missing_ok=True)  # Left by a killed worker.
                listener.bind(address)
        except OSError as error:
            listener.close()
            log.warning("the background worker cannot be woken: %s", error)
        else:
            self._socket = listener

    def notify(self) -> None:
        """Wake the thread that waits, since another one of the worker has committed work."""
        with suppress(OSError):
            os.write(self._own_writer, b"!")

    def wait(self, seconds: float) -> None:
        """Wait for a call of `notify` or `Waker.wake`, for at most `seconds`."""
        sources = select.poll()  # select() cannot wait for descriptors above 1023.
        sources.register(self._own_reader, select.POLLIN)
        if self._socket is not None:
            sources.register(self._socket, select.POLLIN)
        for source, _ in sources.poll(seconds * 1000):
            self.count += 1
            with suppress(BlockingIOError):
                while os.read(source, 65536):
                    pass

    def close(self) -> None:
        """Stop listening. Keeps the socket's file: it may belong to another worker by now."""
        os.close(self._own_reader)
        os.close(self._own_writer)
        if self._socket is not None:
            self._socket.close()


@contextmanager
def _reachable(folder: Path) -> Iterator[str]:
    """Yields the socket's address, through a descriptor: an address may have at most 107 bytes."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)


# ---- changes -------------------------------------------------------------------------------------

# Makes polling cheap: skips the query if no transaction has been committed.


T = TypeVar("T")


def after_changes(
    look: Callable[[], T], mark: Callable[[], object], *, longest_seconds: float
) -> Callable[[], T | None]:
    """Returns a function that calls `look`, or returns None if nothing was committed since.

    `mark` comes from `Database.change_mark`. Work may also become due with time, so `look` is
    called at least every `longest_seconds`. If it raises, or returns a true value since there may
    be more work, the next call runs it again.
    """
    seen: object = None
    again_at = 0.0

    def look_if_changed() -> T | None:
        nonlocal seen, again_at
        found = mark()  # Read before `look`, which may miss commits made while it runs.
        if found == seen and time.monotonic() < again_at:
            return None
        result = look()
        seen, again_at = None if result else found, time.monotonic() + longest_seconds
        return result

    return look_if_changed
