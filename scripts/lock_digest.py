"""Print a digest of the dependencies; `--check` compares the lock files with it."""

import hashlib
import json
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PROJECTS = ("pyproject.toml", "client/pyproject.toml")
LOCKS = ("requirements.txt", "requirements-dev.txt")


def dependency_digest(root: Path) -> str:
    """SHA-256 (hex) of the dependencies and Python versions of the projects in `root`."""
    inputs = {name: _inputs(root / name) for name in PROJECTS}
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def _inputs(pyproject: Path) -> dict[str, Any]:
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    extras = project.get("optional-dependencies", {})
    return {
        "requires-python": project["requires-python"],
        "dependencies": sorted(project["dependencies"]),
        "optional": {name: sorted(extras[name]) for name in extras},
    }


def stale_locks(root: Path) -> list[str]:
    """Names of the lock files in `root` that are out of date."""
    digest = dependency_digest(root)
    return [name for name in LOCKS if digest not in _first_line(root / name)]


def _first_line(path: Path) -> str:
    return path.read_text(encoding="utf-8").split("\n", 1)[0] if path.is_file() else ""


def main(arguments: list[str]) -> int:
    """1 if `--check` finds a stale lock file, otherwise 0."""
    if arguments != ["--check"]:
        print(dependency_digest(ROOT))
        return 0
    stale = stale_locks(ROOT)
    if stale:
        print(f"{', '.join(stale)}: out of date with the pyproject.toml files; run 'make lock'")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
