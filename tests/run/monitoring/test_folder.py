"""The folder of a server's counts: fresh, private, and gone afterwards."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.run.monitoring.folder import PREFIX, RESERVED_BYTES, VARIABLE, MetricsFolder, reserve_files
from tests.architecture.sources import ROOT

HOLDS = """
import sys
from pathlib import Path
from app.run.monitoring.folder import MetricsFolder
MetricsFolder(Path(sys.argv[1])).open()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The parent folder, named by the operator."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "parent"))
    yield tmp_path / "parent"
    monkeypatch.undo()


def folders(parent: Path) -> list[Path]:
    return sorted(parent.glob(f"{PREFIX}*"))


def test_a_server_gets_a_folder_nobody_else_may_enter_and_removes_it(parent: Path) -> None:
    folder = MetricsFolder(parent)
    folder.open()
    (found,) = folders(parent)
    assert os.environ[VARIABLE] == str(found)
    assert stat.S_IMODE(found.stat().st_mode) == 0o700
    folder.close()
    assert folders(parent) == []


def test_a_child_process_uses_the_servers_folder_and_does_not_remove_it(parent: Path) -> None:
    outer, inner = MetricsFolder(parent), MetricsFolder(parent)
    outer.open()
    inner.open()
    assert len(folders(parent)) == 1
    inner.close()
    assert len(folders(parent)) == 1


def test_folders_of_killed_servers_are_removed_and_those_of_running_ones_stay(parent: Path) -> None:
    servers = [_start_server(parent) for _ in range(2)]
    living, killed = servers
    left = folders(parent)
    killed.kill()
    killed.communicate()
    try:
        folder = MetricsFolder(parent)
        folder.open()
        fresh = Path(os.environ[VARIABLE])
        kept = set(folders(parent)) - {fresh}
        assert len(kept) == 1
        assert kept < set(left)
        folder.close()
    finally:
        living.kill()
        living.communicate()


def _start_server(parent: Path) -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, "-c", HOLDS, parent],
        cwd=ROOT,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert server.stdout is not None
    assert server.stdout.readline() == "held\n"
    return server


def test_a_link_in_place_of_a_folder_is_not_followed(parent: Path, tmp_path: Path) -> None:
    parent.mkdir()
    (tmp_path / "precious").mkdir()
    (parent / f"{PREFIX}x").symlink_to(tmp_path / "precious")
    MetricsFolder(parent).open()
    assert (tmp_path / "precious").is_dir()


def test_a_process_has_space_for_its_files_even_if_the_folder_was_deleted(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "cleaned"
    reserve_files(folder)
    files = list(folder.iterdir())
    assert files
    assert {file.stat().st_size for file in files} == {RESERVED_BYTES}
    assert all(file.stat().st_blocks * 512 >= RESERVED_BYTES for file in files)
