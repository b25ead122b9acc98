"""The benchmarks, one a file: every module here with a `BENCHMARK` is one of `python -m bench`."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from bench.lib.harness import Benchmark


def all_benchmarks() -> list[Benchmark]:
    """The benchmarks of this package, by name."""
    modules = (import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__))
    return [module.BENCHMARK for module in modules]
