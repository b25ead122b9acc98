"""Work of other processes on one store or file; run by `multiprocessing`."""

import os
import resource
import sys
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

from app.core.errors import NoRoom
from app.core.ranges import ByteRange
from app.storage.local.range_lock import is_takeover_requested, lock_range
from tests.storage.stores import KEY, local_store


def publish(staging: Path, library: Path, length: int, barrier: Barrier) -> None:
    """Publish at the same moment as other processes."""
    store = local_store(staging, library)
    barrier.wait()
    store.library.publish(KEY, length)


def hold(path: Path, span: ByteRange, pipe: Connection) -> None:
    """Lock a range, report it, hold it until a takeover request, report that and release it."""
    descriptor = os.open(path, os.O_RDWR)
    lock_range(descriptor, span)
    pipe.send("locked")
    while not is_takeover_requested(descriptor, span):
        if pipe.poll(0.005):
            break
    pipe.send("let go")
    os.close(descriptor)


def hold_deaf(path: Path, span: ByteRange, pipe: Connection) -> None:
    """Lock a range, report it, and ignore takeover requests until told to end."""
    descriptor = os.open(path, os.O_RDWR)
    lock_range(descriptor, span)
    pipe.send("locked")
    pipe.recv()
    os.close(descriptor)


def reserve_beyond_limit(staging: Path, library: Path, limit: int) -> None:
    """Exit with 0 if reserving more than a process may write raises `NoRoom`."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        local_store(staging, library).staging.reserve(KEY, limit + 1)
    except NoRoom:
        sys.exit(0)
    sys.exit(3)
