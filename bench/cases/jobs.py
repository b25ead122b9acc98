"""How soon a job starts after the commit that makes it due, and what an idle worker costs.

This process commits as a web worker does. The background worker beside it is that of the same
machine, or of another node, which shares the database and nothing else.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from secrets import token_hex
from statistics import median, quantiles

import psutil

from app.access import webhooks
from app.access.webhooks import EventType
from app.core.access import FIRST_PROJECT, LOCAL, Scope
from app.core.lifecycle import UploadState
from app.core.upload import Upload, UploadId
from app.http.services import Services
from app.run.build import build_services
from app.settings import from_env
from bench.lib.harness import Benchmark, Lab
from bench.lib.meter import await_quiet, cpu_seconds_of
from bench.lib.plot import Plot, panel_of
from bench.lib.report import Table, Target, target_table
from bench.lib.samples import GB, Sample, spread
from bench.peers.buckets import running_postgresql
from tests.live_server import ROOT, leave_measurement

SQLITE, POSTGRESQL = "SQLite", "PostgreSQL"
SAME, OTHER = "same machine", "another node"
PLACES = ((SQLITE, SAME), (POSTGRESQL, SAME), (POSTGRESQL, OTHER))
MEDIA, DELIVERY, IDLE = "media job", "webhook delivery", "idle"

COMMITS, QUICK_COMMITS = 20, 3
"""In each place and round."""

PAUSE_SECONDS = (0.7, 1.7)
"""From a start to the next commit, at random: workers look for work every second or two."""

LOOK_SECONDS = 0.005
"""Pause between two looks whether a job has started."""

LONGEST_START_SECONDS = 30.0

IDLE_SECONDS, QUICK_IDLE_SECONDS = 30, 3
SETTLE_SECONDS = 1.0

WANTED_SECONDS = {SAME: 0.05, OTHER: 1.0}

START_COLUMNS = (
    *("database", "worker"),
    *("media job, median ms", "media job, p90"),
    *("webhook delivery, median ms", "webhook delivery, p90"),
)
START_NOTE = (
    "From the end of the transaction that completes an upload until its first job is claimed, "
    "looked for every 5 ms, and until the receiver has the event. Between two commits there are "
    "0.7 to 1.7 s. A commit wakes the worker of its machine; others look once a second."
)
IDLE_NOTE = "User and system time of the background worker while there are no requests or jobs."


def run(lab: Lab) -> list[Table]:
    """Measure, and return the tables; raises `NotRunnable` without PostgreSQL."""
    with running_postgresql() as server, _receiver() as arrivals:
        for number in lab.rounds():
            for database, where in lab.in_time(PLACES[:: -1 if number % 2 else 1]):
                settings = {"SLUICE_WEBHOOK_PRIVATE": "true"}
                if database == POSTGRESQL:
                    settings["SLUICE_DATABASE_URL"] = server.create(f"jobs_{token_hex(4)}")
                with lab.scratch("jobs") as folder:
                    own, other = folder / "own", folder / "other"
                    data = own if where == SAME else other
                    with (
                        _committer(own, settings, arrivals) as commits,
                        _background_worker(data, settings) as worker,
                    ):
                        _measure_idle(lab, number, database, worker)
                        _measure_starts(lab, number, f"{database}, {where}", commits)
    starts = [_start_row(lab, database, where) for database, where in PLACES]
    idle: list[tuple[str, ...]] = [
        (database, spread(_idle_costs(lab.of(f"{database}: {IDLE}")), 2))
        for database in (SQLITE, POSTGRESQL)
    ]
    return [
        Table("From commit to start", START_COLUMNS, starts, (START_NOTE,)),
        Table("An idle background worker", ("database", "CPU s a minute"), idle, (IDLE_NOTE,)),
        _targets(lab),
    ]


# ---- measuring -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arrivals:
    """A receiver of webhooks, and when it got the event of each upload."""

    url: str
    moments: dict[str, float] = field(default_factory=dict)


@contextmanager
def _receiver() -> Iterator[Arrivals]:
    """A server that notes each event as soon as it has read it."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            arrivals.moments[event["data"]["id"]] = time.perf_counter()
            self.send_response(HTTPStatus.NO_CONTENT)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        arrivals = Arrivals(f"http://127.0.0.1:{server.server_port}/")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield arrivals
        finally:
            server.shutdown()


@dataclass(frozen=True, slots=True)
class Committer:
    """Completes uploads in the database, and sees when their jobs start."""

    services: Services
    arrivals: Arrivals

    def commit(self) -> dict[str, float]:
        """Complete an upload; returns the seconds until each job has started."""
        services, now = self.services, self.services.context.clock()
        upload_id = UploadId(token_hex(16))
        upload = Upload(
            id=upload_id,
            owner=FIRST_PROJECT,
            filename="video.mp4",
            length=100,
            client_key=upload_id,
            fingerprint=None,
            created_at=now,
            active_at=now,
        )
        services.records.add(replace(upload, state=UploadState.VERIFYING))
        services.records.move(upload_id, UploadState.COMPLETE, now)
        began, found = time.perf_counter(), dict[str, float]()
        while len(found) < len((MEDIA, DELIVERY)):
            time.sleep(LOOK_SECONDS)
            seconds = time.perf_counter() - began
            if seconds > LONGEST_START_SECONDS:
                raise RuntimeError(f"of the jobs of an upload, only {sorted(found)} started")
            if MEDIA not in found and any(
                job.attempts for job in services.media.jobs.of(upload_id)
            ):
                found[MEDIA] = seconds
            if upload_id in self.arrivals.moments:
                found[DELIVERY] = self.arrivals.moments[upload_id] - began
        return found


@contextmanager
def _committer(data: Path, settings: dict[str, str], arrivals: Arrivals) -> Iterator[Committer]:
    """The services of a web worker, with a webhook for uploads that are complete."""
    services = build_services(from_env({**settings, "SLUICE_DATA_DIR": str(data)}))
    with closing(services.database):
        services.prepare()
        context = services.context.acting(LOCAL, scope=Scope(FIRST_PROJECT))
        webhooks.make(context, url=arrivals.url, events=[EventType.UPLOAD_COMPLETED])
        yield Committer(services, arrivals)


@contextmanager
def _background_worker(data: Path, settings: dict[str, str]) -> Iterator[psutil.Process]:
    """The background worker of a server with this data folder, once it has nothing to do."""
    leave_measurement(data)
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
    with (data.parent / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "app.run.server.background_worker"],
            cwd=ROOT,
            env={**inherited, **settings, "SLUICE_DATA_DIR": str(data)},
            stdout=log,
            stderr=log,
        )
    try:
        family = psutil.Process(process.pid)
        await_quiet(lambda: [family, *family.children(recursive=True)], SETTLE_SECONDS)
        yield family
    finally:
        process.terminate()
        process.wait()


def _measure_idle(lab: Lab, number: int, database: str, worker: psutil.Process) -> None:
    """Add what the worker uses while it has nothing to do."""
    before, began = cpu_seconds_of([worker]), time.perf_counter()
    time.sleep(lab.pick(IDLE_SECONDS, QUICK_IDLE_SECONDS))
    used, seconds = cpu_seconds_of([worker]) - before, time.perf_counter() - began
    case = f"{database}: {IDLE}"
    lab.keep(Sample(case=case, round=number, byte_count=0, seconds=seconds, cpu_seconds=used))


def _measure_starts(lab: Lab, number: int, place: str, commits: Committer) -> None:
    """Add the starts of the jobs of some uploads."""
    commits.commit()  # The worker imports and connects.
    random = Random(number)
    for _ in range(lab.pick(COMMITS, QUICK_COMMITS)):
        time.sleep(random.uniform(*PAUSE_SECONDS))
        for what, taken in commits.commit().items():
            case = f"{place}: {what}"
            lab.samples.append(Sample(case=case, round=number, byte_count=0, seconds=taken))


# ---- tables --------------------------------------------------------------------------------------


def _start_row(lab: Lab, database: str, where: str) -> tuple[str, ...]:
    """Milliseconds of both kinds of jobs in one place."""
    cells = [database, where]
    for what in (MEDIA, DELIVERY):
        found = _milliseconds(lab.of(f"{database}, {where}: {what}"))
        cells.append(spread(found))
        if len(found) > 1:
            cells.append(f"{quantiles(found, n=10, method='inclusive')[-1]:.0f}")
        else:
            cells.append("-")
    return tuple(cells)


def _milliseconds(samples: Sequence[Sample]) -> list[float]:
    """From the commit to the start."""
    return [1000 * sample.seconds for sample in samples]


def _idle_costs(samples: Sequence[Sample]) -> list[float]:
    """CPU seconds a minute."""
    return [60 * (sample.cpu_seconds or 0) / sample.seconds for sample in samples]


def _targets(lab: Lab) -> Table:
    """The medians, in seconds."""
    wanted = []
    for database, where in PLACES:
        for what in (MEDIA, DELIVERY):
            case = f"{database}, {where}: {what}"
            found = [sample.seconds for sample in lab.of(case)]
            measured = median(found) if found else None
            limit = WANTED_SECONDS[where]
            wanted.append(Target(what=f"{case}, median s", measured=measured, at_most=limit))
    return target_table(wanted)


def draw(lab: Lab) -> Plot:
    """Starts of both kinds, and the idle worker."""
    panels = []
    for what in (MEDIA, DELIVERY):
        cases = {
            f"{database}, {where}": lab.of(f"{database}, {where}: {what}")
            for database, where in PLACES
        }
        panels.append(panel_of(f"{what}: ms from the commit", cases, _milliseconds, ours=cases))
    idle = {database: lab.of(f"{database}: {IDLE}") for database in (SQLITE, POSTGRESQL)}
    panels.append(panel_of("idle: CPU s a minute", idle, _idle_costs, ours=idle, digits=2))
    return Plot("From commit to start", tuple(panels))


BENCHMARK = Benchmark(
    name="jobs",
    summary="from a commit to the start of its jobs, and an idle background worker",
    run=run,
    draw=draw,
    needed_bytes=GB // 10,
    rounds=3,
    seconds=600,
    quick_seconds=1,
)
