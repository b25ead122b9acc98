"""The line of the benchmarks keeps to what it says."""

from __future__ import annotations

import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from bench.lib.lossy_line import LossyLine, Quality, lossy_line, what_is_missing
from tests.waiting import wait_until

MISSING = what_is_missing()

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(MISSING is not None, reason=MISSING or "")]

PORT = 8000
COUNT = 1_000_000

SERVE = f"""
import socket
listener = socket.create_server(("", {PORT}))
while True:
    connection, _ = listener.accept()
    total = 0
    while data := connection.recv(65536):
        total += len(data)
    connection.sendall(str(total).encode())
    connection.close()
"""

SEND = f"""
import socket, sys, time
began = time.monotonic()
connection = socket.create_connection((sys.argv[1], {PORT}))
round_trip = time.monotonic() - began
connection.sendall(bytes({COUNT}))
connection.shutdown(socket.SHUT_WR)
print(round_trip, time.monotonic() - began if connection.recv(100) == b"{COUNT}" else "lost")
"""


def send(line: LossyLine) -> tuple[float, float]:
    """The round trip of a handshake, and how long some bytes take; in seconds."""
    line.server.start([sys.executable, "-c", SERVE])
    line.server.await_listener(PORT)
    command = [sys.executable, "-c", SEND, line.server.address]
    sent = line.client.run(command, stdout=subprocess.PIPE, text=True, timeout=120)
    round_trip, seconds = map(float, sent.stdout.split())
    return round_trip, seconds


def test_a_line_has_its_delay_and_its_rate() -> None:
    with lossy_line(Quality(bits_per_second=4e6, delay_seconds=0.05)) as line:
        round_trip, seconds = send(line)
    assert round_trip >= 0.1
    assert seconds >= COUNT * 8 / 4e6
    assert line.up.passed_bytes >= COUNT


def test_a_line_loses_packets_and_connections_live_on() -> None:
    with lossy_line(Quality(bits_per_second=50e6, delay_seconds=0.005, loss=0.05)) as line:
        send(line)
    assert 10 <= line.up.dropped <= 200


def test_nothing_passes_a_line_that_is_cut() -> None:
    with lossy_line(Quality(delay_seconds=0.005)) as line:
        line.cut(seconds=600)
        with ThreadPoolExecutor(1) as threads:
            sending = threads.submit(send, line)
            wait_until(lambda: connecting(line), "a connection is tried")
            assert line.up.passed[socket.inet_aton(line.server.address)] == 0
            line.cut(seconds=0)
            sending.result()
    assert line.up.passed_bytes >= COUNT


def connecting(line: LossyLine) -> bytes:
    """The client's unanswered connections, once the line has dropped a packet."""
    shown = line.client.run(["ss", "-Hnt", "state", "syn-sent"], stdout=subprocess.PIPE).stdout
    assert isinstance(shown, bytes)
    return shown if line.up.dropped else b""


def test_nothing_is_left_of_a_line() -> None:
    with lossy_line(Quality()) as line:
        process = line.server.start(["sleep", "infinity"])
    assert process.poll() is not None
    names = subprocess.run(["ip", "-o", "link"], stdout=subprocess.PIPE, text=True, check=True)
    assert "line-server" not in names.stdout
