"""20 MB over a long line that loses packets: our client, our page and others, to their servers.

Needs root, for the namespaces. Every sample is saved as soon as it is there, and a run that was
broken off goes on where it stopped: remove the file to begin again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.lib.harness import Benchmark, BenchServer, Lab, NotRunnable
from bench.lib.lossy_line import LossyLine, Quality, lossy_line
from bench.lib.plot import Plot, panel_of
from bench.lib.report import Table
from bench.lib.samples import MB, Sample, spread
from tests.live_server import NO_FFMPEG, ROOT
from tests.nodejs import node

SIZE = 20 * MB

LOSSES = (0.0, 0.01, 0.03)
ROUND_TRIPS = (0.150,)

LONGEST_SECONDS = 120.0
"""A sender that takes longer is stopped, and shown as "> 120"."""

SAVED = Path(__file__).parents[1] / "results" / "line.jsonl"

PORT = 8000


@dataclass(frozen=True, slots=True)
class Sender:
    """A program and what it is called with to send `file` to `url`."""

    name: str
    command: Callable[[str, Path], Sequence[str]]
    prints_seconds: bool = False
    """Otherwise the whole process is measured."""


def _client(url: str, file: Path) -> Sequence[str]:
    return [sys.executable, "-m", "sluice_client", "upload", str(file), "--server", url]


def _page(url: str, file: Path) -> Sequence[str]:
    return [sys.executable, "-m", "bench.lib.send_by_page", url, str(file)]


def _form(url: str, file: Path) -> Sequence[str]:
    return ["curl", "-sSf", "-o", "/dev/null", "-F", f"file=@{file}", f"{url}/upload"]


def _tus(connections: int) -> Callable[[str, Path], Sequence[str]]:
    def command(url: str, file: Path) -> Sequence[str]:
        script = ROOT / "tests" / "clients" / "tus_upload.mjs"
        options = {"parallelUploads": connections}
        task = {"path": str(file), "url": url, "options": options}
        return [node(), str(script), json.dumps(task)]

    return command


SENDERS = (
    Sender("sluice upload", _client),
    Sender("page", _page, prints_seconds=True),
    Sender("curl -F", _form),
    Sender("tus-js-client", _tus(1)),
    Sender("tus-js-client, 6 connections", _tus(6)),
)


def run(lab: Lab) -> list[Table]:
    """Measure what is not saved yet, and return the table."""
    if os.geteuid() != 0 or not Path("/dev/net/tun").exists():
        raise NotRunnable("needs root and /dev/net/tun")
    lab.samples += _saved()
    source = lab.source(lab.pick(SIZE, SIZE // 10), "recording.mp4")
    lines = [(loss, round_trip) for round_trip in ROUND_TRIPS for loss in LOSSES]
    for number in lab.rounds():
        for loss, round_trip in lines:
            quality = Quality(loss=loss, delay_seconds=round_trip / 2)
            for sender in lab.in_time(SENDERS[:: -1 if number % 2 else 1]):
                case = f"{loss:.0%}, {sender.name}"
                if not any(sample.round == number for sample in lab.of(case)):
                    seconds = _measure(lab, sender, quality, source, seed=number)
                    size = source.stat().st_size
                    _save(
                        lab.keep(Sample(case=case, round=number, byte_count=size, seconds=seconds))
                    )
    return [_table(lab)]


def _measure(lab: Lab, sender: Sender, quality: Quality, source: Path, *, seed: int) -> float:
    """Seconds; `LONGEST_SECONDS` if it takes longer."""
    source.touch()  # Otherwise the client takes it for what the server has already.
    with lab.scratch("line") as folder, lossy_line(quality, seed=seed) as line:
        _start_server(folder, line)
        command = sender.command(f"http://{line.server.address}:{PORT}", source)
        home = {**os.environ, "HOME": str(folder), "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}"}
        began = time.monotonic()
        try:
            sent = line.client.run(
                command,
                timeout=LONGEST_SECONDS,
                capture_output=True,
                text=True,
                env=home,
            )
        except subprocess.TimeoutExpired:
            return LONGEST_SECONDS
        seconds = time.monotonic() - began
        if sent.returncode:
            raise RuntimeError(f"{sender.name} failed: {sent.stderr[-2000:]}")
        return float(sent.stdout) if sender.prints_seconds else seconds


def _start_server(folder: Path, line: LossyLine) -> None:
    options = {"SLUICE_HOST": line.server.address, "SLUICE_ACCESS": "open", **NO_FFMPEG}
    server = BenchServer(folder, options, port=PORT)
    log = (folder / "log").open("wb")
    line.server.start(
        [sys.executable, "-m", server.module],
        stdout=log,
        stderr=log,
        env=server.environment,
        cwd=ROOT,
    )
    line.server.await_listener(PORT)


def _saved() -> list[Sample]:
    if not SAVED.exists():
        return []
    return [Sample(**json.loads(line)) for line in SAVED.read_text().splitlines()]


def _save(sample: Sample) -> None:
    SAVED.parent.mkdir(exist_ok=True)
    with SAVED.open("a") as file:
        file.write(json.dumps(asdict(sample)) + "\n")


def _table(lab: Lab) -> Table:
    losses = [f"{loss:.0%}" for loss in LOSSES]
    rows = [
        (sender.name, *(_cell(lab.of(f"{loss}, {sender.name}")) for loss in losses))
        for sender in SENDERS
    ]
    note = (
        f"Seconds until the server has all of it; {SIZE // MB} MB, 20 Mbit/s, 150 ms there and "
        "back, a queue of one such round trip, cubic. At best 8.3 s."
    )
    return Table("A line that loses packets", ("sender", *losses), rows, (note,))


def _cell(samples: Sequence[Sample]) -> str:
    seconds = [sample.seconds for sample in samples]
    if seconds and min(seconds) >= LONGEST_SECONDS:
        return f"> {LONGEST_SECONDS:.0f}"
    return spread(seconds, 1)


def draw(lab: Lab) -> Plot:
    """Seconds where one packet in a hundred is lost."""
    cases = lab.cases("1%, ")
    ours = [name for name in cases if name in {"sluice upload", "page"}]

    def seconds_of(samples: Sequence[Sample]) -> list[float]:
        return [sample.seconds for sample in samples]

    panel = panel_of("1 % of the packets lost: seconds", cases, seconds_of, ours=ours, digits=1)
    return Plot("A line that loses packets", (panel,))


BENCHMARK = Benchmark(
    name="line",
    summary="20 MB over a long line that loses packets",
    run=run,
    draw=draw,
    needed_bytes=MB * 200,
    rounds=5,
    seconds=7200,
    quick_seconds=20,
)
