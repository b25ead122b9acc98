"""`make fleet` starts everything, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import requests

from scripts.fleet.__main__ import MARKER, emptied
from scripts.fleet.nginx import find_nginx
from scripts.fleet.postgresql import find_postgresql
from scripts.fleet.programs import free_port
from tests.browser.tools import do_without
from tests.live_server import ROOT, STOP_SECONDS, command_of
from tests.s3_servers import find_versitygw
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A fleet of one node that serves; its first line names the URL."""
    find_versitygw()
    find_nginx() or do_without("nginx")
    find_postgresql() or do_without("postgresql")
    with subprocess.Popen(
        [sys.executable, "-m", "scripts.fleet", "--nodes=1", f"--folder={tmp_path}"],
        cwd=ROOT,
        env={**os.environ, "SLUICE_PORT": str(free_port()), "SLUICE_RENDITIONS": "off"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        yield process
        process.kill()


def test_a_fleet_serves_and_ends_with_all_its_programs_when_one_of_them_dies(
    fleet: subprocess.Popen[str],
) -> None:
    assert fleet.stdout is not None
    url = fleet.stdout.readline().split()[4].rstrip(";")
    assert requests.get(f"{url}/api/uploads", timeout=60).json()["uploads"] == []
    programs = psutil.Process(fleet.pid).children(recursive=True)
    node = next(each for each in programs if "app.run.server.supervisor" in command_of(each))
    node.send_signal(signal.SIGTERM)
    assert fleet.wait(STOP_SECONDS) == 1
    assert "node 1 ended with 0" in fleet.stdout.read()
    wait_until(lambda: not psutil.wait_procs(programs, 0)[1], "all programs have ended")


def test_a_folder_that_no_fleet_made_is_left_alone(tmp_path: Path) -> None:
    film = tmp_path / "holidays" / "film.mp4"
    film.parent.mkdir()
    film.write_bytes(b"film")
    with pytest.raises(SystemExit, match="not empty"):
        emptied(tmp_path)
    assert film.read_bytes() == b"film"


def test_a_fleet_begins_without_anything_that_the_last_one_left(tmp_path: Path) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "fleet"
    (folder / "node1").mkdir(parents=True)
    elsewhere.mkdir()
    for file in (folder / MARKER, folder / "notes", folder / "node1" / "log", elsewhere / "film"):
        file.write_bytes(b"something")
    (folder / "link").symlink_to(elsewhere)
    assert [path.name for path in emptied(folder).iterdir()] == [MARKER]
    assert (elsewhere / "film").exists()


def test_a_signal_while_it_starts_ends_what_has_started(fleet: subprocess.Popen[str]) -> None:
    wait_until(lambda: psutil.Process(fleet.pid).children(), "the first program has started")
    programs = psutil.Process(fleet.pid).children(recursive=True)
    fleet.send_signal(signal.SIGTERM)
    output, _ = fleet.communicate(timeout=STOP_SECONDS)
    assert fleet.returncode == 0, output
    wait_until(lambda: not psutil.wait_procs(programs, 0)[1], "all programs have ended")
