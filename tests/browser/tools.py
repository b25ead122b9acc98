"""The programs that these tests need besides Python, and what happens if one is missing."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from typing import NoReturn

import pytest
from playwright._impl._driver import compute_driver_executable

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first, Chromium without a window of its own, shows a page in a third of the CPU time."""

FIREFOXES = ("firefox-esr", "firefox")

OLDEST_FIREFOX = 143
"""The first that knows `network.addDataCollector` of WebDriver BiDi."""
BROWSER_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find_program(name: str) -> str:
    """The path of a program that set-up installs."""
    return shutil.which(name) or do_without(name)


def need_driver() -> None:
    """Check that what drives browsers runs."""
    if not runs(compute_driver_executable()[0], "-e", "0"):
        do_without("libatomic1")


def find_browser() -> str:
    """The path of the first Chromium that runs, and can be driven."""
    need_driver()
    for name in BROWSERS:
        path = shutil.which(name)
        if path is not None and runs(path, "--version"):  # Ubuntu's is a script that needs a snap
            return path
    if platform.freedesktop_os_release()["ID"] == "ubuntu":
        pytest.skip("Ubuntu's chromium is a snap, which cannot be driven; install Google Chrome")
    return do_without("chromium-headless-shell")


def find_firefox() -> str:
    """The path of the first Firefox that runs, and can be driven."""
    for name in FIREFOXES:
        path = shutil.which(name)
        if path is not None and runs(path, "--version"):
            require_new_firefox(path)
            return path
    if platform.freedesktop_os_release()["ID"] == "ubuntu":
        pytest.skip("Ubuntu's firefox is a snap, which cannot be driven; install Mozilla's .deb")
    return do_without("firefox-esr")


def require_new_firefox(program: str) -> None:
    """Skip the test with a Firefox that the driver cannot talk to: a Debian without updates."""
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"(\d+)\.", told)
    if version is None or int(version[1]) < OLDEST_FIREFOX:
        pytest.skip(f"the driver needs Firefox {OLDEST_FIREFOX}, and here is {told.strip()}")


def runs(program: str, *arguments: str) -> bool:
    """Whether a program starts at all: its libraries are installed."""
    ended = subprocess.run([program, *arguments], capture_output=True, check=False, timeout=60)
    return ended.returncode == 0


def do_without(package: str) -> NoReturn:
    """Fail the test if set-up could have installed the package; otherwise skip it."""
    command = f"apt-get update && apt-get install {package}"
    reason = f"{package} is not installed. On Debian or Ubuntu: {command}"
    fail_or_skip(reason, could_be_here=can_set_up_install())


def fail_or_skip(reason: str, *, could_be_here: bool) -> NoReturn:
    """End a test for want of something: without a skip that hides what set-up would bring."""
    if could_be_here:
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
