"""Claims on cells: the holder makes the cell's part or joins its pieces; others do not wait."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta

from app.core.cells import Claim, Stamp
from app.core.errors import UploadError
from app.storage.s3.bucket import CALL_SECONDS
from app.storage.s3.catalog import Catalog
from app.storage.s3.connections import SLOWEST_BYTES_PER_SECOND

SPARE_SECONDS = 30.0
"""How long a claim outlives the request that took it."""


class ClaimLost(Exception):
    """Another request has taken over the cell."""


class Lease:
    """A claim, and until when it is certain to hold by this machine's monotonic clock."""

    def __init__(self, catalog: Catalog, claim: Claim, ends_at: float) -> None:
        self.claim = claim
        self.is_over = False
        self._catalog = catalog
        self._ends_at = ends_at

    def cover(self, length: int) -> None:
        """Extend the lease to outlive a request of `length` bytes; raises `ClaimLost`."""
        limit = limit_seconds(length)
        if time.monotonic() + limit < self._ends_at:
            return
        seconds = limit + SPARE_SECONDS
        ends_at = time.monotonic() + seconds
        if not self._catalog.renew(self.claim, timedelta(seconds=seconds)):
            raise ClaimLost
        self._ends_at = ends_at

    def seal(self, length: int, stamp: Stamp, *, through: int | None = None) -> bool:
        """Record the part, which includes pieces up to `through`, and end the claim."""
        claim = self.claim if through is None else replace(self.claim, through=through)
        is_sealed = self._catalog.seal(claim, length, stamp)
        self.is_over = True
        return is_sealed


@contextmanager
def claimed(catalog: Catalog, key: str, cell: int, length: int) -> Iterator[Lease | None]:
    """Claim a cell for a request of `length` bytes; yields None while another claim is active.

    If the database's response was lost, releases the claim instead of holding it until it expires.
    """
    seconds = limit_seconds(length) + SPARE_SECONDS
    ends_at, token = time.monotonic() + seconds, secrets.token_hex(16)
    try:
        claim = catalog.claim(key, cell, token, timedelta(seconds=seconds))
    except UploadError:
        with suppress(UploadError):
            catalog.release(Claim(key, cell, token, number=0, through=0))
        raise
    if claim is None:
        yield None
        return
    lease = Lease(catalog, claim, ends_at)
    try:
        yield lease
    finally:
        if not lease.is_over:
            with suppress(UploadError):  # If this fails, the lease expires.
                catalog.release(claim)


def limit_seconds(length: int) -> float:
    """Time limit for a request of `length` bytes, in seconds."""
    return CALL_SECONDS + length / SLOWEST_BYTES_PER_SECOND
