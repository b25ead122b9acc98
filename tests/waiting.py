"""Waiting for something in another process, or a moment later."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

TICK_SECONDS = 0.02
LONGEST_TICK_SECONDS = 0.25


def wait_until(
    condition: Callable[[], object],
    what: str,
    seconds: float = 120,
    *,
    longest_tick_seconds: float = LONGEST_TICK_SECONDS,
) -> None:
    """Poll until the condition holds; `what` describes it in the error.

    The longer it takes, the less often: many conditions ask a server, which takes CPU time.
    """
    began = time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        assert waited < seconds, f"never happened: {what}"
        time.sleep(min(max(TICK_SECONDS, waited / 20), longest_tick_seconds))


def wait_until_read(connection: socket.socket) -> None:
    """Wait until the program at the other end, on this machine, has read all bytes, or has left.

    `SIOCOUTQ` would not tell: it counts what the kernel there has not acknowledged.
    """
    try:
        ports = connection.getsockname()[1], connection.getpeername()[1]
    except OSError:  # It has left.
        return
    wait_until(lambda: not any(_unread_bytes(*ports)), "the other end has read what was sent")


def _unread_bytes(from_port: int, to_port: int) -> Iterator[int]:
    """Bytes under way, and bytes that wait in the receiver's kernel; proc(5), /proc/net/tcp."""
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        for line in table.read_text().splitlines()[1:]:
            local, remote, _, queues = line.split()[1:5]
            ports = int(local.rpartition(":")[2], 16), int(remote.rpartition(":")[2], 16)
            to_send, to_read = (int(length, 16) for length in queues.split(":"))
            if ports == (from_port, to_port):
                yield to_send
            elif ports == (to_port, from_port):
                yield to_read
