"""What the layout of files in a bucket costs: requests, CPU, completion, disk, a node's death.

It drives servers over HTTP alone, so that it measures any layout. The samples of an earlier one,
which a run with `--record` has saved, stand beside those of the code at hand.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from urllib.parse import parse_qs, urlencode, urlsplit

import psutil

from bench.lib.client import Connection, FileSlice
from bench.lib.harness import SPARE_BYTES, Benchmark, BenchServer, Lab, NotRunnable
from bench.lib.meter import await_idle, cpu_seconds_of, tree_cpu_seconds_of
from bench.lib.parallel import in_threads
from bench.lib.plot import Bars, Plot, panel_of
from bench.lib.report import Table, Target, target_table
from bench.lib.samples import GB, MB, Sample, spread
from bench.lib.uploading import CHUNK_BYTES, TUS_VERSION, patch
from bench.peers.buckets import running_postgresql
from scripts.fleet.postgresql import find_postgresql
from scripts.fleet.s3_servers import TOOLS, S3Server, garage, versitygw
from scripts.house import Source
from tests.fleet.faulty_proxy import Line, Plan, Request, Talk, forward_body, proxies

NOW, EARLIER = "now", "cells and parts"
"""The code at hand, and what it replaced."""

STORES: Mapping[str, Callable[[Path], S3Server]] = {"versitygw": versitygw, "Garage": garage}
CODE = Path(__file__).parents[2] / "app" / "storage" / "s3"

CONNECTIONS = 4
"""As our client opens."""

SMALL_CHUNK_BYTES = 1024 * 1024
WARM_UP_BYTES = 2 * CONNECTIONS * CHUNK_BYTES

COPIES = 3
"""Of a file that a store may hold at once: as objects, as parts, and joined."""

LOOK_SECONDS, EARLY_LOOK_SECONDS = 0.1, 0.5
NEAR_BYTES = 200 * MB
"""An upload that lacks more is looked at less often: looking costs the node CPU time."""

QUIET_SECONDS = 70.0
"""More than the minute between two sweeps, which delete what is no longer needed."""

WAIT_SECONDS = 1800.0
"""The longest for a file to become complete, and for a store to become quiet."""

RECORDED, COMPLETE = ("verifying", "complete"), ("complete",)
"""States of an upload from its last byte on, and from its publication on."""

LATE = 2.0
"""How much later than in the earlier layout the largest file may be complete."""

RESUMED_SECONDS = 35.0
"""After a death; from there on, completion may take what it takes undisturbed."""

MOST_CODE_LINES = 1400

NOTE = (
    "Medians of the rounds. Over HTTP on loopback, four connections, a single one for one PATCH; "
    "node, store, client and SQLite share the cores. CPU of the whole node until the file is "
    "complete. Seconds until complete are from the last byte that the record has, looked for every "
    "0.1 s. Bytes of the store are those that it wrote and read as /proc/PID/io counts them, per "
    "byte of the file: what it reads from the page cache is not in it. A node's death: kill -9 of "
    "the node that took the last bytes, as soon as all are recorded and before it has completed "
    "the file; of two nodes with PostgreSQL."
)

REQUEST_NOTE = (
    "From the creation of a file of 1 GB until it is complete and what it no longer needs is "
    "deleted. Amazon charges for those down to ListParts twelve times what it does for GET and "
    "HEAD, and nothing for the rest."
)


@dataclass(frozen=True, slots=True)
class Job:
    """An upload; without a chunk length it is one PATCH."""

    length: int
    chunk_bytes: int | None = CHUNK_BYTES
    rounds: int = 3
    mb_per_second: int | None = None
    """The client sends no faster; None for as fast as it can."""

    @property
    def name(self) -> str:
        """As rows begin."""
        return f"{self.length / GB:g} GB, {self.way}"

    @property
    def way(self) -> str:
        """How it is sent."""
        if self.chunk_bytes is None:
            return "one PATCH"
        pace = "" if self.mb_per_second is None else f" at {self.mb_per_second} MB/s"
        return f"chunks of {self.chunk_bytes // 1024**2} MiB{pace}"

    def slices(self, source: Path) -> Iterator[tuple[int, FileSlice]]:
        """Offsets and bytes of the chunks; a file longer than the source repeats it."""
        chunk_bytes = self.chunk_bytes or self.length
        room = source.stat().st_size - chunk_bytes
        for start in range(0, self.length, chunk_bytes):
            length = min(chunk_bytes, self.length - start)
            # Blocks of the next lap begin elsewhere, so that Garage stores them again.
            yield start, FileSlice(source, start % room if room else 0, length)


ONE, PATCH, SMALL = Job(GB), Job(GB, None), Job(GB, SMALL_CHUNK_BYTES)
LONG = Job(10 * GB, rounds=1)
PACED = Job(4 * GB, rounds=1, mb_per_second=100)
"""As over a line of a gigabit per second, which leaves time to copy pieces."""

JOBS = (ONE, PATCH, SMALL, LONG, PACED, Job(20 * GB, rounds=1))
QUICK_JOBS = (Job(160 * MB),)
COUNTED_JOBS = (ONE, PATCH, SMALL)
COMPUTED_BYTES = 100 * GB


def run(lab: Lab) -> list[Table]:
    """Measure what is not saved, and return the tables; raises `NotRunnable` without a store."""
    lab.resume(BENCHMARK.name)
    stores = {name: start for name, start in STORES.items() if (TOOLS / name.lower()).exists()}
    if not stores:
        raise NotRunnable("there is no S3 server: `make setup-dev` builds versitygw")
    jobs = QUICK_JOBS if lab.is_quick else JOBS
    source, warm_up = lab.source(jobs[0].length), lab.source(WARM_UP_BYTES, "warm-up")
    bench = _Bench(lab, source, warm_up, lab.record or NOW)
    if lab.is_due(case := bench.case("code"), 0):
        lines = sum(len(Source.read(path).code) for path in sorted(CODE.rglob("*.py")))
        lab.keep(Sample(case=case, round=0, byte_count=0, seconds=0.0, code_lines=lines))
    for number in lab.rounds():
        turns = [
            turn
            for name, start in stores.items()
            for case, turn in bench.turns(name, start, jobs, number)
            if lab.is_due(case, number)
        ]
        for measure in lab.in_time(turns[:: -1 if number % 2 else 1]):
            measure()
    tables = [table for name in STORES for table in _tables(lab, name)]
    return [*tables, _targets(lab)]


@dataclass(frozen=True, slots=True)
class _Bench:
    lab: Lab
    source: Path
    warm_up: Path
    """Other bytes: Garage stores equal blocks once."""
    layout: str

    def case(self, *words: str) -> str:
        """The name of a case."""
        return ", ".join((self.layout, *words))

    def turns(
        self, name: str, start: Callable[[Path], S3Server], jobs: Sequence[Job], number: int
    ) -> Iterator[tuple[str, Callable[[], None]]]:
        """The cases of a round, and what measures each."""
        free = shutil.disk_usage(self.lab.folder).free - SPARE_BYTES
        for job in jobs:
            if number >= job.rounds:
                continue
            if job.length * COPIES > free:
                print(f"  left out: {job.name}, the disk has no room for it", flush=True)
                continue
            case = self.case(name, job.name)
            yield case, partial(self._measure_upload, case, start, job, number)
        if number == 0 and not self.lab.is_quick:
            for job in COUNTED_JOBS:
                case = self.case(name, "requests", job.name)
                yield case, partial(self._count_requests, case, start, job)
        if find_postgresql() is not None and not self.lab.is_quick:
            case = self.case(name, "death", ONE.name)
            yield case, partial(self._measure_death, case, start, number)

    def _measure_upload(
        self, case: str, start: Callable[[Path], S3Server], job: Job, number: int
    ) -> None:
        with (
            _store(self.lab, start) as store,
            self.lab.server(**store.access.settings("films")) as server,
        ):
            keeper = [psutil.Process(store.program.pid)]
            _upload(server, replace(job, length=WARM_UP_BYTES), self.warm_up)
            await_idle(server.processes)
            upload = _create(server, job)
            written, read = _disk_bytes(keeper)
            store_cpu, cpu = cpu_seconds_of(keeper), tree_cpu_seconds_of(server.processes())
            began = time.perf_counter()
            with _sending(server, upload, [*job.slices(self.source)], job) as sent:
                recorded = _await_state(server, upload, RECORDED, sent)
                completed = _await_state(server, upload, COMPLETE, sent)
                sent.result()
            cpu = tree_cpu_seconds_of(server.processes()) - cpu
            written_after, read_after = _disk_bytes(keeper)
            self.lab.keep(
                Sample(
                    case=case,
                    round=number,
                    byte_count=job.length,
                    seconds=completed - began,
                    cpu_seconds=cpu,
                    store_cpu_seconds=cpu_seconds_of(keeper) - store_cpu,
                    complete_seconds=completed - recorded,
                    store_written_bytes=written_after - written,
                    store_read_bytes=read_after - read,
                )
            )

    def _count_requests(self, case: str, start: Callable[[Path], S3Server], job: Job) -> None:
        """In a round of its own: the proxy would take CPU time from the others."""
        counts: Counter[str] = Counter()
        with _store(self.lab, start) as store, proxies() as make_proxy:
            port = make_proxy(store.port, counting(counts), Plan(0)).port
            settings = store.access.settings("films", endpoint=f"http://127.0.0.1:{port}")
            with self.lab.server(**settings) as server:
                counts.clear()
                began = time.perf_counter()
                _upload(server, job, self.source)
                seconds = time.perf_counter() - began
                _await_quiet(counts)
        self.lab.keep(
            Sample(
                case=case, round=0, byte_count=job.length, seconds=seconds, requests=dict(counts)
            )
        )

    def _measure_death(self, case: str, start: Callable[[Path], S3Server], number: int) -> None:
        """The other node starts late, so that what works on the file runs on the one that dies.

        That one is kept from completing the file before its end.
        """
        slices = [*ONE.slices(self.source)]
        early, late = slices[:-CONNECTIONS], slices[-CONNECTIONS:]
        with (
            _store(self.lab, start) as store,
            running_postgresql() as postgresql,
            proxies() as make_proxy,
        ):
            talk = counting(Counter(), withheld="CompleteMultipartUpload")
            endpoint = f"http://127.0.0.1:{make_proxy(store.port, talk, Plan(0)).port}"
            settings = {
                "SLUICE_DATABASE_URL": postgresql.create("sluice"),
                **store.access.settings("films"),
            }
            with self.lab.server(**{**settings, "SLUICE_S3_ENDPOINT": endpoint}) as doomed:
                upload = _create(doomed, ONE)
                with _sending(doomed, upload, early, ONE) as sent:
                    sent.result()
                with self.lab.server(**settings) as other:
                    with _sending(doomed, upload, late, ONE) as sent:
                        _await_state(other, upload, RECORDED, sent)
                        died = time.perf_counter()
                        doomed.stop(signal.SIGKILL)
                        sent.exception()
                    completed = _await_state(other, upload, COMPLETE)
        seconds = completed - died
        self.lab.keep(
            Sample(
                case=case,
                round=number,
                byte_count=0,
                seconds=seconds,
                complete_seconds=seconds,
            )
        )


@contextmanager
def _store(lab: Lab, start: Callable[[Path], S3Server]) -> Iterator[S3Server]:
    with lab.scratch("store") as folder:
        store = start(folder)
        store.program.start()
        try:
            yield store
        finally:
            store.program.stop()


def _create(server: BenchServer, job: Job) -> str:
    """Its name is no video's: nothing looks at the file once it is complete."""
    headers = {"Upload-Length": str(job.length), "Upload-Metadata": "filename ZmlsZS5iaW4="}
    with Connection(server.port) as connection:
        created = connection.request("POST /tus/", {**TUS_VERSION, **headers})
    return urlsplit(created.headers["Location"]).path.rpartition("/")[2]


def _upload(server: BenchServer, job: Job, source: Path) -> None:
    """Return once the file is complete."""
    upload = _create(server, job)
    with _sending(server, upload, [*job.slices(source)], job) as sent:
        _await_state(server, upload, COMPLETE, sent)
        sent.result()


@contextmanager
def _sending(
    server: BenchServer, upload: str, slices: Sequence[tuple[int, FileSlice]], job: Job
) -> Iterator[Future[list[None]]]:
    """Sends in other threads: the last requests end when the file is complete."""
    waiting, began = deque(slices), time.monotonic()

    def send(_: int) -> None:
        with Connection(server.port) as connection:
            while waiting:
                try:
                    offset, body = waiting.popleft()
                except IndexError:
                    return
                if job.mb_per_second is not None:
                    due = began + offset / MB / job.mb_per_second
                    time.sleep(max(0.0, due - time.monotonic()))
                if job.chunk_bytes is None:
                    patch(connection, f"/tus/{upload}", body)
                    continue
                fields = {
                    "dzuuid": upload,
                    "dzchunkindex": offset // job.chunk_bytes,
                    "dztotalfilesize": job.length,
                    "dzchunksize": job.chunk_bytes,
                    "dztotalchunkcount": -(-job.length // job.chunk_bytes),
                    "dzchunkbyteoffset": offset,
                    "filename": "file.bin",
                }
                path = f"/upload?{urlencode(fields)}"
                connection.post(path, "application/octet-stream", body, around=(b"", b""))

    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(in_threads, CONNECTIONS, send)


def _await_state(
    server: BenchServer,
    upload: str,
    states: Collection[str],
    sent: Future[list[None]] | None = None,
) -> float:
    """When an upload was first seen in one of these states; raises what ended the sending."""
    deadline = time.monotonic() + WAIT_SECONDS
    with Connection(server.port) as connection:
        while time.monotonic() < deadline:
            found = connection.json(f"/api/uploads/{upload}")
            if found["state"] in states:
                return time.perf_counter()
            if sent is not None and sent.done():
                sent.result()
            is_near = found["length"] - found["offset"] < NEAR_BYTES
            time.sleep(LOOK_SECONDS if is_near else EARLY_LOOK_SECONDS)
    raise TimeoutError(f"the upload is {found['state']}, not one of {', '.join(states)}")


def _disk_bytes(processes: Sequence[psutil.Process]) -> tuple[int, int]:
    """Written and read."""
    found = [process.io_counters() for process in processes]
    return sum(one.write_bytes for one in found), sum(one.read_bytes for one in found)


# ---- requests to the store -----------------------------------------------------------------------

PAID = (
    "PutObject",
    "CopyObject",
    "CreateMultipartUpload",
    "UploadPart",
    "UploadPartCopy",
    "CompleteMultipartUpload",
    "ListObjects",
    "ListParts",
)
"""What Amazon charges as PUT, COPY, POST and LIST, 12 times the price of the next."""

READS = ("GetObject", "HeadObject")
FREE = ("DeleteObject", "DeleteObjects", "AbortMultipartUpload")
OTHER = "other"

COPY, OBJECT = "x-amz-copy-source", "/"
"""A header, and a path that names an object of the bucket."""


OPERATIONS = (
    ("UploadPartCopy", "PUT", {"partNumber", COPY}),
    ("UploadPart", "PUT", {"partNumber"}),
    ("CopyObject", "PUT", {OBJECT, COPY}),
    ("PutObject", "PUT", {OBJECT}),
    ("CreateMultipartUpload", "POST", {"uploads"}),
    ("CompleteMultipartUpload", "POST", {"uploadId"}),
    ("DeleteObjects", "POST", {"delete"}),
    ("AbortMultipartUpload", "DELETE", {"uploadId"}),
    ("DeleteObject", "DELETE", {OBJECT}),
    ("ListParts", "GET", {"uploadId"}),
    ("GetObject", "GET", {OBJECT}),
    ("ListObjects", "GET", {"list-type"}),
    ("HeadObject", "HEAD", {OBJECT}),
)
"""Operations of S3; the first that has the method and all it needs is meant."""


def operation_of(head: bytes) -> str:
    """What a request does, as S3 calls it; from its head."""
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    url = urlsplit(target)
    found = set(parse_qs(url.query, keep_blank_values=True))
    found |= {line.partition(":")[0].lower() for line in lines}
    if "/" in url.path.strip("/"):
        found.add(OBJECT)
    fitting = (name for name, of, needed in OPERATIONS if of == method and needed <= found)
    return next(fitting, OTHER)


def counting(counts: Counter[str], *, withheld: str = "") -> Talk:
    """A proxy's talk that counts requests by what they do; one operation never gets an answer."""

    async def talk(line: Line, _numbers: Iterator[int], _plan: Plan) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(line.relay_answers(lambda: None))
            while True:
                request = Request.of(await line.client.readuntil(b"\r\n\r\n"))
                counts[operation := operation_of(request.head)] += 1
                if operation == withheld:
                    await line.client.read()  # Until the client is gone.
                    raise ConnectionError("withheld")
                await line.forward(request.head)
                await forward_body(line, request.body_bytes)

    return talk


def _await_quiet(counts: Counter[str]) -> None:
    """Return once what the file no longer needs has been deleted."""
    before, deadline = -1, time.monotonic() + WAIT_SECONDS
    while counts.total() != before and time.monotonic() < deadline:
        before = counts.total()
        time.sleep(QUIET_SECONDS)


# ---- tables --------------------------------------------------------------------------------------

UNTIL = "seconds until complete"
FIGURES: Mapping[str, tuple[Callable[[Sample], float | None], int]] = {
    "MB/s until complete": (lambda one: one.mb_per_second, 0),
    "CPU s/GB of the node": (lambda one: one.cpu_seconds_per_gb, 2),
    "CPU s/GB of the store": (lambda one: (one.store_cpu_seconds or 0) / one.byte_count * GB, 2),
    UNTIL: (lambda one: one.complete_seconds, 1),
    "bytes the store wrote, per byte": (
        lambda one: (one.store_written_bytes or 0) / one.byte_count,
        2,
    ),
    "bytes the store read, per byte": (lambda one: (one.store_read_bytes or 0) / one.byte_count, 2),
}
"""Of an upload: a figure and its digits, by name."""

COMPUTED = f"{COMPUTED_BYTES / GB:g} GB, {ONE.way}: {UNTIL}, computed"
"""If each further byte takes as long as those between 1 and 10 GB."""

DEATH = f"{ONE.name}: {UNTIL}, after a node's death"
CODE_LINES = "code lines of app/storage/s3"

Cells = dict[str, str]
"""By the names of their rows."""


def _cells(lab: Lab, layout: str, store: str) -> Cells:
    """What was measured of a layout."""
    found = {
        f"{job.name}: {name}": spread(_values(lab.of(f"{layout}, {store}, {job.name}"), of), digits)
        for job in (QUICK_JOBS if lab.is_quick else JOBS)
        for name, (of, digits) in FIGURES.items()
    }
    one, long = (_complete_seconds(lab, layout, store, job) for job in (ONE, LONG))
    computed = []
    if one is not None and long is not None:
        growth = (long - one) / (LONG.length - ONE.length)
        computed.append(long + growth * (COMPUTED_BYTES - LONG.length))
    deaths = lab.of(f"{layout}, {store}, death, {ONE.name}")
    codes = lab.of(f"{layout}, code")
    return {
        **found,
        COMPUTED: spread(computed),
        DEATH: spread(_values(deaths, lambda one: one.complete_seconds), 1),
        CODE_LINES: spread(_values(codes, lambda one: one.code_lines)),
    }


def _values(samples: Sequence[Sample], of: Callable[[Sample], float | None]) -> list[float]:
    return [value for one in samples if (value := of(one)) is not None]


def _complete_seconds(lab: Lab, layout: str, store: str, job: Job) -> float | None:
    found = _values(lab.of(f"{layout}, {store}, {job.name}"), lambda one: one.complete_seconds)
    return median(found) if found else None


def _request_cells(lab: Lab, layout: str, store: str) -> Cells:
    """Requests per GB, by operation."""
    return {
        f"{job.way}: {operation}": spread(_requests(lab, layout, store, job, [operation]))
        for job in COUNTED_JOBS
        for operation in (*PAID, *READS, *FREE, OTHER)
    }


def _requests(
    lab: Lab, layout: str, store: str, job: Job, operations: Collection[str]
) -> list[float]:
    return [
        sum((one.requests or {}).get(operation, 0) for operation in operations)
        / one.byte_count
        * GB
        for one in lab.of(f"{layout}, {store}, requests, {job.name}")
    ]


def _side_by_side(
    lab: Lab, title: str, cells: Callable[[str], Cells], notes: tuple[str, ...] = ()
) -> Table:
    """A column for each layout, that of the code at hand last; rows that have a figure."""
    found = dict.fromkeys(case.partition(", ")[0] for case in lab.cases())
    layouts = sorted(found, key=lambda layout: layout == NOW)
    columns = [cells(layout) for layout in layouts]
    rows = [(name, *(column[name] for column in columns)) for name in columns[0]]
    shown = [row for row in rows if not {*row[1:]} <= {"-", "0"}]
    return Table(title, ("", *layouts), shown, notes)


def _tables(lab: Lab, store: str) -> list[Table]:
    """None of a store that was not measured; notes stand below those of the first."""
    is_first = store == next(iter(STORES))
    costs = _side_by_side(
        lab,
        f"Files in a bucket of {store}",
        lambda layout: _cells(lab, layout, store),
        (NOTE,) if is_first else (),
    )
    requests = _side_by_side(
        lab,
        f"Requests to {store} per GB",
        lambda layout: _request_cells(lab, layout, store),
        (REQUEST_NOTE,) if is_first else (),
    )
    return [table for table in (costs, requests) if len(table.rows) > 1]


def summary(lab: Lab) -> Table:
    """For the docs: medians of the first store, and of all when a long file is complete."""
    first = next(iter(STORES))
    wanted = [
        *(f"{job.name}: CPU s/GB of the node" for job in COUNTED_JOBS),
        f"{ONE.name}: {UNTIL}",
        *(COMPUTED, DEATH),
        *(f"{LONG.name}: bytes the store {did}, per byte" for did in ("wrote", "read")),
        CODE_LINES,
    ]

    def cells(layout: str) -> Cells:
        requests = {
            f"{name} per GB, {job.way}": spread(_requests(lab, layout, first, job, operations))
            for job in COUNTED_JOBS
            for name, operations in (("PUT, POST and LIST", PAID), ("GET and HEAD", READS))
        }
        found = _cells(lab, layout, first)
        late = {
            f"{job.name}: {UNTIL}, on {store}": spread(
                _values(lab.of(f"{layout}, {store}, {job.name}"), lambda one: one.complete_seconds),
                1,
            )
            for job in (LONG, PACED)
            for store in STORES
        }
        return requests | late | {name: found[name].partition(" (")[0] for name in wanted}

    return _side_by_side(lab, f"What a layout costs, on {first} where no store is named", cells)


def _targets(lab: Lab) -> Table:
    wanted = []
    for store in STORES:
        now, earlier = (_complete_seconds(lab, layout, store, LONG) for layout in (NOW, EARLIER))
        undisturbed = _complete_seconds(lab, NOW, store, ONE)
        deaths = _values(lab.of(f"{NOW}, {store}, death, {ONE.name}"), lambda one: one.seconds)
        wanted += [
            Target(
                what=f"{store}, {LONG.name}: {UNTIL}, of {EARLIER}",
                measured=now / earlier if now is not None and earlier else None,
                at_most=LATE,
            ),
            Target(
                what=f"{store}: seconds more after a node's death",
                measured=median(deaths) - undisturbed
                if deaths and undisturbed is not None
                else None,
                at_most=RESUMED_SECONDS,
            ),
        ]
    lines = _values(lab.of(f"{NOW}, code"), lambda one: one.code_lines)
    code = Target(what=CODE_LINES, measured=lines[0] if lines else None, at_most=MOST_CODE_LINES)
    return target_table([*wanted, code])


def draw(lab: Lab) -> Plot:
    """Completion and CPU, by store and layout."""
    cases = lab.cases()
    layouts = [name.removesuffix(", code") for name in cases if name.endswith(", code")]

    def panel(job: Job, name: str) -> Bars:
        of, digits = FIGURES[name]
        found = {
            f"{store}, {layout}": lab.of(f"{layout}, {store}, {job.name}")
            for store in STORES
            for layout in layouts
        }
        there = {label: samples for label, samples in found.items() if samples}
        ours = [label for label in there if label.endswith(NOW)]
        title = f"{job.name}: {name}"
        return panel_of(title, there, lambda some: _values(some, of), ours=ours, digits=digits)

    one, long = (QUICK_JOBS[0], QUICK_JOBS[0]) if lab.is_quick else (ONE, LONG)
    panels = (panel(long, UNTIL), panel(one, "CPU s/GB of the node"))
    return Plot("Layouts of files in a bucket", panels)


BENCHMARK = Benchmark(
    name="bucket_layout",
    summary="what the layout of files in a bucket costs, beside that of earlier code",
    run=run,
    draw=draw,
    summary_of=summary,
    summary_page="docs/scale.md",
    needed_bytes=5 * GB,
    rounds=3,
    seconds=3600,
    quick_seconds=1,
)
