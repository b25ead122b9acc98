"""Many requests at once take little of the server's memory, and free it."""

from __future__ import annotations

import base64
import hashlib
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
import requests
from psutil import Process

from tests.hostile.conftest import Scaled
from tests.live_server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

MIB = 1024 * 1024

HALF = os.urandom(MIB // 2)
DIGEST = base64.b64encode(hashlib.sha1(HALF + HALF).digest()).decode()

MOST_FOR_EACH = 0.2 * MIB
"""Memory of a running request, whose body of 1 MiB is held until its checksum is known."""

MOST_KEPT = 24 * MIB
"""Kept by each process after the burst: blocks and threads for the next request."""

GIVEN_BACK_SECONDS = 60


def memory(workers: list[Process]) -> int:
    """Proportional memory of all workers in bytes."""
    return sum(worker.memory_full_info().pss for worker in workers)


def thread_count(workers: list[Process]) -> int:
    """Threads of all workers."""
    return sum(worker.num_threads() for worker in workers)


def create_upload(server: Server, session: requests.Session) -> str:
    """The path of a tus upload of 1 MiB."""
    headers = {"Tus-Resumable": "1.0.0", "Upload-Length": str(MIB)}
    answer = session.post(f"{server.url}/tus/", headers=headers, timeout=60)
    return str(answer.headers["Location"]).removeprefix(server.url)


def head_of_patch(path: str) -> bytes:
    """The request without its body."""
    return (
        f"PATCH {path} HTTP/1.1\r\nHost: localhost\r\nTus-Resumable: 1.0.0\r\nUpload-Offset: 0\r\n"
        f"Content-Type: application/offset+octet-stream\r\nUpload-Checksum: sha1 {DIGEST}\r\n"
        f"Content-Length: {MIB}\r\n\r\n"
    ).encode()


@contextmanager
def half_sent(server: Server, count: int) -> Iterator[list[socket.socket]]:
    """Checksummed requests at once, each with half of its body sent."""
    with requests.Session() as session, ExitStack() as stack:
        paths = [create_upload(server, session) for _ in range(count)]
        connections = [stack.enter_context(server.connect()) for _ in paths]
        for connection, path in zip(connections, paths, strict=True):
            connection.sendall(head_of_patch(path) + HALF)
        yield connections


def status_of(connection: socket.socket) -> bytes:
    """Status of the answer, which has no body."""
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        answer += connection.recv(65536)
    return answer.split(b" ", 2)[1]


def test_a_burst_of_checksummed_requests_takes_little_memory_and_frees_it(
    start_server: Callable[..., Server], scaled: Scaled
) -> None:
    count = scaled(short=150, long=600)
    server = start_server(SLUICE_DURABILITY="none")
    processes = int(server.environment["SLUICE_WORKERS"])
    wait_until(lambda: len(server.web_workers()) == processes, "all workers have started")
    workers = server.web_workers()
    with half_sent(server, processes):
        pass  # Loads what a process needs for its first request of this kind.
    fresh, fresh_threads = memory(workers), thread_count(workers)
    with half_sent(server, count) as connections:
        wait_until(lambda: thread_count(workers) >= count, "each request has a thread")
        wait_until(  # Blocks are written, and borrowed again, once a second.
            lambda: memory(workers) - fresh < count * MOST_FOR_EACH + processes * MOST_KEPT,
            "each request takes little",
            GIVEN_BACK_SECONDS,
        )
        for connection in connections:
            connection.sendall(HALF)
        assert {status_of(connection) for connection in connections} == {b"204"}
    wait_until(
        lambda: thread_count(workers) <= fresh_threads + count / 4,
        "idle threads end",
        GIVEN_BACK_SECONDS,
    )
    most = fresh + processes * MOST_KEPT
    wait_until(lambda: memory(workers) < most, "the memory is free again", GIVEN_BACK_SECONDS)
