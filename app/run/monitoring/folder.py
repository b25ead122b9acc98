"""The folder through which the processes of one server share their counts.

prometheus-client maps a file per process and kind of metric into memory. A full disk would kill a
process that touches a new page of such a file, and a busy disk would delay every count: so the
folder is in memory where possible, and `reserve_files` allocates the files beforehand. Each start
of a server makes a new folder. Its processes hold a lock on it, so that a folder without a lock is
known to be left over from a killed server.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""Variable from which prometheus-client reads the folder when it is imported."""

PREFIX = "sluice-metrics-"

MEMORY = Path("/dev/shm")

STARTED = "started"
"""A file as old as the server."""

FREE_BYTES = 32 * 1024 * 1024
"""With less free memory than this, as in some containers, the folder is next to the data."""

IN_PROGRESS_KIND = "gauge_livesum"
FILE_KINDS = ("counter", "histogram", IN_PROGRESS_KIND)
RESERVED_BYTES = 256 * 1024
"""Size of each file. The largest, the histograms, fill half of it once all protocols were used."""


class MetricsFolder:
    """The folder of one server, from its start to its end.

    Not a generator-based context manager: a forked worker would inherit and close it.
    """

    def __init__(self, data: Path) -> None:
        self._data = data
        self._path: Path | None = None
        self._lock = -1

    def open(self) -> None:
        """Set the folder in the environment of this process and its children.

        If the environment already has this server's folder, as in gunicorn started by the
        supervisor, it is used; otherwise a new one is created, in the operator's folder if set.
        """
        given = Path(os.environ.get(VARIABLE, ""))
        if given.name.startswith(PREFIX):
            given.mkdir(mode=0o700, exist_ok=True)
            self._lock = _hold(given)
            return
        parent = given if given.name else self._data
        with suppress(OSError):
            has_memory = shutil.disk_usage(MEMORY).free >= FREE_BYTES
            if not given.name and has_memory and os.access(MEMORY, os.W_OK):
                parent = MEMORY
        parent.mkdir(parents=True, exist_ok=True)
        for old in parent.glob(f"{PREFIX}*"):
            _remove_if_left(old)
        self._path = Path(mkdtemp(prefix=PREFIX, dir=parent))
        self._lock = _hold(self._path)
        (self._path / STARTED).touch()
        os.environ[VARIABLE] = str(self._path)

    def close(self) -> None:
        """Remove the folder if it was made here and no other process holds a lock on it."""
        if self._path is not None and _is_free(self._lock):
            shutil.rmtree(self._path, ignore_errors=True)


def reserve_files(path: Path) -> None:
    """Allocate this process's files; call this before creating any metric.

    Counts of an earlier process of the same name are kept; its in-progress gauges are reset.
    """
    path.mkdir(mode=0o700, exist_ok=True)  # The machine's clean-up may have deleted it.
    for kind in FILE_KINDS:
        name = path / f"{kind}_{process_name()}.db"
        with suppress(OSError):
            if kind == IN_PROGRESS_KIND:
                name.unlink(missing_ok=True)
            with name.open("ab") as file:
                os.posix_fallocate(file.fileno(), 0, RESERVED_BYTES)


_this_process = {"name": str(os.getpid())}

process_name: Callable[[], str] = partial(_this_process.__getitem__, "name")
"""Returns the name of this process, by default its process id.

prometheus-client calls it for each count, a dozen times per request: this costs no Python frame."""


def name_process(name: str) -> None:
    """Name this process. A replacement takes the name of its predecessor and continues its files.

    Otherwise every killed process would leave files behind until the server ends. No two live
    processes may have the same name.
    """
    _this_process["name"] = name


# A forked process must not continue the files of its parent.
os.register_at_fork(after_in_child=lambda: name_process(str(os.getpid())))


def _remove_if_left(path: Path) -> None:
    with suppress(OSError):
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(lock).st_uid == os.geteuid() and _is_free(lock):
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)


def _hold(path: Path) -> int:
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(lock, fcntl.LOCK_SH)
    return lock


def _is_free(lock: int) -> bool:
    """Whether no other descriptor holds a lock on the folder."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
