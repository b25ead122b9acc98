"""One writer per range, across threads and processes; the newest wins.

Open-file-description locks (Linux 3.15) belong to an open file, cover a byte range, and end with
the descriptor: a killed process leaves no stale lock. A writer holds the lock on its range. A newer
writer that wants the range makes a *takeover request*: it takes a shared lock on the same range,
far beyond any file's end. The holder checks for it between blocks, then stops and unlocks.
"""

from __future__ import annotations

import fcntl
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

from app.core.errors import ServerBusy, WriterSuperseded
from app.core.ranges import ByteRange
from app.ingest.slots import without_slot

REQUEST_OFFSET = 1 << 62
"""Offset of the locks for takeover requests: locks may lie beyond the end of a file, and no file
reaches this offset."""

TAKEOVER_SECONDS = 20.0
"""How long to wait for an older writer. It checks for takeover requests while bytes flow, and
twice a second while none do, then syncs its bytes. If that takes longer, the disk hangs and the
newer request gets `ServerBusy`."""

WRITER_ENDS_SECONDS = 0.3
"""Enough for a request whose client has gone to read the remaining bytes and end."""

WRITER_STOPS_SECONDS = 2.0
"""Enough for a request to notice a takeover request, which it checks for at least twice a second,
and to sync its bytes."""

WHOLE_FILE = ByteRange(0, 1 << 61)
"""Covers any file. A takeover request for it ends where `ARRIVAL_OFFSET` begins."""

ARRIVAL_OFFSET = REQUEST_OFFSET + (1 << 61)
"""Offset at which each waiting writer locks the microsecond of its arrival."""

_LAST_ARRIVAL = 1 << 60
_POLL_SECONDS = 0.005
_LEAVING_POLLS = 100
_FLOCK = struct.Struct("@hhqqi4x")  # struct flock: type, whence, start, length, pid


def _lock_call(descriptor: int, command: int, kind: int, start: int, span: ByteRange) -> int:
    # In fcntl, a length of 0 means "to infinity": an empty range locks one byte instead.
    request = _FLOCK.pack(kind, 0, start + span.start, max(span.length, 1), 0)
    answer = fcntl.fcntl(descriptor, command, request)
    found: int = _FLOCK.unpack(answer)[0]
    return found


def is_takeover_requested(descriptor: int, span: ByteRange) -> bool:
    """Whether a newer writer waits for bytes of `span`, which this descriptor holds locked."""
    found = _lock_call(descriptor, fcntl.F_OFD_GETLK, fcntl.F_WRLCK, REQUEST_OFFSET, span)
    return found != fcntl.F_UNLCK


def lock_range(
    descriptor: int,
    span: ByteRange,
    *,
    gives_way: bool = True,
    patience_seconds: float = 0.0,
    takeover_seconds: float = TAKEOVER_SECONDS,
) -> None:
    """Lock `span` of a file open for reading and writing; closing the descriptor unlocks it.

    Requests a takeover from the current holder after `patience_seconds`. Of several waiting
    writers the newest gets the lock; the others raise `WriterSuperseded` if they `gives_way`.
    Raises `ServerBusy` if the holder has not released the lock `takeover_seconds` after that.
    """
    if try_lock(descriptor, span):
        return
    with without_slot():  # The holder may need the slot to notice the request and release the lock.
        if not wait_for_range(descriptor, span, patience_seconds):
            deadline = time.monotonic() + takeover_seconds
            _take_over(descriptor, span, deadline=deadline, gives_way=gives_way)


def wait_for_range(descriptor: int, span: ByteRange, seconds: float) -> bool:
    """Wait at most this long, without a takeover request; returns whether the range got locked."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        if try_lock(descriptor, span):
            return True
    return False


def stop_writer(descriptor: int, position: int) -> None:
    """Wait until no older writer holds the byte at a position; see `Staging.stop_writer`."""
    byte = ByteRange(position, position + 1)
    try:
        lock_range(descriptor, byte, patience_seconds=WRITER_ENDS_SECONDS)
    except WriterSuperseded:
        # Usually by another request that waits like this one; it stops the older writer for both.
        # There is no need to wait for the end of a newer writer.
        with without_slot():
            wait_for_range(descriptor, byte, WRITER_STOPS_SECONDS)


def try_lock(descriptor: int, span: ByteRange) -> bool:
    """Lock `span` like `lock_range`, unless others hold any of it; returns whether it did."""
    try:
        _lock_call(descriptor, fcntl.F_OFD_SETLK, fcntl.F_WRLCK, 0, span)
    except BlockingIOError:
        return False
    return True


def _take_over(descriptor: int, span: ByteRange, *, deadline: float, gives_way: bool) -> None:
    with _takeover_request(descriptor, span) as arrival:
        while not try_lock(descriptor, span):
            if gives_way and _has_newer(descriptor, span, arrival):
                raise WriterSuperseded("A newer request waits for the same bytes.")
            if time.monotonic() > deadline:
                raise ServerBusy("An older request still writes these bytes.")
            time.sleep(_POLL_SECONDS)
        if gives_way:
            _let_older_ones_leave(descriptor, span)


@contextmanager
def _takeover_request(descriptor: int, span: ByteRange) -> Iterator[int]:
    """Request `span`; yields the arrival time, which is also locked for others to compare."""
    arrival = time.monotonic_ns() // 1000  # All processes of the machine share this clock.
    mine = ByteRange(arrival, arrival + 1)
    _lock_call(descriptor, fcntl.F_OFD_SETLK, fcntl.F_RDLCK, ARRIVAL_OFFSET, mine)
    _lock_call(descriptor, fcntl.F_OFD_SETLK, fcntl.F_RDLCK, REQUEST_OFFSET, span)
    try:
        yield arrival
    finally:
        _lock_call(descriptor, fcntl.F_OFD_SETLK, fcntl.F_UNLCK, REQUEST_OFFSET, span)
        _lock_call(descriptor, fcntl.F_OFD_SETLK, fcntl.F_UNLCK, ARRIVAL_OFFSET, mine)


def _has_newer(descriptor: int, span: ByteRange, arrival: int) -> bool:
    """Whether a writer that arrived later is also waiting.

    Arrival locks cover the whole file; the takeover request shows that it waits for these bytes.
    """
    later = ByteRange(arrival + 1, _LAST_ARRIVAL)
    found = _lock_call(descriptor, fcntl.F_OFD_GETLK, fcntl.F_WRLCK, ARRIVAL_OFFSET, later)
    return found != fcntl.F_UNLCK and is_takeover_requested(descriptor, span)


def _let_older_ones_leave(descriptor: int, span: ByteRange) -> None:
    # Their requests would look like those of newer writers. They see ours at their next poll.
    for _ in range(_LEAVING_POLLS):
        if not is_takeover_requested(descriptor, span):
            return
        time.sleep(_POLL_SECONDS)
