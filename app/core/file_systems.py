"""Detects the type of the file system a folder is on."""

from __future__ import annotations

import os
import re
from pathlib import Path

MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs"})

MOUNTS = Path("/proc/self/mounts")

_ESCAPED = re.compile(rb"\\([0-7]{3})")
"""Escaped spaces, tabs, line feeds and backslashes of a name; other bytes are not escaped."""


def is_in_memory(path: Path, mounts: Path = MOUNTS) -> bool:
    """Whether files there are in RAM, and lost when the machine restarts."""
    return _type_of(path, mounts) in MEMORY_FILE_SYSTEMS


def _type_of(path: Path, mounts: Path) -> str:
    """Type of the file system `path` is on, from the longest matching mount point."""
    resolved = path.resolve()
    best, best_type = Path("/"), ""
    for line in mounts.read_bytes().split(b"\n"):
        if not line:
            continue
        _, mount_point, kind, *_ = line.split(b" ")
        point = Path(os.fsdecode(_ESCAPED.sub(_unescaped, mount_point)))
        if resolved.is_relative_to(point) and len(point.parts) >= len(best.parts):
            best, best_type = point, kind.decode()
    return best_type


def _unescaped(found: re.Match[bytes]) -> bytes:
    return bytes([int(found[1], 8)])
