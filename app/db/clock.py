"""One clock for all nodes that share a database."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from sqlalchemy import BigInteger, ColumnElement, cast, func, select

from app.core.errors import UploadError
from app.db.engine import Database

Clock = Callable[[], datetime]

SECOND = 1_000_000
"""In microseconds, as `Instant` counts."""

SERVER_NOW: ColumnElement[int] = cast(
    func.extract("epoch", func.clock_timestamp()) * SECOND, BigInteger
)
"""The database server's time in the format of its columns, as the nodes' clocks may differ."""

ASKED_SECONDS = 60.0
"""How often the server's clock is read; a machine's own drifts by some ms in between."""


def utc_now() -> datetime:
    """This machine's own clock."""
    return datetime.now(UTC)


def _elapsed() -> float:
    """Seconds since boot, including those the machine was asleep."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ServerClock:
    """The clock of the database server, so that leases hold even where the nodes' clocks differ.

    While the server cannot be reached, counts on from the last answer. Before the first answer it
    raises `UploadError`, as a wrong time could delete videos.
    """

    def __init__(self, database: Database, elapsed: Callable[[], float] = _elapsed) -> None:
        self._database = database
        self._elapsed = elapsed
        # One value, as another thread may replace it at any time: when this machine booted.
        self._booted: datetime | None = None
        self._ask_at = float("-inf")

    def __call__(self) -> datetime:
        """The time on the server now."""
        booted = self._booted
        if booted is None or self._elapsed() >= self._ask_at:
            booted = self._ask(booted)
        return booted + timedelta(seconds=self._elapsed())

    def _ask(self, known: datetime | None) -> datetime:
        began = self._elapsed()
        self._ask_at = began + ASKED_SECONDS  # Set first, so that other threads do not ask too.
        try:
            with self._database.read() as connection:
                found = connection.execute(select(func.clock_timestamp())).scalar_one()
        except UploadError:
            if known is None:
                raise
            return known
        middle = timedelta(seconds=(began + self._elapsed()) / 2)
        booted: datetime = found.astimezone(UTC) - middle
        self._booted = booted
        return booted


def shared_clock(database: Database, own: Clock) -> Clock:
    """The clock of all users of the database: the server's, or for SQLite this machine's `own`."""
    return ServerClock(database) if database.is_remote else own
