"""The folder through which the processes of one server share their counts.

prometheus-client maps one file a process and kind of metric into memory. A full disk would kill a
process that touches a new page of such a file, and a busy one would make every count wait for it:
so the folder is in memory where possible, and `reserve_files` takes the room beforehand. The folder
is made anew for each start of a server; its processes hold a lock on it, by which those that a
killed server has left are known.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""Where prometheus-client looks for the folder, at the moment it is imported."""

PREFIX = "sluice-metrics-"

MEMORY = Path("/dev/shm")

STARTED = "started"
"""A file as old as the server."""

FREE_BYTES = 32 * 1024 * 1024
"""Less than this in memory, as containers may have, and the folder goes to the data."""

IN_PROGRESS_KIND = "gauge_livesum"
FILE_KINDS = ("counter", "histogram", IN_PROGRESS_KIND)
RESERVED_BYTES = 256 * 1024
"""A file a process for each kind. The largest, the histograms, hold half of this when every
protocol has been used."""


_names: dict[int, str] = {}
"""By process id: a process that is forked has no name at first."""


class MetricsFolder:
    """The folder of one server, from its start to its end.

    Not a context of a generator: one that a forked worker inherits would end with the worker.
    """

    def __init__(self, data: Path) -> None:
        self._data = data
        self._path: Path | None = None
        self._lock = -1

    def open(self) -> None:
        """Name a folder in the environment of this process and those it starts.

        The one of this server that the environment names already, as gunicorn finds it that was
        started by us; else a fresh one, within the folder that an operator has named there.
        """
        given = Path(os.environ.get(VARIABLE, ""))
        if given.name.startswith(PREFIX):
            given.mkdir(mode=0o700, exist_ok=True)
            self._lock = _hold(given)
            return
        parent = given if given.name else _best_parent(self._data)
        parent.mkdir(parents=True, exist_ok=True)
        for old in parent.glob(f"{PREFIX}*"):
            _remove_if_left(old)
        self._path = Path(mkdtemp(prefix=PREFIX, dir=parent))
        self._lock = _hold(self._path)
        (self._path / STARTED).touch()
        os.environ[VARIABLE] = str(self._path)

    def close(self) -> None:
        """Remove the folder, if it was made here and no other process holds it."""
        if self._path is not None and _is_free(self._lock):
            shutil.rmtree(self._path, ignore_errors=True)


def reserve_files(path: Path) -> None:
    """Take the room of this process's files; to be called before it makes any metric.

    Those of counts may be there already, from a process that had its name; what that one had in
    progress has ended.
    """
    path.mkdir(mode=0o700, exist_ok=True)  # A clean-up of the machine's may have taken it.
    for kind in FILE_KINDS:
        name = path / f"{kind}_{process_name()}.db"
        with suppress(OSError):
            if kind == IN_PROGRESS_KIND:
                name.unlink(missing_ok=True)
            with name.open("ab") as file:
                os.posix_fallocate(file.fileno(), 0, RESERVED_BYTES)


def name_process(name: str) -> None:
    """Call this process so. One that takes the place of another goes on in its files.

    Else each that is killed would leave its own until the server ends, and a name must not be that
    of another living process.
    """
    _names[os.getpid()] = name


def process_name() -> str:
    """What this process is called; by its number unless it was given a name."""
    return _names.get(os.getpid()) or str(os.getpid())


def _best_parent(data: Path) -> Path:
    with suppress(OSError):
        if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= FREE_BYTES:
            return MEMORY
    return data


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
    """Whether no process holds the folder but through this descriptor."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
