"""Totals, sums and quantiles from counters."""

from __future__ import annotations

import pytest

from app.ingest.stages import Stage
from app.run.monitoring.instruments import Instruments, Snapshot

STAGES = "sluice_stage_seconds"


@pytest.fixture
def instruments() -> Instruments:
    return Instruments()


def read(instruments: Instruments) -> Snapshot:
    return Snapshot(instruments.registry.collect())


def test_totals_and_sums_by_a_label(instruments: Instruments) -> None:
    for protocol, status, count in (("tus", "2xx", 3), ("tus", "4xx", 1), ("batch", "2xx", 5)):
        instruments.requests(protocol, "POST", status).inc(count)
    counts = read(instruments)
    assert counts.total("sluice_requests_total") == 9
    assert counts.total("sluice_requests_total", status="2xx") == 8
    assert counts.by("protocol", "sluice_requests_total") == {"tus": 4, "batch": 5}
    assert counts.by("protocol", "sluice_errors_total") == {}


@pytest.mark.parametrize("seconds", [0.00015, 0.004, 0.07, 0.9, 40.0])
def test_a_median_is_accurate_to_its_bucket(instruments: Instruments, seconds: float) -> None:
    for spent in (seconds / 50, seconds, seconds, seconds, seconds * 50):
        instruments.count_stages({Stage.SYNC: spent})
    median = read(instruments).quantile(0.5, STAGES, stage="sync")
    assert median is not None
    assert seconds / 3 <= median <= seconds * 3


def test_a_quantile_without_values_is_none_and_one_past_the_last_bucket_is_its_bound(
    instruments: Instruments,
) -> None:
    assert read(instruments).quantile(0.5, STAGES, stage="sync") is None
    instruments.count_stages({Stage.SYNC: 10_000.0})
    assert read(instruments).quantile(0.5, STAGES, stage="sync") == 300


def test_only_steps_that_decide_an_uploads_fate_are_counted(instruments: Instruments) -> None:
    for event in ("created", "verifying", "complete", "held", "receiving", "expired"):
        instruments.count_upload(event)
    counts = read(instruments).by("event", "sluice_uploads_total")
    assert counts == {"created": 1, "complete": 1, "expired": 1}
