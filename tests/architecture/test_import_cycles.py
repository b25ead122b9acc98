"""No module imports itself through others; imports in functions and for types count too."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, python_files

Modules = dict[str, Path]


def modules() -> Modules:
    """Our modules by the names they are imported by."""
    return {name_of(path.relative_to(ROOT)): path for path in python_files()}


def name_of(path: Path) -> str:
    parts = path.with_suffix("").parts
    parts = parts[1:] if parts[0] == "client" else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_by(source: str, known: set[str]) -> Iterator[str]:
    """The known modules that a source names in its imports.

    Not the packages they are in: each import runs those as well, and a package that re-exports
    names of its modules is no cycle.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found = full if full in known else node.module
                if found in known:
                    yield found


def check(graph: dict[str, set[str]]) -> None:
    """Raise `CycleError` if there is a cycle."""
    TopologicalSorter(graph).prepare()


def test_there_are_no_import_cycles() -> None:
    found = modules()
    check({name: set(imported_by(path.read_text(), set(found))) for name, path in found.items()})


def test_the_check_finds_a_cycle_whatever_the_kind_of_import() -> None:
    sources = {
        "a": "import b\n",
        "b": "def f():\n    from c import thing\n",
        "c": "if TYPE_CHECKING:\n    from a import Thing\n",
    }
    with pytest.raises(CycleError):
        check({name: set(imported_by(source, set(sources))) for name, source in sources.items()})
