"""What is in git, and what must not be."""

import os
import subprocess
import sys

import pytest

from tests.architecture.sources import ROOT, files_in_git

MADE_BY_SETUP = ("static/vendor/", "node_modules/", ".venv/", ".tools/", "data/")
LOCKED_FILES = (
    "requirements.txt",
    "requirements-dev.txt",
    "scripts/requirements-node.txt",
    "scripts/requirements-ffmpeg.txt",
    "scripts/requirements-go.txt",
    "scripts/requirements-copyparty.txt",
)


def test_files_that_setup_fetches_are_not_in_git() -> None:
    paths = files_in_git()
    if paths is None:
        pytest.skip("not a git work tree")
    assert [path for path in paths if path.startswith(MADE_BY_SETUP)] == []


def test_lock_files_are_compiled_from_the_current_pyproject() -> None:
    check = subprocess.run(
        [sys.executable, "scripts/lock_digest.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert check.returncode == 0, check.stdout


@pytest.mark.parametrize("name", LOCKED_FILES)
def test_every_locked_package_has_a_hash_and_no_url(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    entries = text.replace("\\\n", " ").splitlines()
    pinned = [line for line in entries if line and not line.lstrip().startswith("#")]
    assert pinned
    assert [line for line in pinned if "==" not in line or "--hash=sha256:" not in line] == []
    assert "://" not in text
    assert "--index-url" not in text
    assert "--find-links" not in text


def test_both_lock_files_agree_on_every_runtime_package() -> None:
    """Another of our tools may want one on every system that Sluice wants on some."""
    everything = pins("requirements-dev.txt")
    for pin in pins("requirements.txt"):
        assert {pin, pin.partition(" ; ")[0]} & everything, pin


def test_assets_are_locked_by_content_and_not_by_url() -> None:
    text = (ROOT / "package-lock.json").read_text(encoding="utf-8")
    assert '"integrity": "sha512-' in text
    assert '"resolved"' not in text


@pytest.mark.parametrize("name", ["setup", "lint", "lock", "bare-machine"])
def test_scripts_can_be_run_and_are_valid_bash(name: str) -> None:
    script = ROOT / "scripts" / name
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", script], check=True)


def pins(name: str) -> set[str]:
    """`package==version` of each line of a lock file, with its marker."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return {line.rstrip(" \\") for line in lines if line[:1].isalnum()}
