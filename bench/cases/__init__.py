"""The benchmarks, one a file: every module here with a `BENCHMARK` is one of `python -m bench`."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from bench.lib.harness import Benchmark


def all_benchmarks() -> list[Benchmark]:
    """The benchmarks of this package; those that take longest come first.

    When a slow machine uses up the time of a quick run, small benchmarks lose their cases.
    """
    modules = (import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__))
    found = [module.BENCHMARK for module in modules]
    return sorted(found, key=lambda benchmark: benchmark.quick_seconds, reverse=True)
