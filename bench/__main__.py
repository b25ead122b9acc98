"""Runs benchmarks, prints their tables, keeps their results.

python -m bench [--quick] [--rounds N] [--folder DIR] [--docs] [NAME...]
"""

from __future__ import annotations

import argparse
import signal
import sys
import traceback
from pathlib import Path

from bench import (
    browser,
    download,
    flat,
    many_files,
    many_uploaders,
    upload,
    visitors,
    write_path,
    zero_copy,
)
from bench.harness import Benchmark, NotRunnable, prepared_lab
from bench.report import Run, as_text, facts, save_results, update_document

BENCHMARKS = [
    module.BENCHMARK
    for module in (
        write_path,
        upload,
        download,
        zero_copy,
        many_files,
        many_uploaders,
        visitors,
        flat,
        browser,
    )
]

RESULTS = Path(__file__).parent / "results"
DOCUMENT = Path(__file__).parent.parent / "docs" / "performance.md"


def main() -> int:
    """Run what the arguments name; 1 if a benchmark could not run."""
    options = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # Clean up as after Ctrl-C.
    chosen = [one for one in BENCHMARKS if not options.names or one.name in options.names]
    return max([_run(benchmark, options) for benchmark in chosen])


def _run(benchmark: Benchmark, options: argparse.Namespace) -> int:
    run = Run(benchmark.name, f"python -m bench {' '.join(sys.argv[1:])}".strip(), facts())
    print(f"\n== {benchmark.name}: {benchmark.summary}")
    print("; ".join(f"{name}: {value}" for name, value in run.facts.items()), flush=True)
    try:
        with prepared_lab(
            benchmark, options.folder, is_quick=options.quick, rounds=options.rounds
        ) as lab:
            tables = benchmark.run(lab)
    except NotRunnable as error:
        print(f"not run: {error}")
        return 1
    except Exception:  # noqa: BLE001 - whatever ends one benchmark, the next is worth running
        traceback.print_exc()
        return 1
    print("\n\n".join(as_text(table) for table in tables), flush=True)
    save_results(RESULTS, run, tables, lab.samples)
    if options.docs:
        update_document(DOCUMENT, run, tables, benchmark.draw(lab) if benchmark.draw else "")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    names = [benchmark.name for benchmark in BENCHMARKS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="small sizes, under two minutes")
    parser.add_argument("--rounds", type=int, help="how often everything is measured")
    parser.add_argument(
        "--folder", type=Path, default=RESULTS, help="a folder on the disk to measure"
    )
    parser.add_argument("--docs", action="store_true", help="write the tables to the docs as well")
    options = parser.parse_args()
    if unknown := set(options.names) - set(names):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    return options


if __name__ == "__main__":
    sys.exit(main())
