"""Connections, plain and with TLS: what is known of them, and ending a request on one."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import pytest

from sluice_client.errors import ConnectionFailed
from sluice_client.options import Options
from sluice_client.transport import AbortHandle, Transport
from tests.e2e.server_kinds import make_certificate

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Listener:
    """Answers requests for `/`, and leaves others waiting; `has_request` tells of one of those."""

    def __init__(self, certificate: Path | None) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._context: ssl.SSLContext | None = None
        if certificate is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(certificate, certificate.with_name("key.pem"))
        self.has_request, self.has_lost_client = Event(), Event()
        scheme = "https" if certificate else "http"
        self.url = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"
        self._serving: socket.socket | None = None
        self._thread = Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):  # Once the test is over.
            while True:
                accepted, _ = self._listener.accept()
                self._serving = accepted = self._wrapped(accepted)
                with accepted, suppress(OSError):
                    while request := accepted.recv(65536):
                        if request.startswith(b"GET / "):
                            accepted.sendall(ANSWER)
                        else:
                            self.has_request.set()
                self.has_lost_client.set()

    def _wrapped(self, accepted: socket.socket) -> socket.socket:
        context = self._context
        return context.wrap_socket(accepted, server_side=True) if context else accepted

    def close(self) -> None:
        for end in filter(None, (self._listener, self._serving)):
            with suppress(OSError):
                socket.socket.shutdown(end, socket.SHUT_RDWR)
        self._thread.join(30)
        self._listener.close()


@pytest.fixture(params=["plain", "TLS"])
def listener(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Listener]:
    certificate = make_certificate(tmp_path) if request.param == "TLS" else None
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate or ""))
    listener = Listener(certificate)
    yield listener
    listener.close()


@pytest.fixture
def transport(listener: Listener) -> Iterator[Transport]:
    transport = Transport(Options(server=listener.url), Event())
    yield transport
    transport.close()


@pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="this system tells nothing")
def test_the_kernel_tells_what_a_connection_has_sent(transport: Transport) -> None:
    transport.request("GET", "/")
    state = transport.sockets.look()
    assert state is not None
    assert state.acknowledged_bytes > 0


def test_a_request_that_waits_for_its_answer_can_be_ended(
    transport: Transport, listener: Listener
) -> None:
    handle = AbortHandle()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(transport.request, "GET", "/silence", handle=handle)
        assert listener.has_request.wait(30)
        handle.abort()
        with pytest.raises(ConnectionFailed):
            waiting.result(30)
    assert listener.has_lost_client.wait(30)
    assert transport.request("GET", "/").status_code == 200


def test_a_request_that_has_ended_leaves_its_connection_to_others(transport: Transport) -> None:
    handle = AbortHandle()
    transport.request("GET", "/", handle=handle)
    handle.abort()
    assert transport.request("GET", "/").status_code == 200
    assert transport._made == 1
