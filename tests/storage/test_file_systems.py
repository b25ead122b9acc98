"""Which folders are in memory, by the kernel's list of mounts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.core.file_systems import is_in_memory


@pytest.mark.parametrize(
    "name",
    [
        b"plain",
        b"two words",
        "Öl".encode(),
        b"latin-1 \xf6",
        "line\u2028separator".encode(),
        b"a\rb",
    ],
)
def test_mount_points_may_have_any_name(tmp_path: Path, name: bytes) -> None:
    folder = tmp_path / os.fsdecode(name)
    mounts = tmp_path / "mounts"
    point = os.fsencode(folder).replace(b" ", rb"\040")
    mounts.write_bytes(b"/dev/sda1 / ext4 rw 0 0\ntmpfs " + point + b" tmpfs rw 0 0\n")
    assert is_in_memory(folder / "staging", mounts)
    assert not is_in_memory(tmp_path, mounts)
