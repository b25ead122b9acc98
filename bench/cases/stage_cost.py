"""What timing and counting cost a request, in microseconds; no server, disk or network.

A process of its own measures: the counts go to files that several processes share, as the
server's do, and prometheus-client decides on that once, when it is imported.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Sequence
from pathlib import Path

from app.ingest import stages
from app.run.monitoring.instruments import Instruments
from bench.lib.harness import Benchmark, Lab
from bench.lib.plot import Plot, panel_of
from bench.lib.report import Table
from bench.lib.samples import Sample, spread

CALLS, QUICK_CALLS = 20_000, 2000
SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"

NOTE = (
    "CPU time of the process, so that others on the machine do not count. Stages are what "
    "`Server-Timing` and /metrics tell of a request. Counts go to files in memory."
)


def run(lab: Lab) -> list[Table]:
    """Measure, and return the tables."""
    for number in lab.rounds():
        for what, microseconds in _measure_in_child(lab.pick(CALLS, QUICK_CALLS)).items():
            seconds = microseconds / 1e6
            lab.samples.append(Sample(case=what, round=number, byte_count=0, seconds=seconds))
    rows: list[tuple[str, ...]] = [
        (what, spread(_microseconds(samples), 2)) for what, samples in lab.cases().items()
    ]
    return [Table("Timing and counting", ("what", "microseconds"), rows, (NOTE,))]


def _measure_in_child(calls: int) -> dict[str, float]:
    memory = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        found = subprocess.run(
            [sys.executable, "-m", __name__, str(calls)],
            env={**os.environ, SHARED_FOLDER: folder},
            check=True,
            capture_output=True,
        )
    costs: dict[str, float] = json.loads(found.stdout)
    return costs


def measure(calls: int) -> dict[str, float]:
    """Microseconds of CPU a call, by what is called."""

    def enter() -> None:
        with stages.Stage.SYNC:
            pass

    def block() -> None:
        """What `FileCopy` does for a spliced block: fill the pipe, empty it."""
        for _ in range(2):
            enter()
        stages.note_arrival(1 << 20)

    costs = {"a stage, without a clock": cost(enter, calls)}
    token = stages.start(stages.StageClock())
    costs["a stage, with a clock"] = cost(enter, calls)
    costs["a block of a body: two stages and its bytes"] = cost(block, calls)
    stages.stop(token)
    instruments, spent = Instruments(), dict.fromkeys(stages.Stage, 0.01)
    costs["the counts of a request"] = cost(lambda: count_request(instruments), calls)
    costs["its stages besides"] = cost(lambda: instruments.count_stages(spent), calls)
    return costs


def count_request(instruments: Instruments) -> None:
    """What `app.run.monitoring.requests` does for each request."""
    instruments.requests_in_progress("tus").inc()
    instruments.requests("tus", "PATCH", "2xx").inc()
    instruments.requests_in_progress("tus").dec()
    instruments.request_seconds("tus").observe(0.01)


def cost(work: Callable[[], object], calls: int) -> float:
    """Microseconds of CPU a call."""
    return timeit.timeit(work, timer=time.process_time, number=calls) / calls * 1e6


def draw(lab: Lab) -> Plot:
    """All costs."""
    cases = lab.cases()
    panel = panel_of("microseconds", cases, _microseconds, ours=cases, digits=2)
    return Plot("Timing and counting", (panel,))


def _microseconds(samples: Sequence[Sample]) -> list[float]:
    return [sample.seconds * 1e6 for sample in samples]


BENCHMARK = Benchmark(
    name="stage_cost",
    summary="what timing and counting cost a request",
    run=run,
    draw=draw,
    needed_bytes=0,
    rounds=9,
    quick_seconds=2,
)

if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]))))
