"""Ten senders share a limited line, the first with one connection, the last with nineteen."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

import requests

from bench.lib.harness import Benchmark, BenchServer, Lab
from bench.lib.plot import Plot, panel_of
from bench.lib.report import Table
from bench.lib.samples import GB, MB, Sample

SENDERS = 10
"""Each has a loopback address of its own, by which the server tells it apart."""

BYTES_PER_SECOND = 10_000_000
"""Of the whole line; far below what the machine can take."""

SETTLING_SECONDS = 4
"""Until the buffers between client and server are full."""

BODY_BYTES = 1 << 26
"""More than a connection sends; as much is reserved for it."""

BLOCK = bytes(64 * 1024)


class Greed:
    """One sender: so many connections that send as fast as they can."""

    def __init__(self, server: BenchServer, number: int) -> None:
        self._server = server
        self._address = f"127.0.0.{number + 2}"
        self.connections = 2 * number + 1
        self._sent = [0] * self.connections
        self._has_ended = threading.Event()

    @property
    def sent(self) -> int:
        """Bytes so far, of all connections."""
        return sum(self._sent)

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Send while the context lasts."""
        threads = [
            threading.Thread(target=self._send, args=(index,)) for index in range(self.connections)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._has_ended.set()
            for thread in threads:
                thread.join()

    def _send(self, index: int) -> None:
        path = self._begin()
        address = ("127.0.0.1", self._server.port)
        with socket.create_connection(address, source_address=(self._address, 0)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, len(BLOCK))
            connection.settimeout(0.5)
            connection.sendall(
                f"PATCH {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nTus-Resumable: 1.0.0\r\n"
                "Upload-Offset: 0\r\nContent-Type: application/offset+octet-stream\r\n"
                f"Content-Length: {BODY_BYTES}\r\n\r\n".encode()
            )
            while not self._has_ended.is_set():
                with suppress(TimeoutError):
                    self._sent[index] += connection.send(BLOCK)

    def _begin(self) -> str:
        headers = {"Tus-Resumable": "1.0.0", "Upload-Defer-Length": "1"}
        answer = requests.post(f"{self._server.url}/tus/", headers=headers, timeout=60)
        answer.raise_for_status()
        return "/" + answer.headers["Location"].split("/", 3)[-1].lstrip("/")


def run(lab: Lab) -> list[Table]:
    """Measure, and return the table."""
    options = {"SLUICE_BYTES_PER_SECOND": str(BYTES_PER_SECOND)}
    with lab.server(**options) as server, ExitStack() as stack:
        senders = [Greed(server, number) for number in range(SENDERS)]
        for sender in senders:
            stack.enter_context(sender.sending())
        time.sleep(lab.pick(SETTLING_SECONDS, 2))
        before, began = [sender.sent for sender in senders], time.monotonic()
        time.sleep(lab.pick(20, 2))
        after, seconds = [sender.sent for sender in senders], time.monotonic() - began
    for sender, start, end in zip(senders, before, after, strict=True):
        case = f"{sender.connections} connections"
        lab.keep(Sample(case=case, round=0, byte_count=end - start, seconds=seconds))
    rows = [
        (name, *(f"{share:.2f}" for share in _shares(got))) for name, got in lab.cases().items()
    ]
    total = sum(after) - sum(before)
    rows.append(("all together", f"{total / seconds / BYTES_PER_SECOND:.2f}"))
    notes = (f"Of {BYTES_PER_SECOND // MB} MB/s: 1.00 is a tenth of it, and all of it in the end.",)
    return [Table("Shares of a full line", ("sender", "share"), rows, notes)]


def draw(lab: Lab) -> Plot:
    """The share of each sender."""
    cases = lab.cases()
    panel = panel_of("Share of a tenth of the line", cases, _shares, ours=cases, digits=2)
    return Plot("Shares of a full line", (panel,))


def _shares(samples: Sequence[Sample]) -> list[float]:
    return [sample.mb_per_second * MB * SENDERS / BYTES_PER_SECOND for sample in samples]


BENCHMARK = Benchmark(
    name="fairness",
    summary="ten senders of different greed share a limited line",
    run=run,
    draw=draw,
    needed_bytes=10 * GB,
    quick_seconds=2,
)
