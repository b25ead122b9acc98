"""Requests to one server over kept-alive connections; one error tree for all failures."""

from __future__ import annotations

import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from requests.utils import select_proxy
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError, MaxRetryError, NameResolutionError, NewConnectionError

from sluice_client.congestion import BBR, CongestionControl, congestion_control
from sluice_client.connections import BOUNDS, BOUNDS_OF_BBR, Bounds
from sluice_client.errors import ConnectionFailed, KeyRefused, Refused, SluiceError, problem_of
from sluice_client.line_state import OpenSockets
from sluice_client.local_file import FileSlice
from sluice_client.options import Options
from sluice_client.rate_limit import RateLimit
from sluice_client.retry import Patience

SEND_BLOCK_BYTES = 64 * 1024
"""Python's timeout covers a whole `sendall`. A block must be small enough to be sent within it on a
slow connection, or a working connection is taken for a dead one."""

UNSENT_BYTES = 256 * 1024
"""What the kernel may hold unsent. With megabytes in there (its default) the progress shown runs
minutes ahead of a slow connection, and a stall is noticed minutes late."""

NOTSENT_LOWAT = getattr(socket, "TCP_NOTSENT_LOWAT", 25 if sys.platform == "linux" else None)

HAS_SENDFILE = sys.platform == "linux"
"""Others have a call of that name whose short counts mean something else."""

KEEPALIVE_IDLE_SECONDS = 10
KEEPALIVE_PROBES = 4
"""While we wait for an answer, only the kernel's probes notice that the other side is gone."""

MOST_RETRY_AFTER_SECONDS = 600.0

_DROP_UNSENT = struct.pack("ii", 1, 0)
"""`struct linger`: on, for no time."""

T = TypeVar("T")

SocketOption = tuple[int, int, int | bytes]


class AbortHandle:
    """Ends a request from another thread: it then raises `ConnectionFailed`."""

    def __init__(self) -> None:
        self._adapter: _Adapter | None = None
        self._lock = threading.Lock()

    def abort(self) -> None:
        """Shut its connection down, unless the request has ended."""
        with self._lock:
            if self._adapter is not None:
                self._adapter.shut_down()

    @contextmanager
    def during(self, session: requests.Session, url: str) -> Iterator[None]:
        """A request of the session runs."""
        with self._lock:
            self._adapter = cast("_Adapter", session.get_adapter(url))
        try:
            yield
        finally:
            with self._lock:
                self._adapter = None


class Transport:
    """Sends requests; raises `ConnectionFailed` or `Refused`. Safe to use from several threads.

    `on_wait` gets a sentence before each wait, unless the job has its own listener. `has_heard`
    says whether any request was answered or has failed; `has_kept_bytes` whether the next run would
    find bytes of a transfer.
    """

    def __init__(self, options: Options, stop: threading.Event) -> None:
        self.base_url = options.server
        self.options = options
        self.stop = stop
        self.on_wait: Callable[[str], None] = lambda _note: None
        self.has_heard = False
        self.has_kept_bytes = False
        self.sockets = OpenSockets()
        self.rate_limit = RateLimit(options.limit_rate, stop.wait)
        self.congestion_control = congestion_control(options.congestion_control)
        self._idle: list[requests.Session] = []
        self._made = 0
        self._is_closed = False
        self._lock = threading.Lock()

    @property
    def bounds(self) -> Bounds:
        """How many connections are of use with this congestion control."""
        return BOUNDS_OF_BBR if self.congestion_control.name.startswith(BBR) else BOUNDS

    @property
    def first_connections(self) -> int:
        """How many to begin with."""
        return min(self.bounds.first, self.options.parallel)

    def close(self) -> None:
        """Close every connection that is not in use, and those in use after it."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for session in idle:
            session.close()

    def patience(self) -> Patience:
        """A new limit on the time without progress, for one job."""
        return Patience(self.options.give_up_seconds, self.stop, on_wait=self.on_wait)

    def request(self, method: str, path: str, **arguments: Any) -> requests.Response:
        """One try. `arguments` are those of `stream`; the body of the answer is read."""
        with self.stream(method, path, **arguments) as response:
            with _network_errors():
                response.content  # noqa: B018 - reads it while errors of the network are translated
            return response

    @contextmanager
    def stream(
        self, method: str, path: str, *, handle: AbortHandle | None = None, **arguments: Any
    ) -> Iterator[requests.Response]:
        """One try, with the body of the answer still to be read; `handle` may end it."""
        arguments.setdefault("timeout", self._timeouts())
        with (
            self._session() as session,
            handle.during(session, self.base_url) if handle else nullcontext(),
        ):
            try:
                with _network_errors():
                    response = session.request(
                        method,
                        self.base_url + path,
                        stream=True,
                        allow_redirects=False,
                        **arguments,
                    )
            finally:
                self.has_heard = True
            try:
                _raise_for_status(response)
                with _network_errors():
                    yield response
            finally:
                response.close()

    def json(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        """The object in the answer to a request, retried as long as that may help."""
        return self.patiently(lambda: json_object(self.request(method, path, **arguments)))

    def patiently(self, attempt: Callable[[], T], patience: Patience | None = None) -> T:
        """What `attempt` returns, retried as long as that may help."""
        patience = patience or self.patience()
        failures = 0
        while True:
            try:
                return attempt()
            except SluiceError as error:
                failures += 1
                patience.wait_after(error, failures)

    def open_ahead(self, count: int) -> None:
        """Have so many connections soon: each would begin with a round trip, with TLS with two."""
        with self._lock:
            missing = [self._new_session() for _ in range(count - self._made)]
        for session in missing:
            threading.Thread(
                target=self._open, args=(session,), name="connection", daemon=True
            ).start()

    def _open(self, session: requests.Session) -> None:
        with suppress(requests.RequestException, HTTPError, OSError):  # A request will say why.
            request = session.prepare_request(requests.Request("GET", self.base_url))
            found = session.merge_environment_settings(request.url, {}, None, None, None)
            if not select_proxy(self.base_url, found["proxies"]):
                adapter: Any = session.get_adapter(self.base_url)
                adapter.open(request, verify=found["verify"], cert=found["cert"])
        self._keep(session)

    def _timeouts(self) -> tuple[float, float]:
        """For sending a block, and for the answer; in seconds."""
        return self.options.stall_seconds, self.options.answer_seconds

    @contextmanager
    def _session(self) -> Iterator[requests.Session]:
        """A session for this thread alone, with a live connection if there is one."""
        with self._lock:
            session = self._idle.pop() if self._idle else self._new_session()
        try:
            yield session
        finally:
            self._keep(session)

    def _keep(self, session: requests.Session) -> None:
        with self._lock:
            is_kept = not self._is_closed
            if is_kept:
                self._idle.append(session)
        if not is_kept:
            session.close()

    def _new_session(self) -> requests.Session:
        self._made += 1
        session = requests.Session()
        if self.options.api_key:
            session.auth = _BearerToken(self.options.api_key)
        session.headers["User-Agent"] = "sluice-client"
        session.headers["Accept"] = "application/json, */*;q=0.5"
        # A proxy that compresses would change the bytes, and the ranges, of a download.
        session.headers["Accept-Encoding"] = "identity"
        adapter = _Adapter(
            _socket_options(self.options.stall_seconds, self.congestion_control),
            self.options.stall_seconds,
            self.sockets,
            self.rate_limit,
        )
        for scheme in ("http://", "https://"):
            session.mount(scheme, adapter)
        return session


class _BearerToken(AuthBase):
    """Sends a key; a plain header would give way to an entry in ~/.netrc."""

    def __init__(self, key: str) -> None:
        self._key = key

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._key}"
        return request


class _Adapter(HTTPAdapter):
    """An adapter for slow connections."""

    def __init__(
        self,
        socket_options: list[SocketOption],
        stall_seconds: float,
        sockets: OpenSockets,
        rate_limit: RateLimit,
    ) -> None:
        self._socket_options = socket_options
        self._stall_seconds = stall_seconds
        self._sockets = sockets
        self._rate_limit = rate_limit
        self._connected: socket.socket | None = None
        super().__init__(pool_connections=2, pool_maxsize=2, max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """See `HTTPAdapter.init_poolmanager`."""
        super().init_poolmanager(
            *args,
            socket_options=self._socket_options,
            blocksize=SEND_BLOCK_BYTES,
            **kwargs,
        )
        self.poolmanager.pool_classes_by_scheme = {
            "http": self._pool(HTTPConnectionPool, HTTPConnection),
            "https": self._pool(HTTPSConnectionPool, HTTPSConnection),
        }

    def open(self, request: requests.PreparedRequest, **tls: Any) -> None:
        """Open the connection on which such a request will be sent."""
        pool: Any = self.get_connection_with_tls_context(request, **tls)
        connection = pool._get_conn(timeout=self._stall_seconds)
        connection.timeout = self._stall_seconds
        try:
            connection.connect()
        finally:
            pool._put_conn(connection)

    def shut_down(self) -> None:
        """End the connection, whichever thread uses it; harmless if it has ended."""
        if self._connected is not None:
            with suppress(OSError):
                # Once that thread closes it, what has not left yet is dropped.
                self._connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DROP_UNSENT)
                # TLS's own would let the other thread read ciphertext.
                socket.socket.shutdown(self._connected, socket.SHUT_RDWR)

    def _has_connected(self, connected: object) -> None:
        if isinstance(connected, socket.socket):  # TLS within TLS is none.
            self._connected = connected
            self._sockets.add(connected)

    def _pool(self, pool: Any, connection: Any) -> Any:
        """A class of pools whose connections are known, and keep to the limit."""
        has_connected, rate_limit = self._has_connected, self._rate_limit

        class Watched(connection):  # type: ignore[misc]
            def connect(self) -> None:
                super().connect()
                has_connected(self.sock)

            def request(self, method: str, url: str, body: Any = None, **arguments: Any) -> None:
                if not isinstance(body, FileSlice):
                    super().request(method, url, body=body, **arguments)
                    return
                super().request(method, url, **arguments)  # The headers, with the length.
                # TLS encrypts in this program, and a socket of it is of another class.
                if HAS_SENDFILE and type(self.sock) is socket.socket and not rate_limit.is_set:
                    body.send_to(self.sock)
                else:
                    while block := body.read(SEND_BLOCK_BYTES):
                        self.send(block)

            def send(self, data: bytes) -> None:
                for piece in rate_limit.pieces(data):
                    super().send(piece)

        return type("WatchedPool", (pool,), {"ConnectionCls": Watched})


def _socket_options(stall_seconds: float, control: CongestionControl) -> list[SocketOption]:
    """The options that this system has."""
    wanted = {
        "TCP_NODELAY": 1,
        "TCP_KEEPIDLE": KEEPALIVE_IDLE_SECONDS,
        "TCP_KEEPINTVL": max(1, int(stall_seconds / KEEPALIVE_PROBES)),
        "TCP_KEEPCNT": KEEPALIVE_PROBES,
        "TCP_USER_TIMEOUT": int(stall_seconds * 1000),
    }
    options: list[SocketOption] = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in wanted.items():
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    if control.is_chosen:
        options.append((socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.name.encode()))
    if NOTSENT_LOWAT is not None:
        options.append((socket.IPPROTO_TCP, NOTSENT_LOWAT, UNSENT_BYTES))
    return options


def json_object(response: requests.Response) -> dict[str, Any]:
    """The body as an object; `ConnectionFailed` if something in between answered instead."""
    document = _json(response)
    if not isinstance(document, dict):
        raise ConnectionFailed(
            f"{urlsplit(response.url).netloc} answered with something that is not Sluice's JSON."
        )
    return document


def _raise_for_status(response: requests.Response) -> None:
    status = response.status_code
    if status < 300 or status == 304:
        return
    if status < 400:
        target = response.headers.get("Location", "elsewhere")
        detail = f"The server redirects to {target}. Use that address."
        raise Refused(status, code="redirected", detail=detail, retryable=False)
    with _network_errors():
        problem = problem_of(_json(response), status)
    problem["retry_after"] = _retry_after(response.headers)
    if status == 401:
        raise KeyRefused(status, had_key="Authorization" in response.request.headers, **problem)
    raise Refused(status, **problem)


def _json(response: requests.Response) -> Any:
    if "json" not in response.headers.get("Content-Type", ""):
        return None
    try:
        return response.json()
    except ValueError:
        return None


def _retry_after(headers: Mapping[str, str]) -> float | None:
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdecimal():
        return min(float(text), MOST_RETRY_AFTER_SECONDS)
    moment = _moment(text)
    if moment is None:
        return None
    # Both by the server's clock: ours may be days off.
    asked_at = _moment(headers.get("Date", "")) or datetime.now(UTC)
    return min(max(0.0, (moment - asked_at).total_seconds()), MOST_RETRY_AFTER_SECONDS)


def _moment(text: str) -> datetime | None:
    try:
        return parsedate_to_datetime(text).astimezone(UTC)
    except ValueError:
        return None


@contextmanager
def _network_errors() -> Iterator[None]:
    """Turn what requests and urllib3 raise for a broken connection into `ConnectionFailed`."""
    try:
        yield
    except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema) as error:
        raise SluiceError(str(error)) from error
    except requests.RequestException as error:
        raise ConnectionFailed(_in_words(error)) from error


def _in_words(error: requests.RequestException) -> str:
    parts = urlsplit(error.request.url if error.request and error.request.url else "")
    host = parts.netloc.rpartition("@")[2] or "the server"
    cause = _cause(error)
    if isinstance(error, requests.exceptions.SSLError):
        return f"No secure connection to {host}: {error}"
    if isinstance(error, requests.ConnectTimeout):
        return f"Cannot reach {parts.scheme}://{host} (no answer)."
    if isinstance(cause, NewConnectionError):
        return f"Cannot reach {parts.scheme}://{host} ({_reason(cause)})."
    if isinstance(error, requests.Timeout) or "timed out" in str(error):
        return f"The connection to {host} stalled."
    return f"The connection to {host} broke."


def _cause(error: requests.RequestException) -> object:
    """What urllib3 raised for a single try."""
    first = error.args[0] if error.args else None
    return first.reason if isinstance(first, MaxRetryError) else first


def _reason(error: NewConnectionError) -> str:
    """Why there is no connection, in the system's words."""
    if isinstance(error, NameResolutionError):
        return "unknown host name"
    cause = error.__cause__
    text = cause.strerror if isinstance(cause, OSError) else None
    return (text or "no connection").lower()
