"""Ctrl-C, `kill` and a closed terminal end a command cleanly.

The command runs in a thread of its own, and the main thread waits for it and for signals. Python
runs signal handlers in the main thread, between any two of its instructions: one that sets an
`Event` waits forever if that thread was just then holding the lock inside the `Event`, and one
that raises can leave a lock held. So our handler does nothing. The byte that Python writes to the
wakeup descriptor for each signal is what ends the wait.
"""

from __future__ import annotations

import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

LEAVE_SECONDS = 1.5
"""How long a command may take to end after a signal, enough to record what a download has. One
that waits for a silent server is then abandoned: it holds nothing that matters."""


def run_until_signalled(command: Callable[[], int], stop: Callable[[], None]) -> int | None:
    """What `command` returns or raises, with `stop` called at the first signal.

    None if it has not returned within `LEAVE_SECONDS` of that; it then still runs, and only the
    end of the process ends it. None too, and nothing has run, if a signal came
    while `__main__` blocked them.
    """
    if signal.sigpending().intersection(END_SIGNALS):
        return None
    results: list[int] = []
    errors: list[BaseException] = []
    end, ended = socket.socketpair()

    def run() -> None:
        with ended:  # closed at the end, which the other side sees
            try:
                results.append(command())
            except BaseException as error:  # noqa: BLE001 - raised again in the main thread
                errors.append(error)

    with end, _signal_bytes() as signals:
        _start_without_signals(threading.Thread(target=run, name="command", daemon=True))
        _await_end(end, signals, stop)
    if errors:
        raise errors[0]
    return results[0] if results else None


def _start_without_signals(thread: threading.Thread) -> None:
    """Start a thread that gets no signals: all go to the main thread, which can then block them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
    try:
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, END_SIGNALS)


def _await_end(end: socket.socket, signals: socket.socket, stop: Callable[[], None]) -> None:
    """Return once `end` is closed from the other side, or some time after the first signal."""
    deadline: float | None = None
    while True:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready = select.select([end, signals], [], [], left)[0]
        if end in ready or not ready:
            return
        signals.recv(4096)
        if deadline is None:
            deadline = time.monotonic() + LEAVE_SECONDS
            stop()


@contextmanager
def _signal_bytes() -> Iterator[socket.socket]:
    """Readable whenever a signal has come; afterwards signals are ignored.

    The process is about to end then, and a late one would end it with another exit code.
    """
    received, written = socket.socketpair()
    with received, written:
        written.setblocking(False)
        signal.set_wakeup_fd(written.fileno(), warn_on_full_buffer=False)
        for number in END_SIGNALS:
            signal.signal(number, _do_nothing)
        try:
            yield received
        finally:
            # One that comes while it becomes ignored would make Python print a traceback.
            signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
            for number in END_SIGNALS:
                signal.signal(number, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, END_SIGNALS)
            signal.set_wakeup_fd(-1)


def _do_nothing(_number: int, _frame: object) -> None:
    pass
