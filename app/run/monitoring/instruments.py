"""Every counter, histogram and gauge, with its labels; docs/operations.md has the same table.

Every label has few values, regardless of what clients send: unknown ones count as `other`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, values

from app.core.lifecycle import GONE, UploadState
from app.ingest.stages import Stage
from app.run.monitoring.folder import VARIABLE, process_name, reserve_files

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

OTHER = "other"

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


def known_method(method: str) -> str:
    """The method as a label."""
    return method if method in METHODS else OTHER
