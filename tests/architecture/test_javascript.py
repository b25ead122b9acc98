"""Runs the JavaScript tests with node's own runner, so that one summary tells of all tests."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

TESTS = sorted((ROOT / "tests" / "js").rglob("*.test.*js"))


def node() -> str:
    """The node that set-up brought, else the machine's own."""
    found = shutil.which(ROOT / ".tools" / "node" / "node") or shutil.which("node")
    if found is None:
        pytest.skip("node is missing; `make setup-dev` brings it")
    return found


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
