"""The repository as the architecture tests see it."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE_FOLDERS = ("app", "client", "bench", "tests", "scripts")


def python_files() -> list[Path]:
    """Our Python files; migrations count too."""
    found = [path for folder in CODE_FOLDERS for path in (ROOT / folder).rglob("*.py")]
    return sorted([*found, *ROOT.glob("*.py")])


def files_in_git() -> list[str] | None:
    """Paths of the files in git's index; None outside a work tree, as in an unpacked archive."""
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return listing.stdout.split("\0")[:-1] if listing.returncode == 0 else None
