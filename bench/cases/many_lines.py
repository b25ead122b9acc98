"""200 senders on bad lines, 40 of them behind one address, with many connections each.

A bad line is a rate limit for each connection here, over loopback: emulating 200 lines would take
more of the machine than the server does.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from contextlib import closing, suppress
from typing import Self

from bench.lib.harness import Benchmark, BenchServer, Lab
from bench.lib.meter import Meter
from bench.lib.plot import Plot, panel_of
from bench.lib.report import Table
from bench.lib.samples import GB, MB, rates_of, spread
from bench.lib.slow_clients import SlowUpload, begin, send_slowly

SENDERS, QUICK_SENDERS = 200, 20
BEHIND_ONE_ADDRESS = 40
"""A fifth of all senders in a quick run."""

SIX_CONNECTIONS, MOST_CONNECTIONS = 6, 24
BYTES_PER_SECOND = 2_000
"""Of a connection. 200 senders with 14 each send 5.6 MB/s."""

SECONDS, QUICK_SECONDS = 30, 2
DEADLINE = 3
"""What is not stored after this multiple of the time that it needs has failed."""

SHARED_ADDRESS, OTHER_ADDRESS, VISITOR_ADDRESS = "127.0.1.1", "127.0.2.1", "127.0.3.1"

ANSWER_SECONDS = 60.0
PAUSE_SECONDS = 0.1

SERVED = "as many as the server asks for"
SIX = "six each, as browsers open"

NOTE = (
    "Every connection sends a file at 2 KB/s, over loopback, with its sender's address; 40 of 200 "
    "share one. Not stored: of the connections that were opened. GET /: of a visitor with another "
    "address. Settings: the defaults."
)


def run(lab: Lab) -> list[Table]:
    """Measure and tell."""
    rows = [_measure(lab, case) for case in (SIX, SERVED)]
    columns = ("connections", "open", "not stored", "MB/s", "GET /, ms", "memory above idle, MiB")
    return [Table("Many bad lines", columns, rows, (NOTE,))]


def _measure(lab: Lab, case: str) -> tuple[str, ...]:
    seconds = lab.pick(SECONDS, QUICK_SECONDS)
    length = seconds * BYTES_PER_SECOND
    with lab.server() as server:
        uploads = _begun(lab, server, length, obeys=case == SERVED)
        with Visitor(server) as visitor, Meter(server.processes()) as meter:
            send_slowly(
                uploads,
                bytes_per_second=BYTES_PER_SECOND,
                deadline_seconds=DEADLINE * seconds,
            )
            stored = sum(upload.is_stored for upload in uploads)
            sample = meter.sample(case, 0, max(1, stored * length))
        lab.keep(sample)
    return (
        case,
        str(len(uploads)),
        str(len(uploads) - stored),
        f"{stored * length / MB / sample.seconds:.1f}",
        spread([answer * 1000 for answer in visitor.answers]),
        spread([sample.peak_mib]),
    )


def _begun(lab: Lab, server: BenchServer, length: int, *, obeys: bool) -> list[SlowUpload]:
    """One more connection for each sender in turn, until it has enough; their requests begin."""
    senders = lab.pick(SENDERS, QUICK_SENDERS)
    together = BEHIND_ONE_ADDRESS * senders // SENDERS
    uploads: list[SlowUpload] = []
    for count in range(MOST_CONNECTIONS):
        may_open = {
            address: count < (_advised(server, address) if obeys else SIX_CONNECTIONS)
            for address in (SHARED_ADDRESS, OTHER_ADDRESS)
        }
        for sender in range(senders):
            is_shared = sender < together
            if may_open[SHARED_ADDRESS if is_shared else OTHER_ADDRESS]:
                address = SHARED_ADDRESS if is_shared else f"127.0.2.{sender - together + 1}"
                uploads.append(begin(server.port, length, address=address))
                uploads[-1].send(0)
    return uploads


def _advised(server: BenchServer, address: str) -> int:
    """Asked once for all senders with addresses of their own, who see the same."""
    document = json.loads(_answer(server.port, "/api/server", address))
    return document["connections"] or MOST_CONNECTIONS


def _answer(port: int, path: str, address: str) -> bytes:
    with closing(
        http.client.HTTPConnection(
            "127.0.0.1", port, timeout=ANSWER_SECONDS, source_address=(address, 0)
        )
    ) as connection:
        connection.request("GET", path)
        return connection.getresponse().read()


class Visitor:
    """Asks for the page again and again, over new connections; `answers` in seconds."""

    def __init__(self, server: BenchServer) -> None:
        self.answers: list[float] = []
        self._port = server.port
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _ask(self) -> None:
        while not self._is_over.wait(PAUSE_SECONDS):
            began = time.monotonic()
            with suppress(OSError, http.client.HTTPException):
                _answer(self._port, "/", VISITOR_ADDRESS)
            self.answers.append(time.monotonic() - began)


def draw(lab: Lab) -> Plot:
    """What was stored in a second."""
    panel = panel_of("MB/s stored", lab.cases(), rates_of, ours=[SERVED])
    return Plot("Many bad lines", (panel,))


BENCHMARK = Benchmark(
    name="many_lines",
    summary="200 senders with many slow connections, 40 of them behind one address",
    run=run,
    draw=draw,
    needed_bytes=GB,
    rounds=1,
    quick_seconds=3,
)
