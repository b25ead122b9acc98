"""How long a start takes, from the start of the process to the first page."""

from __future__ import annotations

import http.client
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing

import psutil

from bench.lib.harness import Benchmark, BenchServer, Lab
from bench.lib.plot import Plot, panel_of
from bench.lib.report import Table
from bench.lib.samples import Sample, spread
from tests.live_server import ROOT, START_SECONDS

FRESH, KILLED = "new data folder", "after kill -9"

ASK_SECONDS = 0.01

SETTLE_SECONDS = 3.0
"""After an answer, until the other processes have begun too."""

NOTE = (
    "From the start of the process to the end of the first GET / that is answered 200, asked every "
    "10 ms. Settings: the defaults. The Python files are compiled, as an installation leaves them."
)


def run(lab: Lab) -> list[Table]:
    """Measure and tell."""
    _compile()
    for number in lab.rounds():
        folder = lab.folder / f"start-{number}"
        folder.mkdir()
        server = BenchServer(folder)
        lab.keep(_started(server, FRESH, number))
        time.sleep(SETTLE_SECONDS)
        server.stop(signal.SIGKILL)
        lab.keep(_started(server, KILLED, number))
        time.sleep(SETTLE_SECONDS)
        server.stop()
        shutil.rmtree(folder)
    rows: list[tuple[str, ...]] = [
        (case, spread(_seconds(lab.of(case)), 2), spread(_cpu_seconds(lab.of(case)), 2))
        for case in (FRESH, KILLED)
    ]
    return [Table("A start", ("start", "seconds", "CPU s of all processes"), rows, (NOTE,))]


def _compile() -> None:
    """Some environments keep Python from doing that by itself."""
    command = [sys.executable, "-m", "compileall", "-q", "app", "wsgi.py"]
    subprocess.run(command, cwd=ROOT, check=True)


def _started(server: BenchServer, case: str, number: int) -> Sample:
    with (server.folder / "log").open("ab") as log:
        began = time.monotonic()
        server.process = subprocess.Popen(
            [sys.executable, "-m", server.module],
            cwd=ROOT,
            env=server.environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        while not _answers(server.port):
            if server.process.poll() is not None or time.monotonic() > began + START_SECONDS:
                raise RuntimeError(f"the server did not start:\n{server.log}")
            time.sleep(ASK_SECONDS)
        seconds = time.monotonic() - began
    cpu = sum(_cpu_of(process) for process in server.processes())
    return Sample(case=case, round=number, byte_count=0, seconds=seconds, cpu_seconds=cpu)


def _answers(port: int) -> bool:
    with closing(
        http.client.HTTPConnection("127.0.0.1", port, timeout=START_SECONDS)
    ) as connection:
        try:
            connection.request("GET", "/")
            return connection.getresponse().status == http.client.OK
        except OSError:
            return False


def _cpu_of(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


def _seconds(samples: Sequence[Sample]) -> list[float]:
    return [sample.seconds for sample in samples]


def _cpu_seconds(samples: Sequence[Sample]) -> list[float]:
    return [sample.cpu_seconds or 0 for sample in samples]


def draw(lab: Lab) -> Plot:
    """Both."""
    panel = panel_of("seconds to the first page", lab.cases(), _seconds, ours=[FRESH, KILLED])
    return Plot("A start", (panel,))


BENCHMARK = Benchmark(
    name="start",
    summary="from the start of the process to the first page, new and after kill -9",
    run=run,
    draw=draw,
    needed_bytes=0,
    rounds=5,
    quick_seconds=2,
)
