"""Every test asserts something, itself or in a helper; a docstring says what any other catches."""

import ast
from collections.abc import Iterable, Iterator

from tests.architecture.sources import ROOT

RAISING = {"raises", "warns", "fail", "raise_for_status"}
"""Calls that count as an assertion."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(trees: Iterable[ast.AST]) -> list[Function]:
    """Every function and method."""
    return [node for tree in trees for node in ast.walk(tree) if isinstance(node, Function)]


def called(function: Function) -> Iterator[str]:
    """Names of the functions that it calls. Of methods only names of several words: `get` and
    `send` say nothing about whose they are."""
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Name(id=name)):
                yield name
            case ast.Call(func=ast.Attribute(attr=name)) if "_" in name or name in RAISING:
                yield name


def fails(node: ast.AST) -> bool:
    """Whether it can fail the test: an assertion, a `raise`, a process run with `check=True`."""
    match node:
        case ast.Assert() | ast.Raise() | ast.keyword(arg="check", value=ast.Constant(value=True)):
            return True
    return False


def asserts(function: Function, asserting: set[str]) -> bool:
    """Whether it asserts or raises, or calls something that does."""
    own = any(fails(node) for node in ast.walk(function))
    return own or not asserting.isdisjoint(called(function))


def without_assertion(sources: Iterable[str]) -> list[str]:
    """Names of the tests that assert nothing and have no docstring."""
    everything = functions(map(ast.parse, sources))
    asserting = set(RAISING)
    while found := {f.name for f in everything if asserts(f, asserting)} - asserting:
        asserting |= found
    tests = [function for function in everything if function.name.startswith("test_")]
    silent = [test for test in tests if not asserts(test, asserting)]
    return [test.name for test in silent if not ast.get_docstring(test)]


def test_every_test_asserts_or_says_what_it_catches() -> None:
    paths = (ROOT / "tests").rglob("*.py")
    assert without_assertion(path.read_text(encoding="utf-8") for path in paths) == []


def test_an_assertion_counts_in_the_test_itself_and_in_a_helper() -> None:
    helper = "def check(x):\n    assert x\n"
    bare = "def test_bare():\n    print(1)\n"
    through = "def test_through():\n    check(1)\n"
    told = "def test_told():\n    'Catches a hang.'\n    print(1)\n"
    assert without_assertion([helper, bare, through, told]) == ["test_bare"]
