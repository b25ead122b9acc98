"""Uploads in 20 MB chunks: one large file, and eight at once, beside what `dd` does."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from bench.client import Connection, Upload, in_parallel, upload_form, upload_raw
from bench.disk import DD, DD_EACH_BLOCK_SYNCED, DD_SYNCED, measure_dd
from bench.harness import GB, Benchmark, Lab
from bench.meter import Meter
from bench.report import Table, ratio, spread

DIGEST_SECONDS = 60.0

SETTINGS = {"default": {}, "DURABILITY=none": {"SLUICE_DURABILITY": "none"}}
FORMS: dict[str, Upload] = {"raw": upload_raw, "form": upload_form}
COLUMNS = (
    "case",
    "MB/s",
    "of dd*",
    "CPU s/GB",
    "digest CPU s/GB",
    "peak memory above idle, MiB",
)
NOTES = (
    "\\* Median of the ratios within a round: the default settings beside `dd conv=fdatasync`, "
    "which waits for the disk once, where the server does after every chunk (as `oflag=dsync` "
    "does); `DURABILITY=none` beside plain `dd`.",
    "CPU: the processes that answer requests; the digest is the SHA-256 of the finished file, "
    "computed in the background afterwards. Memory: PSS of all processes.",
)


@dataclass(frozen=True, slots=True)
class Case:
    """So many uploads at once, of so many bytes each."""

    count: int
    length: int
    settings: str
    form: str

    @property
    def name(self) -> str:
        """As in the table."""
        size = f"{self.length / 1024**2:.0f} MiB"
        return f"{self.count} x {size}, {self.form}, {self.settings}"


def run(lab: Lab) -> list[Table]:
    """Measure and tell."""
    total = lab.pick(2 * 1024**3, 256 * 1024**2)
    cases = [
        Case(count, total // count, settings, form)
        for count in (1, 8)
        for settings in SETTINGS
        for form in (["form"] if lab.is_quick else FORMS)
    ]
    source = lab.source(total)
    for number in lab.rounds():
        measure_dd(lab, number, total)
        for case in cases:
            _measure(lab, number, case, source)
    return [_table(lab, cases)]


def _measure(lab: Lab, number: int, case: Case, source: Path) -> None:
    send = FORMS[case.form]
    ids: list[str] = []
    with lab.server(**SETTINGS[case.settings]) as server, Meter(server.processes()) as meter:
        in_parallel(case.count, lambda _: ids.append(send(server.port, source, case.length)))
        received = meter.sample(case.name, number, case.count * case.length)
        _await_digests(server.port, ids)
        lab.keep(
            replace(
                received,
                background_cpu_seconds=meter.background_cpu_seconds,
                peak_bytes=meter.peak_bytes,
            )
        )


def _await_digests(port: int, ids: list[str]) -> None:
    deadline = time.monotonic() + DIGEST_SECONDS
    with Connection(port) as connection:
        while any(not connection.json(f"/api/videos/{one}").get("sha256") for one in ids):
            if time.monotonic() > deadline:
                raise TimeoutError("the digests of the uploads were not computed")
            time.sleep(0.2)


def _table(lab: Lab, cases: list[Case]) -> Table:
    rows = [
        (name, spread([sample.mb_per_second for sample in lab.of(name)]), *["-"] * 4)
        for name in (DD, DD_SYNCED, DD_EACH_BLOCK_SYNCED)
    ]
    for case in cases:
        samples = lab.of(case.name)
        beside = lab.of(DD_SYNCED if case.settings == "default" else DD)
        rates = [sample.mb_per_second for sample in samples]
        rows.append(
            (
                case.name,
                spread(rates),
                ratio(rates, [sample.mb_per_second for sample in beside]),
                spread([(s.cpu_seconds or 0) / s.byte_count * GB for s in samples], 2),
                spread([(s.background_cpu_seconds or 0) / s.byte_count * GB for s in samples], 2),
                spread([(s.peak_bytes or 0) / 1024**2 for s in samples]),
            )
        )
    return Table("Uploads in 20 MiB chunks", COLUMNS, rows, NOTES)


BENCHMARK = Benchmark(
    name="upload",
    summary="one upload of 2 GiB, and eight of 256 MiB at once",
    run=run,
    needed_bytes=5 * GB,
)
