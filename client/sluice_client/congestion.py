"""Which congestion control the connections have: BBR where this machine has it.

Others take each lost packet for a full queue. BBR measures what the line carries, so that one or
two connections fill a line that loses packets; many of them would fill its queue.
"""

from __future__ import annotations

import socket
from contextlib import suppress

BBR, SYSTEM = "bbr", "system"

_NAME_BYTES = 16
"""TCP_CA_NAME_MAX of linux/tcp.h."""


def congestion_control(wanted: str) -> str:
    """What connections get that ask for `wanted`: that of the system where it cannot be chosen.

    For `SYSTEM` they do not ask. Empty where the system does not tell.
    """
    option = getattr(socket, "TCP_CONGESTION", None)
    if option is None:
        return ""
    with socket.socket() as trial:
        if wanted != SYSTEM:
            with suppress(OSError):  # The kernel has no such one, or not for everybody.
                trial.setsockopt(socket.IPPROTO_TCP, option, wanted.encode())
        name = trial.getsockopt(socket.IPPROTO_TCP, option, _NAME_BYTES)
    return name.rstrip(b"\0").decode()
