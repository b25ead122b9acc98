"""The tables of docs/operations.md match the server."""

from __future__ import annotations

import re

from prometheus_client import generate_latest

from app.ingest.stages import Stage
from app.run.monitoring.instruments import Instruments
from tests.architecture.sources import ROOT
from tests.dropzone_client import ChunkedFile, random_bytes, send_all
from tests.live_server import Server
from tests.run.monitoring.scrape import labels_by_name

METRIC_ROW = re.compile(r"^\| `(sluice_[a-z_]+)` \| ([^|]+) \|", re.MULTILINE)
AFTER_A_JOB = {"sluice_job_seconds", "sluice_job_attempts_total"}
"""Metrics of the background worker, which begin with its first job."""

STAGE_ROW = re.compile(r"^\| `([a-z]+)` \| [^|]+ \|$", re.MULTILINE)


def operations() -> str:
    return (ROOT / "docs/operations.md").read_text(encoding="utf-8")


def documented() -> dict[str, set[str]]:
    """The documented metrics, with the names of their labels."""
    rows = METRIC_ROW.findall(operations())
    assert len(rows) == len(dict(rows))
    return {name: set(re.findall(r"`([a-z]+)`", labels)) for name, labels in rows}


def test_the_table_has_every_metric_with_its_labels_and_no_other(server: Server) -> None:
    media = send_all(server, ChunkedFile(random_bytes(1000), 1000))["media"]
    server.get(media)
    server.get(f"/api/uploads/{'0' * 32}")
    found = labels_by_name(server)
    assert {name: found[name] for name in found.keys() - AFTER_A_JOB} == {
        name: documented()[name] for name in documented().keys() - AFTER_A_JOB
    }


def test_the_table_has_what_a_media_job_counts() -> None:
    instruments = Instruments()
    instruments.count_job("index", "done", 0.1)
    text = generate_latest(instruments.registry).decode()
    assert set(re.findall(r"^(sluice_job_\w+?)(?:_bucket)?\{", text, re.MULTILINE)) >= AFTER_A_JOB
    assert documented()["sluice_job_seconds"] == {"step"}
    assert documented()["sluice_job_attempts_total"] == {"step", "outcome"}


def test_the_table_of_stages_matches_the_code() -> None:
    section = operations().partition("The stages of a request")[2].partition("\n\n## ")[0]
    assert STAGE_ROW.findall(section) == [stage.value for stage in Stage]


def test_the_alerts_name_metrics_that_exist() -> None:
    alerts = operations().partition("```yaml")[2].partition("```")[0]
    named = re.findall(r"sluice_[a-z_]+", alerts)
    assert named
    assert {name.removesuffix("_bucket") for name in named} <= documented().keys()
