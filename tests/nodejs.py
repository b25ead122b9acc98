"""Scripts under Node.js."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.sources import ROOT

SCRIPT_SECONDS = 100


def node() -> str:
    """The Node.js that set-up installed, or the machine's own."""
    found = shutil.which(ROOT / ".tools" / "node" / "node") or shutil.which("node")
    if found is None:
        pytest.skip("node is missing; `make setup-dev` installs it")
    return found


def run_script(script: Path, task: dict[str, Any]) -> Any:
    """The JSON that a script prints, given a task as JSON."""
    finished = subprocess.run(
        [node(), script, json.dumps(task)],
        capture_output=True,
        text=True,
        timeout=SCRIPT_SECONDS,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)
