"""The data folder: its lock, and names of paths and owners in messages to operators."""

from __future__ import annotations

import fcntl
import logging
import os
import pwd
from contextlib import suppress
from pathlib import Path

LOCK_NAME = "server.lock"

log = logging.getLogger(__name__)


class FolderLocked(Exception):
    """Another process holds the folder; the message says which one and what to do."""


def lock_data_folder(folder: Path) -> int | None:
    """Lock the data folder; returns the descriptor that holds the lock. Raises `FolderLocked`.

    Returns None if the folder cannot hold a lock; `/readyz` reports why.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(folder / LOCK_NAME, flags, 0o600)
    except OSError as error:
        log.warning("cannot lock the data folder %s: %s", folder, error.strerror)
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
        os.close(descriptor)
        raise FolderLocked(
            f"Another server, process {holder or 'unknown'}, uses the data folder {folder}. "
            "Stop it, or set SLUICE_DATA_DIR to another folder."
        ) from None
    except OSError as error:
        log.warning("cannot lock the data folder %s: %s", folder, error.strerror)
    with suppress(OSError):  # On a full disk the lock works without the process id.
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def shown(path: Path) -> str:
    """Returns the path as one line that any terminal or log can display."""
    text = str(path)
    return text if text.isprintable() else ascii(text)[1:-1]


def user_name(number: int) -> str:
    """Names the owner of a file, such as "the user sluice"."""
    try:
        return f"the user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"user {number}"
