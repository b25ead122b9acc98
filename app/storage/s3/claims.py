"""Claims on cells: whoever has one makes a part of the cell or joins its pieces; no one waits."""

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
"""By how much a claim outlives the request that it was taken for."""


class ClaimLost(Exception):
    """Somebody else has the cell by now."""


class Lease:
    """A claim, and until when it is certain by this machine's clock."""

    def __init__(self, catalog: Catalog, claim: Claim, ends_at: float) -> None:
        self.claim = claim
        self.is_over = False
        self._catalog = catalog
        self._ends_at = ends_at

    def cover(self, length: int) -> None:
        """Make it outlive a request with so many bytes; raises `ClaimLost`."""
        limit = limit_seconds(length)
        if time.monotonic() + limit < self._ends_at:
            return
        seconds = limit + SPARE_SECONDS
        ends_at = time.monotonic() + seconds
        if not self._catalog.renew(self.claim, timedelta(seconds=seconds)):
            raise ClaimLost
        self._ends_at = ends_at

    def seal(self, length: int, stamp: Stamp, *, through: int | None = None) -> bool:
        """Record the part, with the bytes of pieces up to `through`, and end the claim."""
        claim = self.claim if through is None else replace(self.claim, through=through)
        is_sealed = self._catalog.seal(claim, length, stamp)
        self.is_over = True
        return is_sealed


@contextmanager
def claimed(catalog: Catalog, key: str, cell: int, length: int) -> Iterator[Lease | None]:
    """Claim a cell for a request with `length` bytes; None while somebody else has it.

    A claim whose answer was lost is released, instead of holding the cell until its lease ends.
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
            with suppress(UploadError):  # The lease ends it otherwise.
                catalog.release(claim)


def limit_seconds(length: int) -> float:
    """What the store may take for a request with so many bytes."""
    return CALL_SECONDS + length / SLOWEST_BYTES_PER_SECOND
