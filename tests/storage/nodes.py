"""Nodes of a fleet in one process, which end or pause at any call."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import RawIOBase
from pathlib import Path
from typing import Any

from app.core.ranges import ByteRange
from app.storage.s3.bucket import Bucket
from app.storage.s3.catalog import BucketCatalog
from app.storage.s3.store import BucketStore
from tests.storage.sources import body
from tests.storage.stores import KEY, LIMITS, SPOOL_BYTES

CELL = 5 * 1024 * 1024
"""The shortest part that S3 takes."""

MOST_PIECES = 4


class Killed(BaseException):
    """Stands for the end of the process."""


def _do_nothing() -> None:
    pass


class Interrupted:
    """Something real, of which one call is followed, or preceded, by something else, once.

    `turn` says which of the calls, from 1.
    """

    def __init__(
        self, real: Any, call: str, act: Callable[[], None], *, is_after: bool, turn: int = 1
    ) -> None:
        self._real = real
        self._call = call
        self._act = [act, *[_do_nothing] * (turn - 1)]
        self._is_after = is_after

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real, name)
        if name == "within":
            return self._within
        if name != self._call or not self._act:
            return real

        def interrupted(*args: Any, **options: Any) -> Any:
            act = self._act.pop() if self._act else _do_nothing
            if not self._is_after:
                act()
            found = real(*args, **options)
            if self._is_after:
                try:
                    act()
                except Killed:
                    if isinstance(found, RawIOBase):
                        found.close()  # As the end of a process does.
                    raise
            return found

        return interrupted

    def _within(self, seconds: float) -> Interrupted:
        copy = Interrupted(self._real.within(seconds), self._call, lambda: None, is_after=False)
        copy._act, copy._is_after = self._act, self._is_after
        return copy


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

    def __init__(self, bucket: Any, catalog: Any, folder: Path, *, cell_bytes: int = CELL) -> None:
        self.store = BucketStore(
            *(bucket, catalog, folder),
            spool_bytes=SPOOL_BYTES,
            smallest_cell_bytes=cell_bytes,
            most_pieces=MOST_PIECES,
        )

    def send(self, told: list[ByteRange], start: int, end: int) -> None:
        span = ByteRange(start, end)
        with self.store.staging.writer(KEY, span, LIMITS) as writer:
            position = writer.write(span, body(start, end), told.append)
            told.append(ByteRange(start, position))


def interrupted(
    bucket: Bucket,
    catalog: BucketCatalog,
    call: str,
    act: Callable[[], None],
    *,
    is_after: bool,
    turn: int = 1,
) -> tuple[Any, Any]:
    """Both, the one that has the call interrupted."""
    assert hasattr(bucket, call) or hasattr(catalog, call), call
    wrapped = [
        Interrupted(each, call, act, is_after=is_after, turn=turn) if hasattr(each, call) else each
        for each in (bucket, catalog)
    ]
    return wrapped[0], wrapped[1]


def die() -> None:
    raise Killed
