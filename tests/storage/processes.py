"""What other processes do to one store or one file; run by `multiprocessing`."""

import os
import resource
import sys
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

from app.domain.errors import NoRoom
from app.domain.ranges import ByteRange
from app.storage.local.range_lock import is_takeover_requested, lock_range
from tests.storage.stores import KEY, local_store


def publish(staging: Path, library: Path, length: int, barrier: Barrier) -> None:
    """Publish at the same moment as others do."""
    store = local_store(staging, library)
    barrier.wait()
    store.library.publish(KEY, length)


def hold(path: Path, span: ByteRange, pipe: Connection) -> None:
    """Lock a range, say so, and hold it until a takeover is requested; then say so and let go."""
    descriptor = os.open(path, os.O_RDWR)
    lock_range(descriptor, span)
    pipe.send("locked")
    while not is_takeover_requested(descriptor, span):
        if pipe.poll(0.005):
            break
    pipe.send("let go")
    os.close(descriptor)


def hold_deaf(path: Path, span: ByteRange, pipe: Connection) -> None:
    """Lock a range, say so, and look for no takeover requests until told to end."""
    descriptor = os.open(path, os.O_RDWR)
    lock_range(descriptor, span)
    pipe.send("locked")
    pipe.recv()
    os.close(descriptor)


def reserve_beyond_limit(staging: Path, library: Path, limit: int) -> None:
    """Exits with 0 where reserving more than a process may write is refused as `NoRoom`."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        local_store(staging, library).staging.reserve(KEY, limit + 1)
    except NoRoom:
        sys.exit(0)
    sys.exit(3)
