"""The proxy breaks what it should, and nothing else."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.fleet.faulty_proxy import (
    Fault,
    Line,
    MakeProxy,
    Plan,
    Proxy,
    close_all,
    proxies,
    talk_bytes,
    talk_http,
)
from tests.waiting import wait_until

BODY = b"0123456789" * 20_000


class Store(ThreadingHTTPServer):
    """Notes the bodies that arrive whole, and sends them back."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies: list[bytes] = []

    def handle_error(self, *_request: object) -> None:
        """Connections break here."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        assert isinstance(self.server, Store)
        length = int(self.headers["Content-Length"])
        body = self.rfile.read(length)
        if len(body) < length:
            return
        self.server.bodies.append(body)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_words: object) -> None:
        pass


@pytest.fixture
def store() -> Iterator[Store]:
    with Store() as store:
        thread = threading.Thread(target=store.serve_forever, args=(0.05,))
        thread.start()
        yield store
        store.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def make() -> Iterator[MakeProxy]:
    with proxies() as make:
        yield make


@pytest.fixture
def between(make: MakeProxy, store: Store) -> Callable[..., Proxy]:
    """A proxy in front of the store that does the same to every request."""

    def place(fault: Fault | None = None) -> Proxy:
        shares = {} if fault is None else {fault: 1.0}
        return make(store.server_port, talk_http, Plan(1, shares))

    return place


def post(proxy: Proxy, path: str = "/", *, times: int = 1) -> list[tuple[int, bytes]]:
    """Statuses and bodies of requests on one connection."""
    with closing(HTTPConnection("127.0.0.1", proxy.port, timeout=60)) as connection:
        return [ask(connection, path) for _ in range(times)]


def ask(connection: HTTPConnection, path: str) -> tuple[int, bytes]:
    connection.request("POST", path, BODY)
    answer = connection.getresponse()
    return answer.status, answer.read()


@pytest.mark.parametrize("fault", [None, Fault.DELAY, Fault.ERROR_IN_200])
def test_what_no_fault_hits_passes_unchanged(
    fault: Fault | None, between: Callable[..., Proxy], store: Store
) -> None:
    assert post(between(fault), times=2) == [(200, BODY), (200, BODY)]
    assert store.bodies == [BODY, BODY]


@pytest.mark.parametrize(
    ("fault", "status"),
    [(Fault.SLOW_DOWN, 503), (Fault.INTERNAL_ERROR, 500), (Fault.ERROR_IN_200, 200)],
)
def test_the_proxy_answers_with_an_error_in_place_of_the_server(
    fault: Fault, status: int, between: Callable[..., Proxy], store: Store
) -> None:
    answers = post(between(fault), "/object?uploadId=1", times=2)
    assert [answered for answered, _ in answers] == [status, status]
    assert all(b"<Error><Code>" in body for _, body in answers)
    assert store.bodies == []


@pytest.mark.parametrize("fault", [Fault.CUT_BODY, Fault.CUT_ANSWER, Fault.LOST_ANSWER])
def test_a_connection_that_breaks_leaves_the_client_without_an_answer(
    fault: Fault, between: Callable[..., Proxy], store: Store
) -> None:
    proxy = between(fault)
    with pytest.raises((OSError, HTTPException)):
        post(proxy)
    assert proxy.plan.happened[fault] == 1
    assert store.bodies == ([] if fault is Fault.CUT_BODY else [BODY])


def test_the_same_seed_hits_the_same_requests() -> None:
    shares = dict.fromkeys(Fault, 0.1)
    first, second, other = (
        [Plan(seed, shares).draw(number)[0] for number in range(200)] for seed in (1, 1, 2)
    )
    assert first == second != other
    assert {*first} == {None, *Fault}


def test_what_is_held_arrives_when_it_is_released(
    between: Callable[..., Proxy], store: Store
) -> None:
    proxy = between()
    proxy.hold()
    answers: list[tuple[int, bytes]] = []
    client = threading.Thread(target=lambda: answers.extend(post(proxy)))
    client.start()
    wait_until(lambda: proxy.connections, "the proxy has accepted the connection")
    assert not store.bodies
    proxy.release()
    client.join(60)
    assert answers == [(200, BODY)]


def test_open_connections_can_be_dropped(between: Callable[..., Proxy]) -> None:
    proxy = between()
    with closing(HTTPConnection("127.0.0.1", proxy.port, timeout=60)) as connection:
        assert ask(connection, "/") == (200, BODY)
        proxy.drop_connections()
        assert connection.sock.recv(1) == b""
    assert post(proxy) == [(200, BODY)]


def test_other_protocols_lose_what_was_asked_or_what_was_answered(
    make: MakeProxy, store: Store
) -> None:
    for fault in (Fault.CUT_BODY, Fault.LOST_ANSWER):
        proxy = make(store.server_port, talk_bytes, Plan(1, {fault: 1.0}))
        with socket.create_connection(("127.0.0.1", proxy.port), 60) as client:
            client.sendall(b"POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\n1")
            assert client.recv(1) == b""
    assert store.bodies == [b"1"]


def test_a_lost_commit_is_done_and_not_answered(make: MakeProxy) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        proxy = make(server.getsockname()[1], talk_bytes, Plan(1, {Fault.LOST_COMMIT: 1.0}))
        with socket.create_connection(("127.0.0.1", proxy.port), 60) as client:
            session, _ = server.accept()
            with session:
                for statement in (b"INSERT", b"COMMIT"):
                    client.sendall(statement)
                    assert session.recv(100) == statement
                    session.sendall(b"done")
                    assert client.recv(100) == (b"done" if statement == b"INSERT" else b"")
    assert proxy.plan.happened == {Fault.LOST_COMMIT: 1}


def test_a_server_hears_of_a_client_that_was_killed(make: MakeProxy) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        proxy = make(server.getsockname()[1], talk_bytes, Plan(1))
        with socket.create_connection(("127.0.0.1", proxy.port), 60) as client:
            client.sendall(b"a statement")
            session, _ = server.accept()
        with session:
            session.settimeout(60)
            assert session.recv(100) == b"a statement"
            with suppress(ConnectionResetError):
                assert session.recv(100) == b""


def test_both_sides_are_closed_after_a_client_has_read_the_last_bytes_late() -> None:
    answer = bytes(32 * 1024 * 1024)  # More than the kernel buffers.

    async def main() -> None:
        accepted = asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]]()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await accepted.put((reader, writer))

        async with await asyncio.start_server(accept, "127.0.0.1", 0) as listener:
            address = listener.sockets[0].getsockname()
            sides = []
            for _ in range(2):
                outer = await asyncio.open_connection(*address)
                sides.append((outer, await accepted.get()))
            ((client, from_client), to_client), ((server, from_server), to_server) = sides
            line = Line(*to_client, *to_server, asyncio.Event())
            line.to_client.write(answer)
            line.to_client.close()
            assert await client.read(-1) == answer
            line.close()
            async with asyncio.timeout(60):
                with suppress(ConnectionResetError):
                    assert await server.read(1) == b""
            for writer in (from_client, from_server):
                writer.close()

    asyncio.run(main())


@pytest.mark.parametrize("steps", range(8))
def test_a_connection_that_comes_while_the_proxy_closes_is_closed_too(
    steps: int, store: Store
) -> None:
    """`steps` of the loop after the client has connected."""

    async def close_after_a_connection() -> None:
        proxy = Proxy(asyncio.get_running_loop(), store.server_port, talk_http, Plan(1))
        await proxy.listen()
        with socket.create_connection(("127.0.0.1", proxy.port), 60):
            for _ in range(steps):
                await asyncio.sleep(0)
            await close_all([proxy])
            assert proxy.connections == 0
            assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(close_after_a_connection())
