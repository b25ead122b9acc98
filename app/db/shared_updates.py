"""Updates that wait at the same time share one round trip and one commit on a server.

The counterpart of SQLite's `group_commit.py`: a commit waits some milliseconds for the server's
disk, and updates that arrive meanwhile in the same process are sent together afterwards.

Threads that record one chunk after another would form two batches, each waiting for the other's
commit. Therefore the threads of the last batch get a moment to come back before the next is sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Condition, Event
from typing import Generic, TypeVar

MOST_TOGETHER = 64
"""Limit on the updates of one commit."""

RETURN_SHARE = 0.25
"""How long a batch waits for the threads of the last one, as a share of the time that one took.

Of 16 threads, 13 to 15 then share each commit instead of 8; twice as long adds one more."""

RETURN_SECONDS = 0.01
"""The most a batch waits for them: a commit of more than 40 ms waited for more than the disk."""

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

    def __init__(
        self,
        make: Callable[[Sequence[Change]], Sequence[bool]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make = make
        self._clock = clock
        self._waiting: list[_Waiting[Change]] = []
        self._gathering = Condition()
        self._is_busy = False
        self._expected = 1
        self._expected_until = 0.0

    def make(self, change: Change) -> bool:
        """Try a change, together with those of other waiting threads; whether it was made.

        Raises what `make` raised for the whole batch.
        """
        own = _Waiting(change)
        with self._gathering:
            self._waiting.append(own)
            is_first, self._is_busy = not self._is_busy, True
            if len(self._waiting) == self._expected:
                self._gathering.notify()
        if not is_first:
            own.woken.wait()
        if own.is_made is None and own.error is None:
            self._make_oldest()  # Our own is the oldest.
        if own.error is not None:
            raise own.error
        return own.is_made is True

    def _make_oldest(self) -> None:
        taken = self._gathered()
        began = self._clock()
        try:
            made = self._make([each.change for each in taken])
        except BaseException as error:  # noqa: BLE001 - each waiting thread raises it
            for each in taken:
                each.error = error
        else:
            for each, is_made in zip(taken, made, strict=True):
                each.is_made = is_made
        ended = self._clock()
        with self._gathering:  # The next ones begin before these go on.
            self._expected = min(len(taken) + len(self._waiting), MOST_TOGETHER)
            self._expected_until = ended + min((ended - began) * RETURN_SHARE, RETURN_SECONDS)
            self._is_busy = bool(self._waiting)
            if self._waiting:
                self._waiting[0].woken.set()
        for each in taken:
            each.woken.set()

    def _gathered(self) -> list[_Waiting[Change]]:
        """Take the oldest changes, once the last batch's threads are back or their time is up."""
        with self._gathering:
            while len(self._waiting) < self._expected:
                seconds = self._expected_until - self._clock()
                if seconds <= 0:
                    break
                self._gathering.wait(seconds)
            taken, self._waiting = self._waiting[:MOST_TOGETHER], self._waiting[MOST_TOGETHER:]
        return taken
