"""gunicorn's threaded worker, extended for slow clients.

Each request has a thread. At most `threads` readers and as many writers run at once; a request that
waits for its client to send or to read does not count, so a thousand slow uploads do not block
others. Headers have a deadline. A connection without a request, before the first or after the last
one, has no thread, and is closed to free a connection when the worker is full.
"""

from __future__ import annotations

import errno
import gc
import math
import os
import select
import selectors
import signal
import socket
import ssl
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from contextlib import suppress
from functools import cached_property, lru_cache, partial
from ipaddress import IPv6Address, ip_address
from threading import Lock
from typing import TYPE_CHECKING, Any

from gunicorn.workers.gthread import TConn, ThreadWorker

from app.ingest.connection import advised_connections, advising, break_off
from app.ingest.slots import SAFE_METHODS, Slots, holding
from app.ingest.source import SOURCE_KEY, BodySource
from app.ingest.websocket import INNER_KEY
from app.run.server.inner_requests import LogAccess, RunningInside
from app.run.server.logs import without_codes
from app.run.server.request_threads import RequestThreads
from app.settings import from_env
from app.settings.values import IPNetwork

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

HEADER_SECONDS = 30.0
"""Timeout from the first byte of a request to the end of its headers, and from the start of a
connection to its first byte. gunicorn has no such limit: a client that sends a byte of its headers
every few seconds would hold its thread forever (slowloris)."""

RECEIVE_TIME_OUT = struct.pack("@ll", math.ceil(2 * HEADER_SECONDS), 0)
"""Never reached, because headers and bodies have deadlines of their own."""

PROMPT_SECONDS = 1.0
"""Clients send the first bytes of a connection, and their headers, faster than this. Slower ones
are closed when the worker is full."""

SILENT_STOP_SECONDS = 2.0
"""While a worker stops: timeout of a new connection for its first byte (gunicorn's value for
keep-alive connections), and how long a client that still sends is read from after its last
response."""

CHECKPOINT_SECONDS = 5.0
"""A stopping worker stops reading bodies this long before its deadline, to store and record the
received bytes. At most half of `graceful_timeout`."""

SWEEP_SECONDS = 0.25
"""How often deadlines are checked."""

REPORT_SECONDS = 60.0
"""How often an address at its limit may be logged."""

FOLLOW_SECONDS = 0.02
"""How long a thread stays with its connection after a response, without a slot. An active client
sends its next request at once. Passing each request from thread to thread, as gunicorn does, costs
0.17 of the CPU time of a range of 64 KiB, and 0.1 of that of a chunk of 64 KiB."""

GONE = frozenset({errno.ENOTCONN, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EBADF})

NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

NONE_ARRIVED = frozenset({errno.EAGAIN, errno.ECONNABORTED})


class PatientWorker(ThreadWorker):  # type: ignore[misc]
    """Waits for slow clients without delaying others. Overridden hooks call gunicorn's own."""

    header_seconds = HEADER_SECONDS
    follow_seconds = FOLLOW_SECONDS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        settings = from_env(os.environ)
        self._addresses = AddressLimit(settings.connections_per_address, settings.trusted_proxies)
        self._silent: dict[Any, float] = {}  # Deadlines; oldest connection first.
        self._reading_headers: dict[Any, float] = {}
        self._swept_at = self._reported_at = float("-inf")
        self._stores_at = float("inf")

    @cached_property
    def _lingering(self) -> Lingering:
        return Lingering(self.poller, self._let_go)

    def init_signals(self) -> None:
        """Signals to all processes of a terminal or service must not end requests abruptly."""
        super().init_signals()
        for number in (signal.SIGHUP, signal.SIGUSR2, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGQUIT, self.handle_exit)

    def get_thread_pool(self) -> Executor:
        """Threads are created on demand, at most `worker_connections`."""
        return RequestThreads()

    def load_wsgi(self) -> None:
        """Load the application; runs once, before requests are served."""
        super().load_wsgi()
        gc.freeze()  # Garbage collection skips the program's own objects.
        self._slots = SlotTaking(
            self.wsgi, self.cfg.threads, log=self.log.access, is_ending=lambda: not self.alive
        )
        self.wsgi: Any = self._slots

    def handle(self, conn: Any) -> Any:
        """Handle a request, and those that follow immediately on its connection, in a thread."""
        outcome = self._handle_one(conn)
        while outcome is True and self.alive:
            if not conn.parser.unreader.buf.tell():  # Nothing of the next request has arrived.
                poll = select.poll()
                poll.register(conn.sock, select.POLLIN)
                if not poll.poll(self.follow_seconds * 1000):
                    break
            outcome = self._handle_one(conn)
        return outcome

    def _handle_one(self, conn: Any) -> Any:
        self._reading_headers[conn] = time.monotonic() + self.header_seconds
        try:
            outcome = super().handle(conn)
            if outcome is True and isinstance(conn.sock, ssl.SSLSocket):
                # Decrypted bytes of the next request are invisible to poll(). In gunicorn's buffer,
                # they make the thread continue at once.
                unreader = conn.parser.unreader
                if not unreader.buf.tell() and (count := conn.sock.pending()):
                    unreader.unread(conn.sock.recv(count))
            return outcome
        finally:
            self._reading_headers.pop(conn, None)

    def handle_request(self, req: Any, conn: Any) -> Any:
        """Runs in the same thread, once the headers have arrived."""
        self._reading_headers.pop(conn, None)
        try:
            with advising(partial(self._advised_connections, conn)):
                return super().handle_request(req, conn)
        except OSError as error:
            kinds = (ConnectionError, TimeoutError, BlockingIOError, ssl.SSLError)
            if not isinstance(error, kinds) and error.errno not in GONE:
                raise  # Of a file, and not of the connection or the client.
            # gunicorn would log a traceback, and answer some TLS errors in mid-response.
            path = without_codes(req.path)
            self.log.info("Client left its answer: %s %s (%r)", req.method, path, error)
            return False

    def _advised_connections(self, conn: Any) -> int | None:
        """How many connections the client should use. Idle ones can be closed, and do not count."""
        busy = self.nr_conns - len(self.keepalived_conns)
        advice = (
            advised_connections(busy, self.worker_connections),
            self._addresses.advised_connections(conn),
        )
        return min((each for each in advice if each is not None), default=None)

    def _keepalive_after(self, conn: Any, keepalive: Any) -> bool:
        """Whether to keep the connection alive; runs in the same thread, after the response.

        The response has already announced it: see `app.http.proxy`. gunicorn 27 would send a second
        response, 400, if an unread body proved malformed here.
        """
        try:
            return bool(super()._keepalive_after(conn, keepalive))
        except Exception as error:  # noqa: BLE001 - gunicorn's errors have no common ancestor.
            self.log.debug("Closing connection. %s", error)
            return False

    def is_parent_alive(self) -> bool:
        """Runs about once a second in the main thread; without its parent the worker stops.

        gunicorn's version only leaves its loop; the threads would serve their clients forever.
        """
        if super().is_parent_alive():
            return True
        self.alive = False
        return False

    # ---- In the main thread, which waits for no client ------------------------------------------

    def accept(self, listener: Any) -> None:
        """Accept a connection; it gets a thread once its first bytes have arrived.

        In gunicorn it gets one at once, which waits 5 s for them.
        """
        try:
            sock, client = listener.accept()
        except OSError as error:
            if error.errno in NO_DESCRIPTORS:
                self._close_idle()
            elif error.errno not in NONE_ARRIVED:
                raise
            return
        # The listener's timeout is for gunicorn's own worker; here it would log a traceback.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, RECEIVE_TIME_OUT)
        conn = Connection(self, sock, client, listener.getsockname())
        conn.data_ready = True
        self.nr_conns += 1
        if self._addresses.opened(conn) and not self._close_idle(conn.address):
            self._report_crowd(conn.address)
            self._let_go(conn)
            return
        try:
            has_begun = conn.sock.recv(1, socket.MSG_PEEK)  # As is usual.
        except OSError:  # Not yet, or the connection broke: the poller detects it.
            has_begun = b""
        if has_begun:
            self.enqueue_req(conn)
            return
        self._silent[conn] = time.monotonic() + self.header_seconds
        self.poller.register(conn.sock, selectors.EVENT_READ, partial(self._on_first_bytes, conn))

    def _on_first_bytes(self, conn: Any, sock: socket.socket) -> None:
        if self._silent.pop(conn, None) is not None:
            self.poller.unregister(sock)
            self.enqueue_req(conn)

    def on_client_socket_readable(self, conn: Any, client: Any) -> None:
        """Serve the next request on a keep-alive connection, unless it was just closed."""
        if not conn.is_closed:
            super().on_client_socket_readable(conn, client)

    def linger(self, conn: Any) -> None:
        """Lingering close of a connection, which the caller no longer counts."""
        self.nr_conns += 1
        self._lingering.add(conn)

    def closed(self, conn: Any) -> None:
        """Called when a connection has been closed."""
        self._addresses.closed(conn)

    def _let_go(self, conn: Any) -> None:
        self.nr_conns -= 1
        conn.close()

    def set_accept_enabled(self, enabled: bool) -> None:
        """Release the port at once when the worker stops.

        gunicorn 27 holds it until the last request has ended: connections would queue in vain, and
        a new server could not bind the port.
        """
        super().set_accept_enabled(enabled)
        if not enabled and not self.alive:
            for listener in self.sockets:
                listener.close()

    def murder_pending(self) -> None:
        """Runs after each round of events, and at least about once a second."""
        if self.nr_conns >= self.worker_connections and not self._close_idle():
            self._end_slowest_headers()
        now = time.monotonic()
        if now < self._swept_at + SWEEP_SECONDS:
            return
        self._swept_at = now
        self._lingering.sweep(LINGER_SECONDS if self.alive else SILENT_STOP_SECONDS)
        hurry = 0.0 if self.alive else self.header_seconds - SILENT_STOP_SECONDS
        for conn, deadline in list(self._silent.items()):
            if now < deadline - hurry:
                break
            self._close_silent(conn)
        if not self.alive:
            self._store_what_arrived(now)
        for conn, deadline in list(self._reading_headers.items()):
            if now > deadline:
                _stop_reading(conn)

    def _store_what_arrived(self, now: float) -> None:
        """Stop reading bodies that are still arriving when a stopping worker must store them.

        Their clients see a broken connection and resume on another worker or node; a kill would
        lose the bytes after the last checkpoint.
        """
        if self._stores_at == float("inf"):
            limit = self.cfg.graceful_timeout
            self._stores_at = now + limit - min(CHECKPOINT_SECONDS, limit / 2)
        if now >= self._stores_at:
            self._slots.break_off_bodies()

    def _close_idle(self, address: str | None = None) -> bool:
        """Close the longest idle connection, of one address or of any; False if there is none.

        First those that linger after their last response, then those that never sent a byte. New
        connections have time for their first bytes.
        """
        latest = time.monotonic() - PROMPT_SECONDS
        for conns, close in (
            (self._lingering, self._lingering.end),
            (self._silent, self._close_silent),
            (self.keepalived_conns, self._close_kept),
        ):
            for conn in conns:
                if conn.idle_since < latest and address in {None, conn.address}:
                    close(conn)
                    return True
        return False

    def _close_silent(self, conn: Any) -> None:
        del self._silent[conn]
        self._close_polled(conn)

    def _close_kept(self, conn: Any) -> None:
        self.keepalived_conns.remove(conn)
        self._close_polled(conn)

    def _close_polled(self, conn: Any) -> None:
        with suppress(OSError, KeyError, ValueError):
            self.poller.unregister(conn.sock)
        self._let_go(conn)

    def _end_slowest_headers(self) -> None:
        limit = time.monotonic() + self.header_seconds - PROMPT_SECONDS
        for conn, deadline in list(self._reading_headers.items()):
            if deadline < limit:
                self._reading_headers.pop(conn, None)
                _stop_reading(conn)
                return

    def _report_crowd(self, address: str) -> None:
        now = time.monotonic()
        if now > self._reported_at + REPORT_SECONDS:
            self._reported_at = now
            self.log.warning(
                "Refusing connections of %s, which has %d open, the most for one address. If it is "
                "a proxy of yours, add it to SLUICE_TRUSTED_PROXIES.",
                address,
                self._addresses.most,
            )


def _stop_reading(conn: Any) -> None:
    """Interrupt the read of the thread that serves the connection."""
    with suppress(OSError):
        conn.sock.shutdown(socket.SHUT_RD)


class SlotTaking:
    """Middleware: limits how many requests run at once, separately for reads and writes.

    Writers wait for the disk, and readers should not wait for them. A request that waits for its
    client or for another request yields its slot. Responses are sent without one. A request with an
    `Upgrade` header can run others inside it, each with a slot of its own.
    """

    def __init__(
        self, app: WSGIApplication, count: int, *, log: LogAccess, is_ending: Callable[[], bool]
    ) -> None:
        self._app = app
        self._inside = partial(RunningInside, self, log=log, is_ending=is_ending)
        self._reading = Slots(count)
        self._writing = Slots(count)
        self._writes: dict[int, dict[str, Any]] = {}
        self._ending = Lock()

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Run the request once a slot is free."""
        if "HTTP_UPGRADE" in environ:
            environ[INNER_KEY] = self._inside(environ)
        if environ["REQUEST_METHOD"] in SAFE_METHODS:
            with holding(self._reading):
                return self._app(environ, start_response)
        key = id(environ)
        self._writes[key] = environ
        try:
            with holding(self._writing):
                return self._app(environ, start_response)
        finally:
            with self._ending:
                del self._writes[key]

    def break_off_bodies(self) -> None:
        """Shut down the connections of requests whose bodies are still arriving."""
        with self._ending:  # Afterwards a connection may already serve its next request.
            for environ in list(self._writes.values()):
                source: BodySource | None = environ.get(SOURCE_KEY)
                if source is not None and source.remaining != 0:
                    break_off(environ)


# ---- connections without a thread: idle ones, and those being closed -----------------------------

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
        self.most = most
        self._name = lru_cache(maxsize=4096)(partial(_counted_name, trusted=trusted))
        self._counts: Counter[str] = Counter()

    def opened(self, conn: Any) -> bool:
        """Count a connection; returns whether its address is now over the limit."""
        if self.most and isinstance(conn.client, tuple):
            conn.address = self._name(conn.client[0])
        if not conn.address:
            return False
        self._counts[conn.address] += 1
        return self._counts[conn.address] > self.most

    def advised_connections(self, conn: Any) -> int | None:
        """How many connections the client should use, to leave some for others at its address."""
        if not conn.address:
            return None  # There is no limit, or it is a proxy.
        return advised_connections(self._counts[conn.address], self.most)

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
