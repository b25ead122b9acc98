"""A data folder has one server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.storage.data_folder import LOCK_NAME, FolderLocked, lock_data_folder


def test_a_data_folder_has_one_server_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "data"
    first = lock_data_folder(folder)
    with pytest.raises(FolderLocked) as refused:
        lock_data_folder(folder)
    for word in (str(folder), str(os.getpid()), "SLUICE_DATA_DIR"):
        assert word in str(refused.value)
    assert first is not None
    os.close(first)
    again = lock_data_folder(folder)
    assert again is not None
    os.close(again)


def test_processes_that_the_server_starts_do_not_hold_its_data_folder(tmp_path: Path) -> None:
    first = lock_data_folder(tmp_path)
    assert first is not None
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with child:
        os.close(first)
        again = lock_data_folder(tmp_path)
        assert again is not None
        os.close(again)


def test_a_folder_that_cannot_be_locked_does_not_hide_the_reason(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    assert lock_data_folder(tmp_path / "file" / "data") is None


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / LOCK_NAME).symlink_to(tmp_path / "precious")
    assert lock_data_folder(tmp_path) is None
    assert (tmp_path / "precious").read_text() == "precious"
