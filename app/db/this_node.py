"""The running server: its name among the nodes, and whether it is shutting down."""

from __future__ import annotations

import mmap
import os
import secrets
import socket
from contextlib import suppress
from functools import cached_property
from hashlib import blake2b
from pathlib import Path

from app.ingest.shared_table import replace_table, shared_table

VARIABLE = "SLUICE_NODE"
"""Environment variable with which the supervisor passes the name to its processes."""

_DIGEST_BYTES = 16


def new_name() -> str:
    """Returns a name for a new server: the machine's name and a random suffix."""
    return f"{socket.gethostname()[:80]}-{secrets.token_hex(4)}"


class ThisNode:
    """One server; all of its processes see whether it is leaving.

    `file` stores the name of the server that is leaving, so a file left by a killed server does not
    affect the next. Without a name, as in gunicorn without the supervisor, it is never leaving.
    """

    def __init__(self, file: Path, name: str) -> None:
        self.name = name
        self._file = file

    @property
    def is_leaving(self) -> bool:
        """Whether it is stopping, and accepts requests only until load balancers notice."""
        return bool(self.name) and self._note[:] == self._digest

    def leave(self) -> None:
        """Notify all processes that it is leaving; fails silently on a full disk."""
        with suppress(OSError):
            replace_table(self._file, self._digest)

    @cached_property
    def _digest(self) -> bytes:
        return blake2b(self.name.encode(), digest_size=_DIGEST_BYTES).digest()

    @cached_property
    def _note(self) -> mmap.mmap | bytes:
        try:
            return shared_table(self._file, _DIGEST_BYTES)
        except OSError:
            return b""  # The file cannot store a name.


def this_node(data: Path) -> ThisNode:
    """Returns the server that this process belongs to, with its data folder."""
    return ThisNode(data / "leaving", os.environ.get(VARIABLE, ""))
