"""One clock for all machines that share a database."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from sqlalchemy import func, select

from app.domain.errors import UploadError
from app.records.engine import Database

ASKED_SECONDS = 60.0
"""Between two looks at the server's clock; in that time a machine's own is off by some ms."""


class ServerClock:
    """The clock of the database server: leases hold though the machines' own clocks differ.

    While the server cannot be asked, time goes on from when it was; before that, it is the
    machine's own.
    """

    def __init__(self, database: Database, own: Callable[[], datetime]) -> None:
        self._database = database
        self._own = own
        self._asking = threading.Lock()
        self._start: datetime | None = None
        self._started_at = 0.0
        self._ask_at = float("-inf")

    def __call__(self) -> datetime:
        """The time there now."""
        if _elapsed() >= self._ask_at and self._asking.acquire(blocking=self._start is None):
            try:
                self._ask()
            finally:
                self._asking.release()
        if self._start is None:
            return self._own()
        return self._start + timedelta(seconds=_elapsed() - self._started_at)

    def _ask(self) -> None:
        began = _elapsed()
        if began < self._ask_at:  # Another thread has asked meanwhile.
            return
        self._ask_at = began + ASKED_SECONDS
        try:
            with self._database.read() as connection:
                found = connection.scalar(select(func.clock_timestamp()))
        except UploadError:
            return
        if found is not None:
            middle = (began + _elapsed()) / 2
            self._start, self._started_at = found.astimezone(UTC), middle


def shared_clock(database: Database, own: Callable[[], datetime]) -> Callable[[], datetime]:
    """The clock that all who use the database share: its server's, or the one of this machine."""
    return ServerClock(database, own) if database.is_remote else own


def _elapsed() -> float:
    """Seconds that pass while the machine sleeps, too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
