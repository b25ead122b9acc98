"""Room on the disk of a folder that may not exist yet."""

from __future__ import annotations

import os
from pathlib import Path


def free_bytes(folder: Path) -> int:
    """Free space that this process may use; 0 where the file system does not answer."""
    for existing in (folder, *folder.parents):
        try:
            found = os.statvfs(existing)
        except FileNotFoundError:
            continue
        except OSError:
            break
        return found.f_bavail * found.f_frsize
    return 0
