"""No function and no file grows beyond what one reads at once."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("path", python_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_file_and_its_functions_are_short(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert source.count("\n") <= FILE_LINES
    assert list(long_functions(source, FUNCTION_LINES)) == []


def test_the_measure_counts_from_def_to_the_last_line() -> None:
    source = "@decorator\ndef three():\n    x = 1\n    return x\n\n\ndef one(): ...\n"
    assert list(long_functions(source, 2)) == ["2: three has 3 lines"]
    assert list(long_functions(source, 3)) == []
