"""Chooses the folder for unfinished uploads if no setting names one.

The choice depends on the machine, which may change: after an update, `/tmp` may be in memory. So
the path of the staging folder is recorded in the data folder, and kept while it holds uploads.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from app.core.file_systems import is_in_memory

TEMPORARY = Path("/tmp")
LASTING_TEMPORARY = Path("/var/tmp")

NAME = "sluice"

REMEMBERED = "staging-folder"
"""Name of the file in the data folder that holds the path of the staging folder in use."""

FORMERLY_REMEMBERED = "staging"
"""The file's name in older versions, which prevented a staging folder of that name."""

_UPLOAD = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class StagingChoice:
    """A folder, and why it was chosen."""

    path: Path
    reason: str


def choose_staging(
    data_dir: Path | None = None,
    *,
    temporary: Path = TEMPORARY,
    lasting: Path = LASTING_TEMPORARY,
) -> StagingChoice:
    """The recorded folder if it holds uploads, otherwise the default.

    Libraries of versions that recorded none have their uploads below `temporary`.
    """
    if is_in_memory(temporary) and lasting.is_dir() and not is_in_memory(lasting):
        usual = _own(lasting, f"{temporary} is in memory")
    else:
        usual = _own(temporary, f"{temporary} is on a disk")
    before = None if data_dir is None else remembered_staging(data_dir)
    if before is None and data_dir is not None and (data_dir / "sluice.db").exists():
        before = _own(temporary).path
    if before is not None and before != usual.path and count_uploads(before):
        return StagingChoice(before, "it holds unfinished uploads of this library")
    return usual


def remembered_staging(data_dir: Path) -> Path | None:
    """The staging folder last used with this data folder."""
    # If an older version's file exists, it is newer: this version renames it at each start.
    return _read_note(data_dir / FORMERLY_REMEMBERED) or _read_note(data_dir / REMEMBERED)


def rename_former_note(data_dir: Path) -> None:
    """Rename an older version's file, to free its name for a staging folder."""
    if _read_note(data_dir / FORMERLY_REMEMBERED) is not None:
        with suppress(OSError):
            (data_dir / FORMERLY_REMEMBERED).replace(data_dir / REMEMBERED)


def remember_staging(data_dir: Path, staging: Path) -> None:
    """Record the folder in use. Without the record, the next start chooses the default."""
    if remembered_staging(data_dir) == staging:
        return
    fresh = data_dir / f".{REMEMBERED}.{os.getpid()}"
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(os.fsencode(staging))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(data_dir / REMEMBERED)
    except OSError:
        with suppress(OSError):
            fresh.unlink()


def _read_note(file: Path) -> Path | None:
    with suppress(OSError, ValueError):
        text = os.fsdecode(file.read_bytes())
        return Path(text) if text.startswith("/") and "\0" not in text else None
    return None


def count_uploads(folder: Path) -> int:
    """Number of files in the folder that are named like unfinished uploads."""
    with suppress(OSError), os.scandir(folder) as found:
        return sum(_UPLOAD.fullmatch(entry.name) is not None for entry in found)
    return 0


def _own(parent: Path, reason: str = "") -> StagingChoice:
    """The folder in `parent`, with our user id if the usual one belongs to another user."""
    path = parent / NAME
    try:
        is_others = path.lstat().st_uid != os.geteuid()
    except OSError:
        is_others = False
    if not is_others:
        return StagingChoice(path, reason)
    own = path.with_name(f"{NAME}-{os.geteuid()}")
    return StagingChoice(own, f"{reason}, and {path} belongs to another user")
