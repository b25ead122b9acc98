"""Which congestion control the connections have: BBR where this machine has it.

Others take each lost packet for a full queue. BBR measures what the line carries, so that one or
two connections fill a line that loses packets; many of them would fill its queue.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from dataclasses import dataclass

BBR, SYSTEM = "bbr", "system"

_NAME_BYTES = 16
"""TCP_CA_NAME_MAX of linux/tcp.h."""


@dataclass(frozen=True, slots=True)
class CongestionControl:
    """What connections get; `name` is empty where the system does not tell.

    They ask for it only if it `is_chosen`, and otherwise get that of the system.
    """

    name: str
    is_chosen: bool


def congestion_control(wanted: str) -> CongestionControl:
    """What connections get that want `wanted`: that of the system where it cannot be chosen."""
    option = getattr(socket, "TCP_CONGESTION", None)
    if option is None:
        return CongestionControl("", is_chosen=False)
    is_chosen = False
    with socket.socket() as trial:
        if wanted not in {SYSTEM, _name_of(trial, option)}:
            with suppress(OSError):  # The kernel has no such one, or not for everybody.
                trial.setsockopt(socket.IPPROTO_TCP, option, wanted.encode())
                is_chosen = True
        return CongestionControl(_name_of(trial, option), is_chosen)


def _name_of(trial: socket.socket, option: int) -> str:
    return trial.getsockopt(socket.IPPROTO_TCP, option, _NAME_BYTES).rstrip(b"\0").decode()
