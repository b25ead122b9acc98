"""The lease of a file: one node at a time makes it one object."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

from app.core.errors import UploadError
from app.storage.s3.catalog import BucketCatalog

LEASE_SECONDS = 30.0
RENEWED_SECONDS = 10.0
"""How long a lease outlives its node, and how often it is renewed."""


class LeaseLost(Exception):
    """Another node makes the object now."""


class Lease:
    """The right to make a file one object; steps that need it name its `token`."""

    def __init__(self, catalog: BucketCatalog, key: str) -> None:
        self.key = key
        self.token = secrets.token_hex(16)
        self.is_lost = False
        self._catalog = catalog
        self._ends_at = 0.0

    def take(self) -> bool:
        """Take or renew the lease; returns whether this node has it."""
        ends_at = time.monotonic() + LEASE_SECONDS
        is_ours = self._catalog.lease(self.key, self.token, LEASE_SECONDS)
        self._ends_at = ends_at if is_ours else 0.0
        return is_ours

    def keep(self, is_over: Event) -> None:
        """Renew the lease until `is_over` or until it is lost."""
        while not self.is_lost and not is_over.wait(RENEWED_SECONDS):
            try:
                self.is_lost = not self.take()
            except UploadError:
                self.is_lost = time.monotonic() > self._ends_at


@contextmanager
def leased(catalog: BucketCatalog, key: str) -> Iterator[Lease | None]:
    """Hold the lease of a file, which a thread renews; yields None while another holder has it."""
    lease, is_over = Lease(catalog, key), Event()
    try:
        is_ours = lease.take()
    except UploadError:  # It may be ours although the answer was lost.
        is_ours = lease.take()
    if not is_ours:
        yield None
        return
    thread = Thread(target=lease.keep, args=(is_over,), name="lease", daemon=True)
    thread.start()
    try:
        yield lease
    finally:
        is_over.set()
        thread.join()  # It must not take the lease again.
        with suppress(UploadError):  # If this fails, the lease expires.
            catalog.release(key, lease.token)
