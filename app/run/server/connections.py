"""Connections without a thread: idle ones, and those being closed."""

from __future__ import annotations

import selectors
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache, partial
from ipaddress import IPv6Address, ip_address
from typing import Any

from gunicorn.workers.gthread import TConn

from app.ingest.connection import advised_connections
from app.settings.values import IPNetwork

LINGER_SECONDS = 10.0
LINGER_IDLE_SECONDS = 2.0
"""How long to read from a client after the last response, in total and without new bytes. nginx
has 30 s and 5 s (lingering_time, lingering_timeout)."""

DROP_BYTES = 256 * 1024
"""Size of one read from such a client; the bytes are discarded."""

NETWORK_BITS = 64
"""An IPv6 client usually has a whole /64, which counts as one address."""


class Connection(TConn):  # type: ignore[misc]
    """A client's connection that is closed without blocking its worker.

    gunicorn 27 waits up to 2 s for each client in the thread that serves all connections.
    """

    def __init__(self, worker: Any, sock: socket.socket, client: Any, server: Any) -> None:
        super().__init__(worker.cfg, sock, client, server)
        self._worker = worker
        self.address = ""
        """The key it is counted under; empty if it is not counted, as for trusted proxies."""
        self.idle_since = time.monotonic()
        self.is_closed = False

    def set_timeout(self) -> None:
        """Restart the keep-alive timeout: the last request was just answered."""
        super().set_timeout()
        self.idle_since = time.monotonic()

    def close(self, graceful: bool = False) -> None:
        """Close now or, if `graceful`, after the client had time to read the last response."""
        if graceful:
            self._worker.linger(self)
        elif not self.is_closed:
            self.is_closed = True
            super().close()
            self._worker.closed(self)


class Lingering:
    """Lingering close: after the last response, bytes from clients are discarded for a while.

    If it were closed at once, a connection with unread bytes would be reset, and its client would
    lose the response (RFC 9112, section 9.6).
    """

    def __init__(self, poller: selectors.BaseSelector, close: Callable[[Any], None]) -> None:
        self._poller = poller
        self._close = close
        self._began_at: dict[Any, float] = {}  # The oldest comes first.
        self._last_arrivals: dict[Any, float] = {}
        self._dropped = bytearray(DROP_BYTES)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the connections, longest lingering first."""
        return iter(self._began_at)

    def add(self, conn: Any) -> None:
        """Shut down the sending side, and wait for the client to do the same."""
        try:
            conn.sock.setblocking(False)
            conn.sock.shutdown(socket.SHUT_WR)
            conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
            self._poller.register(conn.sock, selectors.EVENT_READ, partial(self._drop, conn))
        except (OSError, ValueError, KeyError):  # Already closed.
            self._close(conn)
            return
        self._began_at[conn] = self._last_arrivals[conn] = time.monotonic()

    def sweep(self, longest_seconds: float = LINGER_SECONDS) -> None:
        """Close connections whose time is up."""
        now = time.monotonic()
        for conn, began_at in list(self._began_at.items()):
            idle_until = self._last_arrivals[conn] + LINGER_IDLE_SECONDS
            if now > min(began_at + longest_seconds, idle_until):
                self.end(conn)

    def end(self, conn: Any) -> None:
        """Close a connection now."""
        del self._began_at[conn], self._last_arrivals[conn]
        with suppress(OSError, KeyError, ValueError):
            self._poller.unregister(conn.sock)
        self._close(conn)

    def _drop(self, conn: Any, _socket: Any) -> None:
        if conn not in self._began_at:
            return
        try:
            count = conn.sock.recv_into(self._dropped)
        except BlockingIOError:
            return
        except OSError:
            count = 0
        if count:
            self._last_arrivals[conn] = time.monotonic()
        else:
            self.end(conn)


class AddressLimit:
    """Counts the connections of each address; `most` 0 for no limit."""

    def __init__(self, most: int, trusted: tuple[IPNetwork, ...]) -> None:
        self._most = most
        self._name = lru_cache(maxsize=4096)(partial(_counted_name, trusted=trusted))
        self._counts: Counter[str] = Counter()

    def opened(self, conn: Any) -> bool:
        """Count a connection; returns whether its address is now over the limit."""
        if self._most and isinstance(conn.client, tuple):
            conn.address = self._name(conn.client[0])
        if not conn.address:
            return False
        self._counts[conn.address] += 1
        return self._counts[conn.address] > self._most

    def advised_connections(self, conn: Any) -> int | None:
        """How many connections the client should use, to leave some for others at its address."""
        if not conn.address:
            return None  # There is no limit, or it is a proxy.
        return advised_connections(self._counts[conn.address], self._most)

    def closed(self, conn: Any) -> None:
        """Stop counting a connection."""
        if conn.address:
            self._counts[conn.address] -= 1
            if not self._counts[conn.address]:
                del self._counts[conn.address]


def _counted_name(host: str, *, trusted: tuple[IPNetwork, ...]) -> str:
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    # A dual-stack socket shows 127.0.0.1 as ::ffff:127.0.0.1.
    address = getattr(address, "ipv4_mapped", None) or address
    if any(address in network for network in trusted):
        return ""
    if isinstance(address, IPv6Address):
        return address.packed[: NETWORK_BITS // 8].hex()
    return str(address)
