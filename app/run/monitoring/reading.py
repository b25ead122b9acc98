"""The counts of all processes, as text for Prometheus and as numbers for a page."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from app.run.monitoring.folder import STARTED, VARIABLE
from app.run.monitoring.instruments import Instruments


@dataclass(frozen=True, slots=True)
class SharedCounts(Collector):
    """The counts in the files of all processes of the server."""

    folder: Path

    def collect(self) -> Iterable[Metric]:
        """Their sums. A process killed while creating a file leaves an empty one."""
        files = [path for path in self.folder.glob("*.db") if path.stat().st_size]
        found: Iterable[Metric] = MultiProcessCollector.merge(map(str, files))  # type: ignore[no-untyped-call]
        return found


def all_counts(instruments: Instruments) -> Collector:
    """Collects the counts of this process and of those it shares a folder with."""
    folder = os.environ.get(VARIABLE)
    return instruments.registry if folder is None else SharedCounts(Path(folder))


def start_time(instruments: Instruments) -> float:
    """When the server started, in seconds since 1970."""
    mark = Path(os.environ.get(VARIABLE, ""), STARTED)
    return mark.stat().st_mtime if mark.is_file() else instruments.started


def forget_process(name: str) -> None:
    """Drop the in-progress gauges of a process that has ended; its counts stay."""
    if VARIABLE in os.environ:
        mark_process_dead(name)  # type: ignore[no-untyped-call]


class Snapshot:
    """Numbers of one moment, by name and labels."""

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
