"""Every counter, histogram and gauge, and how the counts of all processes are read.

docs/operations.md has the same table. Every label has few values, regardless of what clients send:
unknown ones count as `other`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, values
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from app.core.lifecycle import GONE, UploadState
from app.http.services import Services
from app.ingest.stages import Stage
from app.run.monitoring.folder import STARTED, VARIABLE, process_name, reserve_files
from app.storage.local.folder import free_bytes

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER = "other"
"""Labels of methods, and of any other."""

WATCHERS = ("metrics", "status", "api_status", "health")
"""Monitoring requests, which are not counted: an idle server would look busy."""

CREATED = "created"

UPLOAD_EVENTS = {CREATED, UploadState.COMPLETE.value, *(state.value for state in GONE)}

SECONDS = (
    *(0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05),
    *(0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 300),
)
"""Upper bounds of the histogram buckets; medians are exact to about a third."""


class Instruments:
    """The metrics of one process. A process that shares its counts may have only one instance."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.started = time.time()
        if VARIABLE in os.environ:
            values.ValueClass = _shared_value_class()
            reserve_files(Path(os.environ[VARIABLE]))

        # Of requests. An instrument with labels is a function from label values to a counter:
        # looking one up in prometheus-client takes a lock, and as long as the count itself.
        self.requests = cache(
            self._counter(
                "sluice_requests", "Requests answered.", "protocol", "method", "status"
            ).labels
        )
        self.request_seconds = cache(
            self._histogram(
                "sluice_request_seconds", "Time to an answer, before it is sent.", "protocol"
            ).labels
        )
        self.requests_in_progress = cache(
            self._live_gauge(
                "sluice_requests_in_progress", "Requests that have no answer yet.", "protocol"
            ).labels
        )
        self.received_bytes = cache(
            self._counter(
                "sluice_received_bytes", "Bytes of request bodies that have arrived.", "protocol"
            ).labels
        )
        self.errors = cache(self._counter("sluice_errors", "Errors answered.", "code").labels)

        # Of stored files and uploads.
        self.sent_bytes = self._counter("sluice_sent_bytes", "Bytes of stored files sent.")
        self.downloads_in_progress = self._live_gauge(
            "sluice_downloads_in_progress", "Stored files, or ranges of them, being sent."
        )
        self.stage_seconds = cache(
            self._histogram(
                "sluice_stage_seconds", "Time a request that writes spent in a stage.", "stage"
            ).labels
        )
        self.uploads = cache(
            self._counter("sluice_uploads", "Uploads by what became of them.", "event").labels
        )

        # Of media jobs.
        self.job_seconds = cache(
            self._histogram(
                "sluice_job_seconds", "Time that an attempt of a media job took.", "step"
            ).labels
        )
        self.job_attempts = cache(
            self._counter(
                "sluice_job_attempts", "Attempts of media jobs.", "step", "outcome"
            ).labels
        )

    def count_job(self, step: str, outcome: str, seconds: float) -> None:
        """Count an attempt of a media job; the outcome is one of `media.worker.OUTCOMES`."""
        self.job_seconds(step).observe(seconds)
        self.job_attempts(step, outcome).inc()

    def count_stages(self, seconds: Mapping[Stage, float]) -> None:
        """Count the seconds that one request spent in each stage."""
        for stage, spent in seconds.items():
            self.stage_seconds(stage.value).observe(spent)

    def count_upload(self, event: str) -> None:
        """Count one of `UPLOAD_EVENTS`; other states are ignored."""
        if event in UPLOAD_EVENTS:
            self.uploads(event).inc()

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(name, text, labels, registry=self.registry, buckets=SECONDS)

    def _live_gauge(self, name: str, text: str, *labels: str) -> Gauge:
        """A gauge summed over live processes: a killed one leaves nothing in progress."""
        return Gauge(name, text, labels, registry=self.registry, multiprocess_mode="livesum")


@cache
def _shared_value_class() -> Any:
    """prometheus-client's value class with our process names in file names; one per process."""
    return values.MultiProcessValue(process_name)  # type: ignore[no-untyped-call]


# ---- reading the counts of all processes ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SharedCounts(Collector):
    """The counts in the files of all processes of the server."""

    folder: Path

    def collect(self) -> Iterable[Metric]:
        """Sums over all files. A process killed while creating a file leaves an empty one."""
        files = [path for path in self.folder.glob("*.db") if path.stat().st_size]
        found: Iterable[Metric] = MultiProcessCollector.merge(map(str, files))  # type: ignore[no-untyped-call]
        return found


def all_counts(instruments: Instruments) -> Collector:
    """A collector for the counts of this process and of those that share its folder."""
    folder = os.environ.get(VARIABLE)
    return instruments.registry if folder is None else SharedCounts(Path(folder))


def start_time(instruments: Instruments) -> float:
    """When the server started, in seconds since 1970."""
    mark = Path(os.environ.get(VARIABLE, ""), STARTED)
    return mark.stat().st_mtime if mark.is_file() else instruments.started


def forget_process(name: str) -> None:
    """Drop the in-progress gauges of a process that has ended; its counts are kept."""
    if VARIABLE in os.environ:
        mark_process_dead(name)  # type: ignore[no-untyped-call]


class Snapshot:
    """Metrics at one point in time, by name and labels."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._samples = [sample for metric in metrics for sample in metric.samples]

    def total(self, name: str, **labels: str) -> float:
        """The sum of all samples that have the given labels."""
        return sum(value for _, value in self._matching(name, labels))

    def by(self, label: str, name: str, **labels: str) -> dict[str, float]:
        """Sums by the value of one label."""
        sums: dict[str, float] = {}
        for found, value in self._matching(name, labels):
            sums[found[label]] = sums.get(found[label], 0.0) + value
        return sums

    def quantile(self, share: float, name: str, **labels: str) -> float | None:
        """A quantile (0.5 is the median) of a histogram's observations; None without any.

        Interpolated linearly within a bucket.
        """
        sums = self.by("le", f"{name}_bucket", **labels)
        buckets = sorted((float(bound), count) for bound, count in sums.items())
        wanted = share * (buckets[-1][1] if buckets else 0)
        lower, below = 0.0, 0.0
        for bound, count in buckets:
            if count >= wanted and count > below:
                upper = bound if bound != float("inf") else lower
                return lower + (upper - lower) * (wanted - below) / (count - below)
            lower, below = bound, count
        return None

    def _matching(
        self, name: str, labels: dict[str, str]
    ) -> Iterator[tuple[dict[str, str], float]]:
        for sample in self._samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                yield sample.labels, sample.value


# ---- node counts ---------------------------------------------------------------------------------

# A node's current activity as a few numbers, for the status page of a fleet.


PROBLEM_SECONDS = 10.0
"""How often the set-up is checked; each check writes to the folders."""


NOTHING: Mapping[str, Any] = {
    "requests_now": 0,
    "downloads_now": 0,
    "received_bytes_per_second": 0,
    "sent_bytes_per_second": 0,
    "free_bytes": None,
    "problems": [],
}
"""Numbers for a node that is gone, or does not report them."""


@dataclass(eq=False)
class NodeCounts:
    """Reads the counts of all processes of a node; rates are those between two readings."""

    services: Services
    instruments: Instruments
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._read_at = float("-inf")
        self._received = self._sent = 0.0
        self._checked_at = float("-inf")
        self._problems: list[str] = []

    def read(self) -> dict[str, Any]:
        """The current numbers, serializable as JSON."""
        counts, now = Snapshot(all_counts(self.instruments).collect()), self.clock()
        if now >= self._checked_at + PROBLEM_SECONDS:
            self._checked_at = now
            self._problems = [problem.code for problem in self.services.problems()]
        elapsed, self._read_at = max(now - self._read_at, 0.001), now
        before = self._received, self._sent
        self._received = counts.total("sluice_received_bytes_total")
        self._sent = counts.total("sluice_sent_bytes_total")
        return {
            "requests_now": running_requests(counts),
            "downloads_now": int(counts.total("sluice_downloads_in_progress")),
            "received_bytes_per_second": round((self._received - before[0]) / elapsed),
            "sent_bytes_per_second": round((self._sent - before[1]) / elapsed),
            "free_bytes": free_bytes(self.services.settings.staging_dir),
            "problems": self._problems,
        }


def running_requests(counts: Snapshot) -> int:
    """Active requests, except monitoring."""
    running = counts.by("protocol", "sluice_requests_in_progress")
    return int(sum(count for name, count in running.items() if name not in WATCHERS))
