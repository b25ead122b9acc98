"""One clock for all machines that share a database."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from sqlalchemy import func, select

from app.domain.errors import UploadError
from app.records.engine import Database

Clock = Callable[[], datetime]

ASKED_SECONDS = 60.0
"""Between two looks at the server's clock; in that time a machine's own is off by some ms."""


def _elapsed() -> float:
    """Seconds that pass while the machine sleeps, too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ServerClock:
    """The clock of the database server: leases hold though the machines' own clocks differ.

    While the server cannot be asked, time goes on from when it was. Before that there is no time:
    raises `UploadError`, as a wrong one could delete videos.
    """

    def __init__(self, database: Database, elapsed: Callable[[], float] = _elapsed) -> None:
        self._database = database
        self._elapsed = elapsed
        # One value, as another thread may replace it at any time: when this machine booted.
        self._booted: datetime | None = None
        self._ask_at = float("-inf")

    def __call__(self) -> datetime:
        """The time there now."""
        booted = self._booted
        if booted is None or self._elapsed() >= self._ask_at:
            booted = self._ask(booted)
        return booted + timedelta(seconds=self._elapsed())

    def _ask(self, known: datetime | None) -> datetime:
        began = self._elapsed()
        self._ask_at = began + ASKED_SECONDS  # First: the other threads go on with what is known.
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
    """The clock that all who use the database share: its server's, or that of the one machine."""
    return ServerClock(database) if database.is_remote else own
