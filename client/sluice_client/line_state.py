"""What the kernel knows of the line: bytes acknowledged, segments lost, time spent in queues."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from weakref import WeakKeyDictionary

_INFO_BYTES = 160
_RTT, _LEAST_RTT = 68, 148
_RETRANSMITTED, _ACKNOWLEDGED, _SEGMENTS = 100, 120, 136
"""Offsets in `struct tcp_info` of linux/tcp.h; times are in microseconds."""


@dataclass(frozen=True, slots=True)
class LineState:
    """What happened since the last look; `queue_seconds` is how long packets wait in queues now."""

    acknowledged_bytes: int
    segments: int
    retransmitted: int
    queue_seconds: float
    least_rtt_seconds: float

    @property
    def loss(self) -> float:
        """The share of segments that were sent again."""
        return self.retransmitted / self.segments if self.segments else 0.0


@dataclass(slots=True)
class _Seen:
    acknowledged: int = 0
    segments: int = 0
    retransmitted: int = 0


class OpenSockets:
    """The connections of a transport. Linux alone tells what it knows of them."""

    def __init__(self) -> None:
        self._seen: WeakKeyDictionary[socket.socket, _Seen] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def add(self, connection: socket.socket) -> None:
        """Look at this connection too, as long as it is used."""
        with self._lock:
            self._seen[connection] = _Seen()

    def look(self) -> LineState | None:
        """All connections together; None where the system tells nothing."""
        acknowledged = segments = retransmitted = 0
        shortest = least = float("inf")
        with self._lock:
            for info, seen in self._infos():
                now = _Seen(
                    _number(info, _ACKNOWLEDGED, "Q"),
                    _number(info, _SEGMENTS, "I"),
                    _number(info, _RETRANSMITTED, "I"),
                )
                if now.acknowledged > seen.acknowledged:
                    shortest = min(shortest, _number(info, _RTT, "I") / 1e6)
                least = min(least, _number(info, _LEAST_RTT, "I") / 1e6)
                acknowledged += now.acknowledged - seen.acknowledged
                segments += now.segments - seen.segments
                retransmitted += now.retransmitted - seen.retransmitted
                seen.acknowledged, seen.segments = now.acknowledged, now.segments
                seen.retransmitted = now.retransmitted
        if shortest == float("inf"):
            return None
        # A queue that stays is seen by all; a burst at the start of a chunk by one.
        return LineState(acknowledged, segments, retransmitted, shortest - least, least)

    def least_rtt_seconds(self) -> float:
        """The shortest round trip of all connections; infinite where the system tells nothing."""
        with self._lock:
            found = [_number(info, _LEAST_RTT, "I") / 1e6 for info, _ in self._infos()]
        return min(found, default=float("inf"))

    def _infos(self) -> Iterator[tuple[bytes, _Seen]]:
        option = getattr(socket, "TCP_INFO", None)
        if option is None:
            return
        for connection, seen in list(self._seen.items()):
            with suppress(OSError):  # It is closed.
                info = connection.getsockopt(socket.IPPROTO_TCP, option, _INFO_BYTES)
                if len(info) == _INFO_BYTES:
                    yield info, seen


def _number(info: bytes, offset: int, kind: str) -> int:
    value: int = struct.unpack_from(f"={kind}", info, offset)[0]
    return value
