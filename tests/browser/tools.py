"""The programs that these tests need beside Python, and what is said where one is missing."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find_program(*names: str) -> str:
    """The path of the first of these programs that is there.

    Without any, a test fails where set-up could have installed it, and is skipped elsewhere.
    """
    for name in names:
        if path := shutil.which(name):
            return path
    package = names[0]
    reason = f"{package} is not installed. On Debian or Ubuntu: apt-get install {package}"
    if can_set_up_install():
        pytest.fail(f"{reason}, or `make setup-dev`", pytrace=False)
    pytest.skip(reason)


def can_set_up_install() -> bool:
    """Whether `scripts/setup dev` may install system packages here."""
    if shutil.which("apt-get") is None:
        return False
    if os.geteuid() == 0:
        return True
    if shutil.which("sudo") is None:
        return False
    return subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False).returncode == 0
