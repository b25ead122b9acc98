"""Nodes of a fleet in one process, which end or pause at any call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import Any

from sqlalchemy import insert

from app.core.pieces import MIB
from app.core.ranges import ByteRange
from app.db.tables import stored_garbage
from app.storage.s3.bucket import Bucket
from app.storage.s3.catalog import BucketCatalog
from app.storage.s3.store import BucketStore
from tests.storage.sources import body
from tests.storage.stores import KEY, LIMITS, record

PIECE = 6 * MIB
"""Length of pieces in tests with `short_pieces`; the store copies those of 5 MiB or more."""


class Killed(BaseException):
    """Stands for the end of the process."""


class Interruption:
    """Something that happens once, before or after the call number `turn` of this name.

    If it ends the process, no later call reaches the database or the store.
    """

    def __init__(
        self, call: str, act: Callable[[], object], *, is_after: bool, turn: int = 1
    ) -> None:
        self.call = call
        self.is_after = is_after
        self.is_dead = False
        self._act = act
        self._calls_until = turn
        self._counting = Lock()

    def is_now(self) -> bool:
        """Count a call; whether it is the one to interrupt."""
        with self._counting:
            self._calls_until -= 1
            return self._calls_until == 0

    def happen(self) -> None:
        """Do it."""
        try:
            self._act()
        except Killed:
            self.is_dead = True
            raise


class Interrupted:
    """Wraps an object and interrupts one of its calls."""

    def __init__(self, real: Any, interruption: Interruption) -> None:
        self._real = real
        self._interruption = interruption

    def __getattr__(self, name: str) -> Any:
        real, interruption = getattr(self._real, name), self._interruption
        if name == "within":
            return lambda seconds: Interrupted(real(seconds), interruption)
        if not inspect.ismethod(real):
            return real

        def call(*args: Any, **options: Any) -> Any:
            if interruption.is_dead:
                raise Killed
            is_now = name == interruption.call and interruption.is_now()
            if is_now and not interruption.is_after:
                interruption.happen()
            found = real(*args, **options)
            if is_now and interruption.is_after:
                interruption.happen()
            return found

        return call


class Clock:
    """Goes on when the test says so."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.now

    def end_leases(self) -> None:
        self.now += timedelta(hours=2)


class Node:
    """A store, and what its clients were told."""

    def __init__(self, bucket: Any, catalog: Any, folder: Path) -> None:
        self.store = BucketStore(bucket, catalog, folder)

    def send(self, told: list[ByteRange], start: int, end: int) -> None:
        span = ByteRange(start, end)
        with self.store.staging.writer(KEY, span, LIMITS) as writer:

            def tell(stored: ByteRange) -> None:
                record(self.store, writer)
                told.append(stored)

            position = writer.write(span, body(start, end), tell)
            tell(ByteRange(start, position))


def interrupted(
    bucket: Bucket,
    catalog: BucketCatalog,
    call: str,
    act: Callable[[], object],
    *,
    is_after: bool,
    turn: int = 1,
) -> tuple[Any, Any]:
    """Returns the bucket and the catalog of a node, with one call of either interrupted."""
    assert hasattr(bucket, call) or hasattr(catalog, call), call
    interruption = Interruption(call, act, is_after=is_after, turn=turn)
    return Interrupted(bucket, interruption), Interrupted(catalog, interruption)


def discard(catalog: BucketCatalog, name: str, multipart_id: str | None = None) -> None:
    """Leave an object or a multipart upload to the next sweep."""
    row = {"name": name, "multipart_id": multipart_id, "due_at": datetime(1970, 1, 1, tzinfo=UTC)}
    with catalog.database.write() as connection:
        connection.execute(insert(stored_garbage), row)


def die() -> None:
    raise Killed
