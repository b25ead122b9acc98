"""A thousand slow uploads at once, and whether the server answers others at the same time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from statistics import quantiles

import requests

from bench.lib.harness import Benchmark, BenchServer, Lab
from bench.lib.meter import Meter
from bench.lib.plot import Plot, panel_of
from bench.lib.report import Table
from bench.lib.samples import GB, MB, Sample, spread
from bench.lib.slow_clients import upload_slowly
from bench.lib.worker_classes import OURS, pick_workers, thread_count, worker_options

BYTES_PER_SECOND = 200_000
SECONDS = 100
"""How long one upload takes at that rate: a chunk of 20 MB."""

ONE_AT_A_TIME = "sync"
"""Not measured: it takes one upload a process, and is killed in the middle of a long one."""

PATIENCE = 2
LEAST_PATIENCE_SECONDS = 12
"""An upload fails after this multiple of its due time, and never before that many seconds."""

PROBE_PAUSE_SECONDS = 0.05
PROBE_TIMEOUT_SECONDS = 60.0


@dataclass
class Probe:
    """Seconds until an answer, of requests sent one after the other; None for a failed one."""

    path: str
    document: dict[str, object] | None = None
    answers: list[float | None] = field(default_factory=list)

    def ask(self, server: BenchServer) -> None:
        """Send one request over a new connection."""
        started = time.monotonic()
        try:
            response = requests.request(
                "POST" if self.document else "GET",
                server.url + self.path,
                json=self.document,
                timeout=PROBE_TIMEOUT_SECONDS,
            )
            response.raise_for_status()
        except requests.RequestException:
            self.answers.append(None)
        else:
            self.answers.append(time.monotonic() - started)

    @property
    def failures(self) -> int:
        """Requests without a good answer."""
        return self.answers.count(None)

    def describe(self) -> str:
        """Median and 99th percentile in milliseconds."""
        found = sorted(answer for answer in self.answers if answer is not None)
        if len(found) < 2:
            return "no answer"
        percentiles = quantiles(found, n=100, method="inclusive")
        return f"{percentiles[49] * 1000:.0f} / {percentiles[98] * 1000:.0f}"


def run(lab: Lab) -> list[Table]:
    """Measure, and return the tables."""
    columns: tuple[str, ...] = (
        "worker",
        "uploads",
        "stored",
        "seconds",
        "GET /, ms",
        "POST /api/uploads, ms",
        "failed requests",
        "CPU s/GB",
        "memory above idle, MiB",
        "threads",
    )
    counts = [100] if lab.is_quick else [100, 1000]
    workers = [worker for worker in pick_workers(lab) if worker != ONE_AT_A_TIME]
    cases = [(worker, count) for worker in workers for count in counts]
    rows: list[tuple[str, ...]] = [_measure(lab, worker, count) for worker, count in cases]
    seconds = _seconds(lab)
    notes = (
        f"Each uploads {seconds * BYTES_PER_SECOND / MB:.0f} MB in one chunk at 200 KB/s, which "
        f"takes {seconds} s at best; what is not stored after {_deadline(lab)} s counts as not "
        "stored. Times to the answer: median / 99th percentile, of two clients that ask one after "
        "the other, over new connections. Settings: the defaults.",
    )
    return [Table("Slow uploads at once", columns, rows, notes)]


def _seconds(lab: Lab) -> int:
    return lab.pick(SECONDS, 3)


def _deadline(lab: Lab) -> int:
    return max(LEAST_PATIENCE_SECONDS, PATIENCE * _seconds(lab))


def _measure(lab: Lab, worker: str, count: int) -> tuple[str, ...]:
    length = _seconds(lab) * BYTES_PER_SECOND
    probes = [Probe("/"), Probe("/api/uploads", {"name": "probe.mp4", "size": 1000})]
    most_threads = 0
    with lab.server(**worker_options(worker)) as server, Meter(server.processes()) as meter:

        def look() -> None:
            nonlocal most_threads
            most_threads = max(most_threads, thread_count(server))

        asks = [partial(probe.ask, server) for probe in probes]
        with _repeating(asks, PROBE_PAUSE_SECONDS), _repeating([look], 1.0):
            uploads = upload_slowly(
                server.port,
                count=count,
                length=length,
                bytes_per_second=BYTES_PER_SECOND,
                deadline_seconds=_deadline(lab),
            )
            sample = meter.sample(f"{worker}, {count} uploads", 0, count * length)
        lab.keep(sample)
    stored = sum(upload.is_stored for upload in uploads)
    return (
        worker,
        str(count),
        str(stored),
        f"{sample.seconds:.0f}",
        *(probe.describe() for probe in probes),
        str(sum(probe.failures for probe in probes)),
        spread([(sample.cpu_seconds or 0) / max(1, stored * length) * GB], 2),
        spread([sample.peak_mib]),
        str(most_threads),
    )


@contextmanager
def _repeating(calls: Sequence[Callable[[], None]], pause: float) -> Iterator[None]:
    """Each call in a thread of its own, again and again."""
    is_over = threading.Event()

    def repeat(call: Callable[[], None]) -> None:
        while not is_over.is_set():
            call()
            is_over.wait(pause)

    threads = [threading.Thread(target=repeat, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def draw(lab: Lab) -> Plot:
    """How long it took and what memory."""
    ours = [name for name in lab.cases() if name.startswith(OURS)]
    panels = [
        panel_of("seconds until stored or given up", lab.cases(), _seconds_of, ours=ours),
        panel_of("MiB above idle", lab.cases(), _memory_of, ours=ours),
    ]
    return Plot("Slow uploads at once", tuple(panels))


def _seconds_of(samples: Sequence[Sample]) -> list[float]:
    return [sample.seconds for sample in samples]


def _memory_of(samples: Sequence[Sample]) -> list[float]:
    return [sample.peak_mib for sample in samples]


BENCHMARK = Benchmark(
    name="many_uploaders",
    summary="up to 1000 uploads at 200 KB/s each, by worker class",
    run=run,
    draw=draw,
    needed_bytes=25 * GB,
)
