"""Ordinary clients are served at once, whatever many slow clients do."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.deliver.stored import store
from tests.dropzone_client import random_bytes
from tests.hostile.conftest import Scaled
from tests.hostile.slow_clients import BEHAVIOURS
from tests.live_server import NO_FFMPEG, ROOT, Server, running_server
from tests.long_tests import long

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

VISITOR = "127.0.0.9"
IDLE_SECONDS = 3
PAUSE_SECONDS = 0.02
VISITS = 250
PATIENCE_SECONDS = 60


@contextmanager
def slow_clients(
    server: Server, kind: str, count: int, addresses: int, path: str
) -> Iterator[None]:
    """Connected slow clients, for the length of the context."""
    plan = {"kind": kind, "port": server.port, "count": count, "addresses": addresses}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.hostile.slow_clients", json.dumps({**plan, "path": path})],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            assert process.stdout.readline() == "connected\n"
            yield
        finally:
            process.stdin.close()
            process.wait(PATIENCE_SECONDS)


def visit(server: Server) -> float:
    """Seconds that one visit takes, on its own connection."""
    began = time.monotonic()
    with socket.create_connection(
        ("127.0.0.1", server.port), timeout=PATIENCE_SECONDS, source_address=(VISITOR, 0)
    ) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
    return time.monotonic() - began


def visits(server: Server, seconds: float) -> list[float]:
    """Seconds that each visit took, the longest last.

    There are so many that two for which the whole machine stood still do not change their p99,
    unless most take too long.
    """
    began, waits = time.monotonic(), list[float]()
    while time.monotonic() < began + (seconds if len(waits) >= VISITS else PATIENCE_SECONDS):
        waits.append(visit(server))
        time.sleep(PAUSE_SECONDS)
    return sorted(waits)


QUICK = ("silent", "stalled body", "unread")
"""`make test` has these: before a request, within one, and after it."""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    idle = {"SLUICE_TEST_CONSTANTS": f"body_idle_seconds={IDLE_SECONDS}"}
    options = {**NO_FFMPEG, **idle, "SLUICE_THREADS": "16"}
    with running_server(tmp_path_factory.mktemp("slow"), **options) as server:
        yield server


@pytest.fixture(scope="module")
def large_file(target: Server) -> str:
    return "/media/" + store(target, "film.mp4", random_bytes(10_000_000, 5)).id


@pytest.mark.parametrize("kind", [*QUICK, *long(kind for kind in BEHAVIOURS if kind not in QUICK)])
def test_nobody_waits_for_slow_clients(
    target: Server, large_file: str, scaled: Scaled, kind: str
) -> None:
    count = scaled(short=120, long=2000)
    with slow_clients(target, kind, count, addresses=count, path=large_file):
        waits = visits(target, scaled(short=IDLE_SECONDS + 2, long=60))
    p50, p99 = waits[len(waits) // 2], waits[int(len(waits) * 0.99)]
    print(f"{kind}: {len(waits)} visits, p50 {p50:.3f} p99 {p99:.3f} s")
    # A server that waits for slow clients makes every visit slow; a busy machine, a few of them.
    assert p50 < 5
    assert p99 < scaled(short=PATIENCE_SECONDS // 2, long=1)


@pytest.mark.only_with("--full-length")
@pytest.mark.parametrize("kind", ["silent", "dripped headers"])
def test_one_address_gets_no_more_than_its_share(target: Server, kind: str) -> None:
    """More connections than two workers have room for."""
    with slow_clients(target, kind, 4300, addresses=1, path="/"):
        waits = visits(target, 20)
    assert waits[int(len(waits) * 0.99)] < 1
