"""Visitors at once, as k6 makes them: the three scenarios of the write-up, by worker class."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bench.harness import GB, Benchmark, BenchServer, Lab
from bench.meter import Meter
from bench.report import Table, spread
from bench.slow_wsgi import WORK_VARIABLE
from bench.worker_classes import pick_workers, worker_options

K6 = Path(__file__).parent.parent / ".tools" / "peers" / "k6" / "k6"
SCENARIO = Path(__file__).with_name("k6_scenario.js")


@dataclass(frozen=True, slots=True)
class Scenario:
    """So many visitors for 30 s, each request with so much work added."""

    visitors: int
    work_milliseconds: int
    write_up: str

    @property
    def name(self) -> str:
        """As in the table."""
        work = f", {self.work_milliseconds} ms of work" if self.work_milliseconds else ""
        return f"{self.visitors} visitors{work}"


SCENARIOS = (
    Scenario(100, 0, "1.10 / 0.71 / 0.27 %"),
    Scenario(1000, 0, "6.64 / 30.43 / 3.56 %"),
    Scenario(100, 400, "83.5 / 4.48 / 14.2 %"),
)


def run(lab: Lab) -> list[Table]:
    """Measure and tell."""
    program = str(K6) if K6.exists() else shutil.which("k6")
    if program is None:
        return [Table("Visitors at once", ("not run",), [("k6 is missing: scripts/peers k6",)])]
    columns = (
        "scenario",
        "worker",
        "requests",
        "failed",
        "failed there*",
        "median, ms",
        "95 %, ms",
        "CPU ms/request",
        "memory above idle, MiB",
    )
    rows = [
        (scenario.name, worker, *_measure(lab, program, scenario, worker))
        for scenario in (SCENARIOS[:1] if lab.is_quick else SCENARIOS)
        for worker in pick_workers(lab)
    ]
    notes = (
        "\\* One thread for all / a thread for each request / a selector, in the write-up. A "
        "request has failed that was not answered as it should be: 200, 201, 204, and 400 or 404 "
        "where that is right. Each visitor lists videos, creates an upload, ends it, asks for one "
        "that is not there, and sends a malformed body. The work is waiting, as for another "
        "service.",
    )
    return [Table("Visitors at once", columns, rows, notes)]


def _measure(lab: Lab, program: str, scenario: Scenario, worker: str) -> tuple[str, ...]:
    options = worker_options(worker) | {WORK_VARIABLE: str(scenario.work_milliseconds)}
    module = "bench.slow_serve" if scenario.work_milliseconds else "app.serve"
    with lab.server(module, **options) as server, Meter(server.processes()) as meter:
        summary = _load(lab, program, scenario, server)
        cpu_seconds, peak_bytes = meter.cpu_seconds, meter.peak_bytes
    requests, duration = int(summary["http_reqs"]["count"]), summary["http_req_duration"]
    failed = 100 * (1 - summary["checks"]["value"])
    print(f"  {scenario.name}, {worker}: {requests} requests, {failed:.2f} % failed", flush=True)
    return (
        str(requests),
        f"{failed:.2f} %",
        scenario.write_up,
        f"{duration['med']:.0f}",
        f"{duration['p(95)']:.0f}",
        spread([cpu_seconds / max(1, requests) * 1000], 2),
        spread([peak_bytes / 1024**2]),
    )


def _load(
    lab: Lab, program: str, scenario: Scenario, server: BenchServer
) -> dict[str, dict[str, float]]:
    """What k6 counted, by its names."""
    summary = lab.folder / "k6.json"
    options = ["--quiet", "--no-usage-report", f"--summary-export={summary}"]
    subprocess.run(
        [program, "run", *options, str(SCENARIO)],
        env={
            **os.environ,
            "SLUICE_URL": server.url,
            "VISITORS": str(scenario.visitors),
            "DURATION": f"{lab.pick(30, 5)}s",
        },
        check=True,
        capture_output=True,
    )
    metrics: dict[str, dict[str, float]] = json.loads(summary.read_text())["metrics"]
    return metrics


BENCHMARK = Benchmark(
    name="visitors",
    summary="100 and 1000 visitors for 30 s, by worker class (k6)",
    run=run,
    needed_bytes=1 * GB,
)
