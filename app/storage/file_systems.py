"""What kind of file system a folder is on."""

from __future__ import annotations

from pathlib import Path

MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs"})

MOUNTS = Path("/proc/self/mounts")


def is_in_memory(path: Path, mounts: Path = MOUNTS) -> bool:
    """Whether files there use RAM, and are lost in a restart of the machine."""
    return _type_of(path, mounts) in MEMORY_FILE_SYSTEMS


def _type_of(path: Path, mounts: Path) -> str:
    """Type of the file system `path` is on, from the longest matching mount point."""
    resolved = path.resolve()
    best, best_type = Path("/"), ""
    for line in mounts.read_text().splitlines():
        _, mount_point, kind, *_ = line.split(" ")
        point = Path(mount_point.encode().decode("unicode_escape"))
        if resolved.is_relative_to(point) and len(point.parts) >= len(best.parts):
            best, best_type = point, kind
    return best_type
