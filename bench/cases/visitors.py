"""Many visitors at once, made by k6: the three scenarios of the write-up, by worker class."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.lib.harness import Benchmark, BenchServer, Lab
from bench.lib.meter import Meter
from bench.lib.plot import Plot, panel_of
from bench.lib.report import Table
from bench.lib.samples import GB, Sample, spread
from bench.lib.slow_wsgi import WORK_VARIABLE
from bench.lib.worker_classes import OURS, pick_workers, worker_options
from bench.peers.process import BUILT

K6 = BUILT / "k6" / "k6"
SCENARIO = Path(__file__).with_name("k6_scenario.js")


@dataclass(frozen=True, slots=True)
class Scenario:
    """A number of visitors for 30 s, and the work added to each request."""

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


STATISTICS = {"median, ms": "med", "95 %, ms": "p(95)"}
"""As in the table, and as k6 calls them."""


def run(lab: Lab) -> list[Table]:
    """Measure, and return the tables."""
    program = str(K6) if K6.exists() else shutil.which("k6")
    if program is None:
        return [Table("Visitors at once", ("not run",), [("k6 is missing: scripts/peers k6",)])]
    columns = (
        "scenario",
        "worker",
        "requests",
        "failed",
        "failed there*",
        *STATISTICS,
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
    module = "bench.lib.slow_serve" if scenario.work_milliseconds else "app.run.server.supervisor"
    with lab.server(module, **options) as server, Meter(server.processes()) as meter:
        summary = _load(lab, program, scenario, server)
        cpu_seconds, peak_bytes = meter.cpu_seconds, meter.peak_bytes
    requests, duration = int(summary["http_reqs"]["count"]), summary["http_req_duration"]
    failed = 100 * (1 - summary["checks"]["value"])
    print(f"  {scenario.name}, {worker}: {requests} requests, {failed:.2f} % failed", flush=True)
    for statistic, name in STATISTICS.items():
        case, seconds = f"{scenario.name}: {statistic}: {worker}", duration[name] / 1000
        lab.samples.append(Sample(case=case, round=0, byte_count=0, seconds=seconds))
    return (
        str(requests),
        f"{failed:.2f} %",
        scenario.write_up,
        *(f"{duration[name]:.0f}" for name in STATISTICS.values()),
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
            "DURATION": f"{lab.pick(30, 3)}s",
        },
        check=True,
        capture_output=True,
    )
    metrics: dict[str, dict[str, float]] = json.loads(summary.read_text())["metrics"]
    return metrics


def draw(lab: Lab) -> Plot:
    """How long an answer took in each scenario."""
    panels = []
    for scenario in SCENARIOS:
        for statistic in STATISTICS:
            if found := lab.cases(f"{scenario.name}: {statistic}: "):
                title = f"{scenario.name}: {statistic}"
                panels.append(panel_of(title, found, _milliseconds, ours=[OURS]))
    return Plot("Visitors at once", tuple(panels))


def _milliseconds(samples: Sequence[Sample]) -> list[float]:
    return [sample.seconds * 1000 for sample in samples]


BENCHMARK = Benchmark(
    name="visitors",
    summary="100 and 1000 visitors for 30 s, by worker class (k6)",
    run=run,
    draw=draw,
    needed_bytes=1 * GB,
)
