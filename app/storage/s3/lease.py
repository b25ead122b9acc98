"""The lease of a file: one node at a time makes it one object."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

from app.core.errors import UploadError
from app.storage.s3.catalog import BucketCatalog

LEASE_SECONDS = 30.0
RENEWED_SECONDS = 10.0
"""How long a lease outlives its node, and how often it is renewed."""


@contextmanager
def leased(catalog: BucketCatalog, key: str) -> Iterator[str | None]:
    """Hold the lease of a file, which a thread renews.

    Yields its token, which each step that needs the lease names; None while another holder has it.
    """
    token, is_over = secrets.token_hex(16), Event()
    try:
        is_ours = catalog.lease(key, token, LEASE_SECONDS)
    except UploadError:  # It may be ours although the answer was lost.
        is_ours = catalog.lease(key, token, LEASE_SECONDS)
    if not is_ours:
        yield None
        return

    def renew() -> None:
        while not is_over.wait(RENEWED_SECONDS):
            with suppress(UploadError):
                if not catalog.renew(key, token, LEASE_SECONDS):
                    return

    thread = Thread(target=renew, name="lease", daemon=True)
    thread.start()
    try:
        yield token
    finally:
        is_over.set()
        thread.join()
        with suppress(UploadError):  # If this fails, the lease expires.
            catalog.release(key, token)
