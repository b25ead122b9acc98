"""Lists a bucket's files, checks the bucket's health, and removes garbage."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from threading import Lock

from app.core.errors import StorageFailed, UploadError
from app.storage.base import SetupProblem, StagedFile
from app.storage.local import folder_problems
from app.storage.local.folder import Folder, disk_errors
from app.storage.local.range_lock import WHOLE_FILE, try_lock
from app.storage.s3.assembly import Assembly
from app.storage.s3.bucket import Bucket
from app.storage.s3.catalog import Catalog

REMOVED_AT_ONCE = 1000
"""Most objects that one request may remove."""

PROBED_EVERY_SECONDS = 10.0
"""How long the result of a health check is cached."""

PROBE_SECONDS = 5.0
"""How long a health check waits for the store."""

LOCK_FILE_SECONDS = 24 * 3600.0
"""Age at which lock files are removed."""


class BucketInspection:
    """Implements `Inspection` for a bucket and this node's spool folder."""

    def __init__(
        self,
        assembly: Assembly,
        catalog: Catalog,
        bucket: Bucket,
        *,
        spools: Folder,
        locks: Folder,
        probed_every_seconds: float = PROBED_EVERY_SECONDS,
    ) -> None:
        self._assembly = assembly
        self._catalog = catalog
        self._bucket = bucket
        self._spools = spools
        self._locks = locks
        self._probed_every_seconds = probed_every_seconds
        self._probing = Lock()
        self._probed_at = float("-inf")
        self._found: list[SetupProblem] | None = None

    def staged(self) -> Iterator[StagedFile]:
        """Unpublished files; idle since they were reserved or their last URL for a cell expired."""
        return (StagedFile(key, seconds) for key, seconds in self._catalog.inventory.staged())

    def published(self) -> Iterator[str]:
        """Keys of published files."""
        return self._catalog.inventory.published()

    def shift_activity(self, later: timedelta) -> None:
        """Shift the activity times of unpublished files, but not beyond now."""
        self._catalog.inventory.shift_activity(later)

    def problems(self) -> list[SetupProblem]:
        """Returns current problems of the spools, and of the bucket at most some seconds ago."""
        of_bucket = self._problems_of_bucket()
        return [*folder_problems(self._spools, "staging", warn_of_memory=False), *of_bucket]

    def sweep(self) -> None:
        """Remove garbage from the bucket, and old lock files from this node."""
        while garbage := self._catalog.garbage(REMOVED_AT_ONCE):
            self._assembly.collect(garbage)
        self._remove_old_locks()

    def _problems_of_bucket(self) -> list[SetupProblem]:
        """Returns the cached result; if it is old, one thread checks again while others use it.

        Other threads wait only for the first result.
        """
        if self._is_due() and self._probing.acquire(blocking=self._found is None):
            try:
                if self._is_due():
                    self._found = list(self._probe())
                    self._probed_at = time.monotonic()
            finally:
                self._probing.release()
        return self._found or []

    def _is_due(self) -> bool:
        return time.monotonic() >= self._probed_at + self._probed_every_seconds

    def _probe(self) -> Iterator[SetupProblem]:
        try:
            self._bucket.within(PROBE_SECONDS).probe()
        except StorageFailed as error:
            yield SetupProblem(
                "bucket_refuses", f"the bucket cannot be used: {error}", is_fatal=True
            )
        except UploadError:
            detail = "the object store does not answer"
            yield SetupProblem("bucket_unreachable", detail, is_fatal=True)

    def _remove_old_locks(self) -> None:
        now = time.time()
        for entry in self._locks.entries():
            with suppress(FileNotFoundError), disk_errors():
                if now - entry.stat().st_mtime > LOCK_FILE_SECONDS:
                    self._remove_lock(entry.name)

    def _remove_lock(self, name: str) -> None:
        lock = self._locks.open(name, os.O_RDWR)
        try:
            if try_lock(lock, WHOLE_FILE):
                self._locks.remove(name)
        finally:
            os.close(lock)
