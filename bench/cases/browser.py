"""The page in a real browser: its chunks as Dropzone's forms, and as raw bodies (`binaryBody`)."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import exp, log, sqrt
from pathlib import Path
from statistics import fmean, stdev

import psutil
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from bench.lib.harness import Benchmark, Lab, NotRunnable
from bench.lib.meter import Meter, cpu_seconds_of
from bench.lib.plot import Plot, panel_of
from bench.lib.report import Table
from bench.lib.samples import GB, Sample, costs_of, rates_of, spread
from tests.browser.tools import BROWSER_FLAGS, BROWSERS

WAYS = ("form", "raw")
DURABILITIES = ("none", "chunk")

POLL_MILLISECONDS = 100
PATIENCE_SECONDS = 180
"""An upload that takes longer has failed."""

SEND_CHUNKS = """
{
  const [way, { open, send }] = ["%s", XMLHttpRequest.prototype];
  const chunks = (window.chunks = { bytes: 0, refused: 0, began: 0, ended: 0 });

  XMLHttpRequest.prototype.open = function (method, url) {
    this.target = new URL(url, location);
    open.call(this, method, url);
  };

  XMLHttpRequest.prototype.send = function (body) {
    const fields = this.target.searchParams;
    if (!fields.has("dzuuid")) return send.call(this, body);
    chunks.began ||= performance.now();
    this.addEventListener("loadend", () => {
      if (this.status === 200) chunks.bytes += body.size;
      else chunks.refused += 1;
      chunks.ended = performance.now();
    });
    open.call(this, "POST", way === "raw" ? `/upload?${fields}` : "/upload");
    this.setRequestHeader("Accept", "application/json");
    send.call(this, way === "raw" ? body : formOf(fields, body));
  };

  function formOf(fields, bytes) {
    const form = new FormData();
    for (const [name, value] of fields) form.append(name, value);
    form.append("file", bytes, "recording.mp4");
    return form;
  }
}
"""
"""Takes every raw chunk that the page sends, and sends it as it is or in a form; nothing else
differs."""

COLUMNS = (
    "durability",
    "chunks as",
    "MB/s",
    "seconds, of form",
    "browser CPU s/GB",
    "of form",
    "server CPU s/GB",
    "of form",
)
NOTE = (
    "The page of the server in headless {version}, a file of {size} MiB from the page cache, in "
    "chunks of up to 20 MiB, three at once; from the first one's departure to the last answer. "
    "Browser: user + system of all its processes; server: of those that answer requests. Ratios "
    "are medians of the ratios within a round, with the extremes. Load while it ran: {load}."
)


@dataclass(frozen=True, slots=True)
class Case:
    """A durability and a way to send chunks."""

    durability: str
    way: str

    @property
    def server(self) -> str:
        """Of its samples with the server's CPU time."""
        return f"durability {self.durability}, {self.way}"

    @property
    def browser(self) -> str:
        """Of its samples with the browser's CPU time."""
        return f"{self.server}: browser"


CASES = [Case(durability, way) for durability in DURABILITIES for way in WAYS]


def run(lab: Lab) -> list[Table]:
    """Measure, and return the tables; raises `NotRunnable` without a browser."""
    source = lab.source(lab.pick(1024, 100) * 1024**2, "recording.mp4")
    loads = []
    with running_browser() as browser:
        for number in lab.rounds():
            # There and back, so that no case always follows the same other.
            for case in lab.in_time(CASES[:: -1 if number % 2 else 1]):
                _measure(lab, number, case, source, browser)
                loads.append(os.getloadavg()[0])
        version = f"Chromium {browser.version}"
    size = source.stat().st_size // 1024**2
    note = NOTE.format(version=version, size=size, load=spread(loads, 1))
    rows = [_row(lab, case) for case in CASES]
    return [Table("One upload by the page in a browser", COLUMNS, rows, (note, _overall(lab)))]


@contextmanager
def running_browser() -> Iterator[Browser]:
    """The browser that is installed; `NotRunnable` without one."""
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    if executable is None:
        raise NotRunnable(f"no browser is installed, none of {', '.join(BROWSERS)}")
    with sync_playwright() as playwright:
        flags = list(BROWSER_FLAGS)
        browser = playwright.chromium.launch(executable_path=executable, args=flags)
        try:
            yield browser
        finally:
            browser.close()


def _measure(lab: Lab, number: int, case: Case, source: Path, browser: Browser) -> None:
    with lab.server(SLUICE_DURABILITY=case.durability) as server:
        context = browser.new_context()
        try:
            source.touch()  # Otherwise the page takes it for the file that the server already has.
            page = open_page(context, server.url, case.way)
            before = cpu_seconds_of(_browser_processes())
            with Meter(server.processes()) as meter:
                seconds = upload_file(page, source)
                sample = meter.sample(case.server, number, source.stat().st_size)
            browser_cpu_seconds = cpu_seconds_of(_browser_processes()) - before
        finally:
            context.close()
    sample = lab.keep(replace(sample, seconds=seconds))
    of_browser = replace(
        sample,
        case=case.browser,
        cpu_seconds=browser_cpu_seconds,
        background_cpu_seconds=None,
        peak_bytes=None,
    )
    lab.samples.append(of_browser)


def _browser_processes() -> Iterable[psutil.Process]:
    children = psutil.Process().children(recursive=True)
    return [process for process in children if "chrom" in process.name()]


def open_page(context: BrowserContext, url: str, way: str) -> Page:
    """The start page, which will send its chunks that way."""
    context.add_init_script(SEND_CHUNKS % way)
    page = context.new_page()
    page.goto(url, wait_until="networkidle")
    return page


def upload_file(page: Page, source: Path) -> float:
    """Seconds from the first chunk's departure to the last one's answer."""
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Choose files", exact=True).click()
    chooser.value.set_files(source)
    chunks = _wait_for_chunks(page, source.stat().st_size)
    return float(chunks["ended"] - chunks["began"]) / 1000


def _wait_for_chunks(page: Page, size: int) -> dict[str, float]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    chunks: dict[str, float] = page.evaluate("chunks")
    while chunks["bytes"] < size:
        if chunks["refused"] or time.monotonic() > deadline:
            raise RuntimeError(
                f"not all of {size} bytes were stored at the first attempt: {chunks}"
            )
        page.wait_for_timeout(POLL_MILLISECONDS)
        chunks = page.evaluate("chunks")
    return chunks


def _row(lab: Lab, case: Case) -> tuple[str, ...]:
    form = replace(case, way=WAYS[0])
    browser, server = lab.of(case.browser), lab.of(case.server)
    return (
        case.durability,
        case.way,
        spread(rates_of(server)),
        _of_form(_seconds(server), _seconds(lab.of(form.server))),
        spread(costs_of(browser), 2),
        _of_form(costs_of(browser), costs_of(lab.of(form.browser))),
        spread(costs_of(server), 2),
        _of_form(costs_of(server), costs_of(lab.of(form.server))),
    )


def _overall(lab: Lab) -> str:
    """The ratios over everything measured: means with how sure they are, as pairs scatter a lot."""
    ratios: dict[str, list[float]] = {"time": [], "browser CPU": [], "server CPU": []}
    for durability in DURABILITIES:
        form, raw = (Case(durability, way) for way in WAYS)
        server, forms = lab.of(raw.server), lab.of(form.server)
        browser, browser_forms = lab.of(raw.browser), lab.of(form.browser)
        ratios["time"] += _ratios(_seconds(server), _seconds(forms))
        ratios["browser CPU"] += _ratios(costs_of(browser), costs_of(browser_forms))
        ratios["server CPU"] += _ratios(costs_of(server), costs_of(forms))
    means = ", ".join(f"{what} {_mean(values)}" for what, values in ratios.items())
    return (
        f"Raw, of form, over both durabilities, {len(ratios['time'])} pairs: {means} "
        "(geometric means, with twice their standard error)."
    )


def _mean(ratios: Sequence[float]) -> str:
    if not ratios:
        return "-"
    logarithms = [log(ratio) for ratio in ratios]
    middle = fmean(logarithms)
    if len(ratios) < 2:
        return f"{exp(middle):.2f}"
    margin = 2 * stdev(logarithms) / sqrt(len(ratios))
    return f"{exp(middle):.2f} ({exp(middle - margin):.2f}-{exp(middle + margin):.2f})"


def _of_form(values: Sequence[float], forms: Sequence[float]) -> str:
    return spread(_ratios(values, forms), 2)


def _ratios(values: Sequence[float], forms: Sequence[float]) -> list[float]:
    return [value / form for value, form in zip(values, forms, strict=False)]


def _seconds(samples: Sequence[Sample]) -> list[float]:
    return [sample.seconds for sample in samples]


def draw(lab: Lab) -> Plot:
    """Rates and costs at both ends."""
    server = {f"{case.durability}, {case.way}": lab.of(case.server) for case in CASES}
    browser = {f"{case.durability}, {case.way}": lab.of(case.browser) for case in CASES}
    raw = [name for name in server if name.endswith(WAYS[1])]
    panels = [
        panel_of("MB/s, by durability", server, rates_of, ours=raw),
        panel_of("CPU s/GB of the browser", browser, costs_of, ours=raw, digits=2),
        panel_of("CPU s/GB of the server", server, costs_of, ours=raw, digits=2),
    ]
    return Plot("One upload by the page in a browser", tuple(panels))


BENCHMARK = Benchmark(
    name="browser",
    summary="one upload of 1 GiB by the page in a real browser, chunks as forms and as raw bodies",
    run=run,
    draw=draw,
    needed_bytes=3 * GB,
    rounds=7,
    seconds=600,
    quick_seconds=6,
)
