"""Lanes that are opened without end, and break every rule, while somebody uploads by one."""

from __future__ import annotations

import random
import socket
import struct
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import pytest

from app.ingest.websocket import Opcode, frame
from tests.dropzone_client import ChunkedFile, random_bytes
from tests.hostile.conftest import Scaled
from tests.lane_client import KEY, LaneClient, client_frame, message_of
from tests.live_server import NO_FFMPEG, Server, running_server
from tests.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

ATTACKER = "127.0.0.9"
LEFT_OPEN = 60
"""Twice as many as one sender may have."""

CHUNK_BYTES = 100_000
MOST_GROWTH_BYTES = 32_000_000
"""Of the memory of all workers, once they have seen some of it: 3 KB for each of 10,000 lanes."""

HANDSHAKE = (
    "GET /lanes HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n"
    "Sec-WebSocket-Protocol: sluice-lane-1\r\n\r\n"
).encode()

DEEDS: tuple[Callable[[random.Random], bytes], ...] = (
    lambda _: b"",
    lambda _: client_frame(Opcode.BINARY, bytes(200_000))[:-1],
    lambda _: frame(Opcode.BINARY, bytes(100)),
    lambda rng: client_frame(Opcode.BINARY, rng.randbytes(5_000), mask=rng.randbytes(4)),
    lambda rng: rng.randbytes(2_000),
    lambda _: bytes((0x82, 0xFF)) + (2**63 - 1).to_bytes(8, "big"),
    lambda _: client_frame(Opcode.BINARY, b"", is_last=False) * 2_000,
    lambda _: client_frame(Opcode.PING, bytes(125)) * 500,
    lambda _: client_frame(Opcode.TEXT, b"chunk"),
)
"""Nothing, half a message, no mask, wrong masks, noise, a length without end, frames without end,
pings that are not read, and text."""


@pytest.fixture
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = {"SLUICE_TEST_CONSTANTS": "body_idle_seconds=2", **NO_FFMPEG}
    with running_server(tmp_path_factory.mktemp("lanes"), **options) as running:
        yield running


def test_who_opens_lanes_without_end_takes_no_memory_and_no_lane_of_others(
    target: Server, scaled: Scaled
) -> None:
    count = scaled(short=400, long=10_000)
    attack(target, count // 4)
    before = memory(target)
    file = ChunkedFile(random_bytes(60 * CHUNK_BYTES, 1), CHUNK_BYTES)
    with ThreadPoolExecutor(1) as pool:
        attacked = pool.submit(attack, target, count)
        with LaneClient(target) as lane:
            answers = [lane.ask(message_of(file, index)) for index in range(file.count)]
        statuses = attacked.result()
    assert {answer["status"] for answer in answers} == {200}
    assert target.get(f"/media/{answers[-1]['body']['id']}").content == file.content
    assert set(statuses) <= {101, 503}, "no lane was an error of the server"
    assert statuses[101] > 0
    wait_until(lambda: is_let_in(target), "the attacker's lanes are over")
    growth = memory(target) - before
    print(f"{dict(statuses)}, {growth:,} bytes more")
    assert growth < MOST_GROWTH_BYTES
    assert target.get("/api/uploads").json()["uploads"] == []


def attack(server: Server, count: int) -> Counter[int]:
    """Open lanes and do something wrong on each; how each handshake was answered."""
    rng = random.Random(count)
    statuses = Counter[int]()
    with ExitStack() as stack:
        kept = deque[socket.socket]()
        for number in range(count):
            connection = stack.enter_context(connect(server))
            kept.append(connection)
            with suppress(ConnectionError):
                connection.sendall(HANDSHAKE)
                statuses[int(connection.recv(4096).split(b" ", 2)[1])] += 1
                connection.sendall(DEEDS[number % len(DEEDS)](rng))
            if len(kept) > LEFT_OPEN:
                leave(kept.popleft(), with_reset=bool(number % 2))
    return statuses


def connect(server: Server) -> socket.socket:
    return socket.create_connection(
        ("127.0.0.1", server.port), timeout=60, source_address=(ATTACKER, 0)
    )


def leave(connection: socket.socket, *, with_reset: bool) -> None:
    if with_reset:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def is_let_in(server: Server) -> bool:
    with connect(server) as connection:
        connection.sendall(HANDSHAKE)
        return connection.recv(4096).startswith(b"HTTP/1.1 101 ")


def memory(server: Server) -> int:
    """Bytes of the workers."""
    return sum(worker.memory_full_info().pss for worker in server.web_workers())
