"""Reads from a client's socket and lets other requests run while it waits."""

from __future__ import annotations

import fcntl
import os
import select
import socket
import termios
from types import TracebackType

from app.core.errors import BodyTruncated
from app.ingest.slots import without_slot
from app.ingest.source import FEW_BYTES, IDLE_TICK_SECONDS
from app.ingest.stages import Stage, stage

WAIT_BYTES = 1024 * 1024
"""A thread is not woken for less, unless it wants less or a tick is over. A client on a slow link
sends a packet or two at a time, and each would cost as much as a full block. Compared with waiting
for 256 KiB, 20 MiB over loopback took 0.93 of the CPU time, and 20 MB over 100 ms 0.72. If a
receive buffer (`tcp_rmem`) cannot grow beyond 1 MiB, connections with a round-trip time of 40 ms
lose a third of their rate; with 6 MiB, Linux's default, they lose nothing."""

_TICK_MILLISECONDS = int(IDLE_TICK_SECONDS * 1000)


class ClientSocket:
    """A blocking socket that is read only when there is something to read.

    The socket stays blocking: settimeout() would make its descriptor non-blocking, which rules
    out splice(). A blocking recv() would wait for as many bytes as poll() was asked to.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._awaited = 1
        self._is_wide = False
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)

    def wait(self, count: int) -> bool:
        """Whether bytes, or the end of the connection, arrived within a tick.

        `count` is how many bytes are wanted; the client is going to send all of them.
        """
        self._await_bytes(min(WAIT_BYTES, count) if count > FEW_BYTES else 1)
        if self._poll.poll(0):
            return True
        with stage(Stage.RECEIVE), without_slot():
            found = self._poll.poll(_TICK_MILLISECONDS)
        return bool(found) or self._has_any

    def recv(self, count: int) -> bytes:
        """At most `count` of the bytes waited for; none at the end of the connection."""
        with stage(Stage.RECEIVE), _connection_errors():
            return self._socket.recv(count, socket.MSG_DONTWAIT)

    def recv_into(self, buffer: memoryview) -> int:
        """Like `recv`, into a buffer."""
        with stage(Stage.RECEIVE), _connection_errors():
            return self._socket.recv_into(buffer, 0, socket.MSG_DONTWAIT)

    def splice(self, pipe: int, count: int) -> int:
        """Like `recv`, into a pipe."""
        with stage(Stage.RECEIVE), _connection_errors():
            return os.splice(self._socket.fileno(), pipe, count)

    def release(self) -> None:
        """Make the socket readable again at a single byte."""
        self._await_bytes(1)

    def _await_bytes(self, count: int) -> None:
        if count == self._awaited:
            return
        if count > FEW_BYTES and not self._is_wide:
            self._set_low_water_mark(WAIT_BYTES)
            self._is_wide = True
        self._set_low_water_mark(count)
        self._awaited = count

    def _set_low_water_mark(self, count: int) -> None:
        """Set how many bytes make the socket readable (SO_RCVLOWAT).

        If the receive window is smaller, the kernel sets its limit to `count` (`tcp_set_rcvlowat`).
        Up to Linux 6.15 the limit then grows as bytes arrive; later versions leave it there while
        the bytes wait to be read. A form that is read in blocks of 256 KiB got no more than one of
        them for each round trip, so the limit is raised to `WAIT_BYTES` first.
        """
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)

    @property
    def _has_any(self) -> bool:
        nothing = bytes(4)
        return fcntl.ioctl(self._socket, termios.FIONREAD, nothing) != nothing


class _connection_errors:  # noqa: N801 - reads as the statement it is used in
    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, OSError):
            raise BodyTruncated("The connection broke while the body arrived.") from error
