"""One writer a range, across threads and processes, with the newest winning.

Open-file-description locks (Linux 3.15) belong to an open file, cover a byte range, and die with
the descriptor: nothing stale survives a killed process. A writer holds the lock on its range. A
newer one that wants the range *knocks*: it takes a shared lock on the same range far beyond any
file's end, which the holder looks for between blocks; it then stops and lets go.
"""

from __future__ import annotations

import fcntl
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

from app.domain.errors import ServerBusy
from app.domain.ranges import ByteRange

KNOCK_OFFSET = 1 << 62
"""Where knocks are locked: locks may stand beyond the end of a file, and no file is so long."""

HAND_OVER_SECONDS = 20.0
"""How long to wait for an older writer. It looks for knocks twice a second, then makes what it
has durable; beyond this the disk hangs and the newcomer is told to come again."""

_POLL_SECONDS = 0.005
_FLOCK = struct.Struct("@hhqqi4x")  # struct flock: type, whence, start, length, pid


def _lock_call(descriptor: int, command: int, kind: int, start: int, span: ByteRange) -> int:
    # A length of 0 would mean "to the end of everything": an empty range locks one byte.
    request = _FLOCK.pack(kind, 0, start + span.start, max(span.length, 1), 0)
    answer = fcntl.fcntl(descriptor, command, request)
    found: int = _FLOCK.unpack(answer)[0]
    return found


def is_knocked(descriptor: int, span: ByteRange) -> bool:
    """Whether a newer writer waits for bytes of `span`, which this descriptor has locked."""
    found = _lock_call(descriptor, fcntl.F_OFD_GETLK, fcntl.F_WRLCK, KNOCK_OFFSET, span)
    return found != fcntl.F_UNLCK


def _try_lock(descriptor: int, span: ByteRange) -> bool:
    try:
        _lock_call(descriptor, fcntl.F_OFD_SETLK, fcntl.F_WRLCK, 0, span)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _knocking(descriptor: int, span: ByteRange) -> Iterator[None]:
    _lock_call(descriptor, fcntl.F_OFD_SETLK, fcntl.F_RDLCK, KNOCK_OFFSET, span)
    try:
        yield
    finally:
        _lock_call(descriptor, fcntl.F_OFD_SETLK, fcntl.F_UNLCK, KNOCK_OFFSET, span)


def lock_range(descriptor: int, span: ByteRange) -> None:
    """Lock `span` of a file open for reading and writing; closing the descriptor unlocks it.

    Raises `ServerBusy` when the older writer has not let go after `HAND_OVER_SECONDS`.
    """
    if _try_lock(descriptor, span):
        return
    deadline = time.monotonic() + HAND_OVER_SECONDS
    with _knocking(descriptor, span):
        while not _try_lock(descriptor, span):
            if time.monotonic() > deadline:
                raise ServerBusy("An older request still writes these bytes.")
            time.sleep(_POLL_SECONDS)
