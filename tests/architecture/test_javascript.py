"""Runs the JavaScript tests with Node's test runner, so that one summary covers all tests."""

import subprocess
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT
from tests.nodejs import node

TESTS = sorted((ROOT / "tests" / "js").rglob("*.test.*js"))


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.name)
def test_javascript(path: Path) -> None:
    result = subprocess.run(
        [node(), "--test", "--test-reporter=spec", path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
