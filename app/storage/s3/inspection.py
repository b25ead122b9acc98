"""Lists a bucket's files, checks its health, removes garbage, and compares it with the database."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import merge
from itertools import chain, groupby
from operator import itemgetter
from threading import Lock

from app.core.errors import StorageFailed, UploadError
from app.storage.base import SetupProblem, StagedFile
from app.storage.local import folder_problems
from app.storage.local.folder import Folder, disk_errors
from app.storage.local.range_lock import WHOLE_FILE, try_lock
from app.storage.s3.bucket import Bucket
from app.storage.s3.catalog import DIRECT, FILES, PIECES, BucketCatalog
from app.storage.s3.check import CHECKS
from app.storage.s3.contents import ListedMultipart, ListedObject
from app.storage.s3.inventory import collect

REMOVED_AT_ONCE = 1000
"""Most objects that one request may remove."""

PROBED_EVERY_SECONDS = 10.0
"""How long the result of a health check is cached."""

PROBE_SECONDS = 5.0
"""How long a health check waits for the store."""

LOCK_FILE_SECONDS = 24 * 3600.0
"""Age at which lock files are removed."""


@dataclass(slots=True)
class BucketInspection:
    """Implements `Inspection` for a bucket and this node's spool folder."""

    catalog: BucketCatalog
    bucket: Bucket
    spools: Folder
    locks: Folder
    probed_every_seconds: float = PROBED_EVERY_SECONDS
    _probing: Lock = field(default_factory=Lock, init=False)
    _probed_at: float = field(default=float("-inf"), init=False)
    _found: list[SetupProblem] | None = field(default=None, init=False)

    def staged(self) -> Iterator[StagedFile]:
        """Unpublished files; idle since they were reserved, touched, or their last URL expired."""
        return (StagedFile(key, seconds) for key, seconds in self.catalog.inventory.staged())

    def published(self) -> Iterator[str]:
        """Keys of published files."""
        return self.catalog.inventory.published()

    def shift_activity(self, later: timedelta) -> None:
        """Shift the activity times of unpublished files, but not beyond now."""
        self.catalog.inventory.shift_activity(later)

    def problems(self) -> list[SetupProblem]:
        """Returns current problems of the spools, and of the bucket at most some seconds ago.

        If the result of the bucket is old, one thread checks it again while others use it. Others
        wait only for the first result.
        """
        if self._is_due() and self._probing.acquire(blocking=self._found is None):
            try:
                if self._is_due():
                    self._found = list(self._probe())
                    self._probed_at = time.monotonic()
            finally:
                self._probing.release()
        of_spools = folder_problems(self.spools, "staging", warn_of_memory=False)
        return [*of_spools, *(self._found or [])]

    def collect_garbage(self, go_on: Callable[[], object] = lambda: None, /) -> None:
        """Remove what is due from the bucket, until `go_on` raises."""
        inventory = self.catalog.inventory
        while garbage := inventory.garbage(REMOVED_AT_ONCE):
            collect(self.bucket, inventory, garbage)
            go_on()

    def remove_leftovers(self) -> None:
        """Remove old lock files from this node."""
        now = time.time()
        for entry in self.locks.entries():
            with suppress(FileNotFoundError), disk_errors():
                if now - entry.stat().st_mtime <= LOCK_FILE_SECONDS:
                    continue
                lock = self.locks.open(entry.name, os.O_RDWR)
                try:
                    if try_lock(lock, WHOLE_FILE):
                        self.locks.remove(entry.name)
                finally:
                    os.close(lock)

    def _is_due(self) -> bool:
        return time.monotonic() >= self._probed_at + self.probed_every_seconds

    def _probe(self) -> Iterator[SetupProblem]:
        try:
            self.bucket.within(PROBE_SECONDS).probe()
        except StorageFailed as error:
            yield SetupProblem(
                "bucket_refuses", f"the bucket cannot be used: {error}", is_fatal=True
            )
        except UploadError:
            detail = "the object store does not answer"
            yield SetupProblem("bucket_unreachable", detail, is_fatal=True)


# ---- reconciliation ------------------------------------------------------------------------------

# Finds objects without a row, and rows without an object. Both sides are read once, sorted by name,
# so that millions of objects need little memory.


FOLDERS = (CHECKS, DIRECT, FILES, PIECES)
"""Folders with the store's objects, in name order."""

ORPHAN_AGE = timedelta(days=1)
"""Newer objects may belong to a row that is still being written; allows for wrong clocks."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A name that only one side has: orphaned in the bucket or missing from it."""

    name: str
    is_orphan: bool


class Reconciliation:
    """Compares the two sides; checks each difference again before it reports it.

    Only objects born before some time count as orphans: see `ORPHAN_AGE`.
    """

    def __init__(self, bucket: Bucket, catalog: BucketCatalog, born_before: datetime) -> None:
        self._bucket = bucket
        self._inventory = catalog.inventory
        self._born_before = born_before

    def differences(self) -> Iterator[Difference]:
        """Yields old objects without a row, and missing objects, sorted by name."""
        objects = chain.from_iterable(self._bucket.list_objects(folder) for folder in FOLDERS)
        listed = ((found.name, found) for found in objects)
        both = merge(listed, self._inventory.objects(), key=itemgetter(0))
        for name, sides in groupby(both, key=itemgetter(0)):
            found, rows = None, list[bool]()
            for _, side in sides:
                if isinstance(side, ListedObject):
                    found = side
                else:
                    rows.append(bool(side))
            is_missing = found is None and any(rows)
            is_orphan = found is not None and not rows and found.changed_at < self._born_before
            if is_missing and self._bucket.head(name) is None and self._inventory.is_needed(name):
                yield Difference(name, is_orphan=False)
            if is_orphan and self._inventory.is_needed(name) is None:
                yield Difference(name, is_orphan=True)

    def orphaned_multiparts(self) -> Iterator[ListedMultipart]:
        """Yields old multipart uploads without a row."""
        for folder in (CHECKS, FILES):
            for begun in self._bucket.list_multiparts(folder):
                is_named = self._inventory.is_needed(begun.name) is not None
                if begun.started_at < self._born_before and not is_named:
                    yield begun
