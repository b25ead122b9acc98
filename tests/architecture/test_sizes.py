"""No function and no file grows beyond what one reads at once."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.sources import ROOT, python_files

FUNCTION_LINES = 50
FILE_LINES = 400


def long_functions(source: str, limit: int) -> Iterator[str]:
    """Line, name and length of each function with more than `limit` lines, decorators excluded."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > limit:
                yield f"{node.lineno}: {node.name} has {length} lines"


def too_long(path: Path) -> Iterator[str]:
    """What of a file is beyond the limits."""
    source = path.read_text(encoding="utf-8")
    if (lines := source.count("\n")) > FILE_LINES:
        yield f"{lines} lines"
    yield from long_functions(source, FUNCTION_LINES)


def test_files_and_functions_are_short() -> None:
    found = {str(path.relative_to(ROOT)): list(too_long(path)) for path in python_files()}
    assert {path: complaints for path, complaints in found.items() if complaints} == {}


def test_the_measure_counts_from_def_to_the_last_line() -> None:
    source = "@decorator\ndef three():\n    x = 1\n    return x\n\n\ndef one(): ...\n"
    assert list(long_functions(source, 2)) == ["2: three has 3 lines"]
    assert list(long_functions(source, 3)) == []
