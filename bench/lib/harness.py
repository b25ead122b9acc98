"""What every benchmark needs: folders, servers, rounds, samples."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar

import requests

from bench.lib.meter import await_idle
from bench.lib.page_cache import PageCache
from bench.lib.plot import Plot
from bench.lib.report import Table, facts
from bench.lib.samples import GB, Sample
from tests.live_server import START_SECONDS, Server

RESULTS = Path(__file__).parents[1] / "results"
RECORDED = Path(__file__).parents[1] / "recorded"
"""Samples of code that is no longer there; committed."""

RANDOM_BYTES = 8 * 1024 * 1024
"""Made at once."""

SPARE_BYTES = 2 * GB
"""Stays free on the disk beside what a benchmark needs."""

Case = TypeVar("Case")


class NotRunnable(Exception):
    """Something that a benchmark needs is missing."""


class NotEnoughRoom(NotRunnable):
    """The disk has too little free space for a benchmark."""


class BenchServer(Server):
    """The server as `make run` starts it: workers and threads are the program's own defaults."""

    @property
    def environment(self) -> dict[str, str]:
        """What the server runs with."""
        inherited = dict(super().environment)
        for name in {"SLUICE_WORKERS", "SLUICE_THREADS"} - self.options.keys():
            inherited.pop(name, None)
        return inherited

    def start(self) -> None:
        """Start, and return once all processes are idle, however slow the disk is."""
        try:
            super().start()
        except requests.Timeout:
            requests.get(f"{self.url}/healthz", timeout=START_SECONDS)
        await_idle(self.processes)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Stop, unless it has already ended: then the start has raised the reason."""
        if self.process is not None and self.process.poll() is None:
            super().stop(number)


@dataclass
class Lab:
    """Where one benchmark runs; `samples` is everything it has measured."""

    folder: Path
    is_quick: bool
    round_count: int
    seconds: float
    only: str = ""
    """A regular expression: benchmarks whose cases can be chosen measure those that it matches."""
    record: str = ""
    """Save the samples below `RECORDED` under this name."""
    samples: list[Sample] = field(default_factory=list)
    servers: ExitStack = field(default_factory=ExitStack)
    """Stops the servers that are kept from one sample to the next."""

    def __post_init__(self) -> None:
        self._page_cache = PageCache(self.folder)
        self._sources: list[Path] = []
        self._kept: dict[tuple[object, ...], BenchServer] = {}
        self._started = time.monotonic()
        self._saved: Path | None = None

    def resume(self, name: str) -> None:
        """Take over the samples that earlier full runs saved or recorded; save each from now on.

        The file says where each was measured; remove it to begin again.
        """
        if self.is_quick:
            return
        saved, recorded = RESULTS / f"{name}.jsonl", RECORDED / name
        self._saved = recorded / f"{self.record.replace(' ', '-')}.jsonl" if self.record else saved
        for path in (*sorted(recorded.glob("*.jsonl")), *([saved] if saved.exists() else [])):
            for line in path.read_text(encoding="utf-8").splitlines():
                self.samples.append(Sample(**json.loads(line)["sample"]))

    def is_due(self, case: str, number: int) -> bool:
        """Whether a case is chosen and has no sample of this round yet."""
        is_there = any(sample.round == number for sample in self.of(case))
        return not is_there and re.search(self.only, case) is not None

    def settle(self) -> None:
        """Fill free memory with page cache, so that all cases start alike; not in a quick run."""
        if not self.is_quick:
            self._page_cache.fill(self._sources)

    def rounds(self) -> Iterator[int]:
        """Numbers from 0, until the next round would outlast the benchmark's time.

        It is expected to take as long as the longest so far. The first always runs.
        """
        started = begun = time.monotonic()
        longest = 0.0
        for number in range(self.round_count):
            if number and begun - started + longest > self.seconds:
                return
            yield number
            ended = time.monotonic()
            begun, longest = ended, max(longest, ended - begun)

    def in_time(self, cases: Iterable[Case]) -> Iterator[Case]:
        """All cases; in a quick run the first, and others until its time is up."""
        left_out = 0
        for index, case in enumerate(cases):
            if self.is_quick and index and time.monotonic() - self._started > self.seconds:
                left_out += 1
            else:
                yield case
        if left_out:
            print(f"  left out: {left_out} cases, {self.seconds:.0f} s are up", flush=True)

    def pick(self, full: int, quick: int) -> int:
        """The size for this kind of run."""
        return quick if self.is_quick else full

    def keep(self, sample: Sample) -> Sample:
        """Record a sample, and print it as a sign of progress."""
        self.samples.append(sample)
        if self._saved is not None:
            self._saved.parent.mkdir(parents=True, exist_ok=True)
            with self._saved.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"sample": asdict(sample), "facts": facts()}) + "\n")
        rate = f", {sample.mb_per_second:.0f} MB/s" if sample.byte_count else ""
        print(f"  round {sample.round}: {sample.case}: {sample.seconds:.2f} s{rate}", flush=True)
        return sample

    def of(self, case: str) -> list[Sample]:
        """The samples of a case, by round."""
        return [sample for sample in self.samples if sample.case == case]

    def cases(self, prefix: str = "") -> dict[str, list[Sample]]:
        """Samples of the cases whose names begin with `prefix`, by the rest of the name."""
        names = dict.fromkeys(sample.case for sample in self.samples)
        return {
            name.removeprefix(prefix): self.of(name) for name in names if name.startswith(prefix)
        }

    @contextmanager
    def scratch(self, name: str) -> Iterator[Path]:
        """A new empty folder, removed afterwards."""
        path = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder))
        try:
            yield path
        finally:
            shutil.rmtree(path)

    @contextmanager
    def server(
        self, module: str = "app.run.server.supervisor", **options: str
    ) -> Iterator[BenchServer]:
        """A fresh server with empty folders: no sample pays for what an earlier one left.

        A quick run has one for all cases with the same options: a start takes longer than a case.
        """
        if not self.is_quick:
            with self._fresh_server(module, options) as server:
                yield server
            return
        key = (module, *sorted(options.items()))
        if key not in self._kept:
            self._kept[key] = self.servers.enter_context(self._fresh_server(module, options))
        await_idle(self._kept[key].processes)
        yield self._kept[key]

    @contextmanager
    def _fresh_server(self, module: str, options: dict[str, str]) -> Iterator[BenchServer]:
        with self.scratch("server") as folder:
            server = BenchServer(folder, options, module=module)
            try:
                server.start()
                self.settle()
                yield server
            finally:
                server.stop()

    def source(self, length: int, name: str = "source") -> Path:
        """A new file of random bytes, of which none come twice: copyparty sends a chunk once.

        `settle` keeps it cached.
        """
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as file:
            for start in range(0, length, RANDOM_BYTES):
                file.write(os.urandom(min(RANDOM_BYTES, length - start)))
            file.flush()
            os.fsync(file.fileno())
        self._sources.append(path)
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One file's benchmark. `seconds` bounds the rounds of a full run; `draw` makes its plot.

    `quick_seconds` is its part of a quick run. `summary_of` makes the table for `summary_page`.
    """

    name: str
    summary: str
    run: Callable[[Lab], list[Table]]
    draw: Callable[[Lab], Plot]
    needed_bytes: int
    rounds: int = 3
    seconds: float = 400.0
    quick_seconds: float = 8.0
    summary_of: Callable[[Lab], Table] | None = None
    summary_page: str = "README.md"


@contextmanager
def prepared_lab(
    benchmark: Benchmark,
    parent: Path,
    *,
    quick_seconds: float | None = None,
    rounds: int | None = None,
    only: str = "",
    record: str = "",
) -> Iterator[Lab]:
    """A lab in a folder below `parent`, removed afterwards; may raise `NotEnoughRoom`."""
    is_quick = quick_seconds is not None
    parent.mkdir(parents=True, exist_ok=True)
    needed = benchmark.needed_bytes // (4 if is_quick else 1)
    if shutil.disk_usage(parent).free < needed + SPARE_BYTES:
        raise NotEnoughRoom(f"{parent} needs {(needed + SPARE_BYTES) / GB:.0f} GB free")
    folder = Path(tempfile.mkdtemp(prefix="work-", dir=parent))
    try:
        count = rounds or (1 if is_quick else benchmark.rounds)
        seconds = benchmark.seconds if quick_seconds is None else quick_seconds
        with ExitStack() as servers:
            yield Lab(folder, is_quick, count, seconds, only, record, servers=servers)
    finally:
        shutil.rmtree(folder)
