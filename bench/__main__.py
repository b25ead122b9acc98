"""Runs benchmarks, prints their tables, keeps their results.

python -m bench [--quick] [--rounds N] [--only REGEX] [--record NAME] [--folder DIR] [--docs]
    [--redraw] [NAME...]
"""

from __future__ import annotations

import argparse
import resource
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from bench.cases import all_benchmarks
from bench.lib.extracts import EXTRACTS, update_extracts
from bench.lib.harness import RESULTS, Benchmark, NotRunnable, prepared_lab
from bench.lib.plot import redraw
from bench.lib.report import (
    Run,
    as_markdown,
    as_text,
    facts,
    find_block,
    replace_block,
    save_results,
    update_document,
)

BENCHMARKS = all_benchmarks()

QUICK_RESULTS = RESULTS / "quick"
RESULTS_PAGE = Path(__file__).parent / "RESULTS.md"
"""All tables of the last full runs."""

PLOTS = RESULTS_PAGE.parent / "plots"
ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "performance.md"

QUICK_SECONDS = sum(benchmark.quick_seconds for benchmark in BENCHMARKS)
"""Length of a quick run; a benchmark that has used up its share starts no further case."""

QUICK_HELP = (
    "a first look in less than two minutes: small files, one round, one server for all cases with "
    "the same settings, memory as it is; leaves out other worker classes, 1000 clients, some peers "
    f"and sizes, and on a slow machine whatever does not fit into {QUICK_SECONDS:.0f} s"
)


def main() -> int:
    """Run the benchmarks that the arguments name; 1 if one of them could not run.

    Without names it runs all for which the machine has what they need.
    """
    options = _arguments()
    if options.redraw:
        print("\n".join(map(str, redraw(PLOTS))))
        update_extracts(RESULTS_PAGE, DOCUMENT, EXTRACTS)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # Clean up as after Ctrl-C.
    most_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (most_files, most_files)
    )  # For 1000 clients at once.
    chosen = [one for one in BENCHMARKS if not options.names or one.name in options.names]
    if options.docs:
        for benchmark in chosen:
            require_blocks(benchmark)
    started = time.monotonic()
    parts = [one.quick_seconds for one in chosen]
    status = 0
    for index, benchmark in enumerate(chosen):
        seconds = quick_share(parts, index, elapsed=time.monotonic() - started)
        status = max(status, _run(benchmark, options, seconds))
    print(f"\nall of it: {time.monotonic() - started:.0f} s", flush=True)
    return status


def quick_share(parts: Sequence[float], index: int, *, elapsed: float) -> float:
    """Seconds for the benchmark at `index`: its part of the time that is left."""
    return (sum(parts) - elapsed) * parts[index] / sum(parts[index:])


def _run(benchmark: Benchmark, options: argparse.Namespace, quick_seconds: float) -> int:
    run = Run(benchmark.name, f"python -m bench {' '.join(sys.argv[1:])}".strip(), facts())
    print(f"\n== {benchmark.name}: {benchmark.summary}")
    print("; ".join(f"{name}: {value}" for name, value in run.facts.items()), flush=True)
    started = time.monotonic()
    try:
        with prepared_lab(
            benchmark,
            options.folder,
            quick_seconds=quick_seconds if options.quick else None,
            rounds=options.rounds,
            only=options.only,
            record=options.record,
        ) as lab:
            tables = benchmark.run(lab)
    except NotRunnable as error:
        print(f"not run: {error}")
        return 1 if benchmark.name in options.names else 0
    except Exception:  # noqa: BLE001 - one benchmark may fail, and the next still runs
        traceback.print_exc()
        return 1
    print("\n\n".join(as_text(table) for table in tables))
    print(f"{benchmark.name} took {time.monotonic() - started:.0f} s", flush=True)
    plot = benchmark.draw(lab)
    results = QUICK_RESULTS if options.quick else RESULTS
    save_results(results, run, tables, lab.samples, plot)
    if options.docs:
        update_document(RESULTS_PAGE, run, tables, plot)
        if benchmark.summary_of is not None:
            page = ROOT / benchmark.summary_page
            replace_block(page, benchmark.name, as_markdown(benchmark.summary_of(lab)))
        update_extracts(RESULTS_PAGE, DOCUMENT, set(EXTRACTS) & {benchmark.name})
    return 0


def require_blocks(benchmark: Benchmark) -> None:
    """Raise `ValueError` unless the documents have a block for the benchmark's tables."""
    find_block(RESULTS_PAGE, benchmark.name)
    if benchmark.name in EXTRACTS:
        find_block(DOCUMENT, benchmark.name)
    if benchmark.summary_of:
        find_block(ROOT / benchmark.summary_page, benchmark.name)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    names = [benchmark.name for benchmark in BENCHMARKS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help=QUICK_HELP)
    parser.add_argument("--rounds", type=int, help="number of rounds")
    parser.add_argument(
        "--only",
        default="",
        metavar="REGEX",
        help="of benchmarks whose samples are saved one by one, the cases that it matches",
    )
    parser.add_argument(
        "--record",
        default="",
        metavar="NAME",
        help="of such benchmarks, commit the samples under this name, to compare later code with",
    )
    parser.add_argument(
        "--folder", type=Path, default=RESULTS, help="a folder on the disk to measure"
    )
    parser.add_argument(
        "--docs", action="store_true", help="write the tables to RESULTS.md and the docs as well"
    )
    parser.add_argument(
        "--redraw",
        action="store_true",
        help="draw the plots and the tables of the docs again, from RESULTS.md; measures nothing",
    )
    options = parser.parse_args()
    if unknown := set(options.names) - set(names):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    if options.quick and options.docs:
        parser.error("--docs wants a full run: figures of --quick do not belong in the docs")
    return options


if __name__ == "__main__":
    sys.exit(main())
