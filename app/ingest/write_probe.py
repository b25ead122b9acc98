"""Detects an fsync that succeeded although ext4 had just dropped the data.

At its first disk error, ext4 aborts its journal (`errors=remount-ro`). An fsync that is running
then no longer finds the transaction that it waits for, takes it for committed, and returns 0
(`jbd2_complete_transaction()`); the bytes are gone after the next mount. From the abort on, every
change that needs the journal fails, so making one after each fsync detects it. On Linux 6.18, every
write lost this way was detected; tests/ingest/test_write_probe.py repeats the experiment.
"""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

__all__ = ["WriteProbe"]

_FAILED = frozenset({errno.EROFS, errno.EIO})
_UNSUPPORTED = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL})
"""There is no `O_TMPFILE` here, as on NFS. Any other error may pass: try again."""


class WriteProbe:
    """Makes a change that needs the journal: extends an unnamed, empty file by one byte.

    The file is created on first use and kept open. It has no blocks, only a length.
    """

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._descriptor: int | None = None
        self._length = 0
        self._asking = threading.Lock()

    def require_writable(self, folder: Path) -> None:
        """Raise `OSError` if the file system has failed; call this after an fsync.

        Does nothing where unnamed files are not supported. A replaced folder must come with
        another path.
        """
        with self._asking:
            if folder != self._folder:
                self._open(folder)
            if self._descriptor is None:
                return
            self._length += 1
            try:
                os.ftruncate(self._descriptor, self._length)
            except OSError as error:
                if error.errno in _FAILED:
                    raise

    def _open(self, folder: Path) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._folder = self._descriptor = None
        self._length = 0
        try:
            flags = os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC
            self._descriptor = os.open(folder, flags, 0o600)
        except OSError as error:
            if error.errno in _FAILED:
                raise
            if error.errno not in _UNSUPPORTED:
                return
        self._folder = folder
