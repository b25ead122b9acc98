"""Updates that wait at the same time share one round trip and one commit on a server.

The counterpart of SQLite's `group_commit.py`: a commit waits some milliseconds for the server's
disk, and updates that arrive meanwhile in the same process are sent together afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Event, Lock
from typing import Generic, TypeVar

MOST_TOGETHER = 64
"""Limit on the updates of one commit."""

Change = TypeVar("Change")


class _Waiting(Generic[Change]):
    """A waiting change: `is_made` is set once it was tried, or `error` if its whole batch failed.

    If its thread is woken with neither set, it should try the oldest changes itself.
    """

    __slots__ = ("change", "error", "is_made", "woken")

    def __init__(self, change: Change) -> None:
        self.change = change
        self.is_made: bool | None = None
        self.error: BaseException | None = None
        self.woken = Event()


class SharedUpdates(Generic[Change]):
    """`make` tries several changes in one commit, and says of each whether it was made.

    It must not wait for locks: that would block all others of the batch.
    """

    def __init__(self, make: Callable[[Sequence[Change]], Sequence[bool]]) -> None:
        self._make = make
        self._waiting: list[_Waiting[Change]] = []
        self._gathering = Lock()
        self._is_busy = False

    def make(self, change: Change) -> bool:
        """Try a change, together with those of other waiting threads; whether it was made.

        Raises what `make` raised for the whole batch.
        """
        own = _Waiting(change)
        with self._gathering:
            self._waiting.append(own)
            is_first, self._is_busy = not self._is_busy, True
        if not is_first:
            own.woken.wait()
        if own.is_made is None and own.error is None:
            self._make_oldest()  # Our own is the oldest.
        if own.error is not None:
            raise own.error
        return own.is_made is True

    def _make_oldest(self) -> None:
        with self._gathering:
            taken, self._waiting = self._waiting[:MOST_TOGETHER], self._waiting[MOST_TOGETHER:]
        try:
            made = self._make([each.change for each in taken])
        except BaseException as error:  # noqa: BLE001 - each waiting thread raises it
            for each in taken:
                each.error = error
        else:
            for each, is_made in zip(taken, made, strict=True):
                each.is_made = is_made
        with self._gathering:  # The next ones begin before these go on.
            self._is_busy = bool(self._waiting)
            if self._waiting:
                self._waiting[0].woken.set()
        for each in taken:
            each.woken.set()
