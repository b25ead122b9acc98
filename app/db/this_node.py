"""The running server: its name among those that share its records, and whether it is leaving."""

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
"""Environment variable in which the supervisor passes the name to its processes."""

_DIGEST_BYTES = 16


def new_name() -> str:
    """A name for a server that starts: the machine's name and a random suffix."""
    return f"{socket.gethostname()[:80]}-{secrets.token_hex(4)}"


class ThisNode:
    """One server; all of its processes see whether it is leaving.

    `file` holds the name of the server that is leaving, so one left over from a killed server says
    nothing about the next. Without a name, as in gunicorn without the supervisor, it never leaves.
    """

    def __init__(self, file: Path, name: str) -> None:
        self.name = name
        self._file = file

    @property
    def is_leaving(self) -> bool:
        """Whether it was told to stop, and takes requests only until load balancers notice."""
        return bool(self.name) and self._note[:] == self._digest

    def leave(self) -> None:
        """Tell all processes that it is leaving; on a full disk they are not told."""
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
            return b""  # No name can be stored.


def this_node(data: Path) -> ThisNode:
    """The server that this process belongs to, with its data folder."""
    return ThisNode(data / "leaving", os.environ.get(VARIABLE, ""))
