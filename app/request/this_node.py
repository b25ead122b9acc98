"""The running server: its name among others that share its records, and whether it leaves."""

from __future__ import annotations

import mmap
import os
import secrets
import socket
from contextlib import suppress
from functools import cached_property
from hashlib import blake2b
from pathlib import Path

from app.request.shared_table import replace_table, shared_table

VARIABLE = "SLUICE_NODE"
"""Where the supervisor leaves the name for the processes it starts."""

_DIGEST_BYTES = 16


def new_name() -> str:
    """A name for a server that starts: that of its machine, and a random end."""
    return f"{socket.gethostname()[:80]}-{secrets.token_hex(4)}"


class ThisNode:
    """One server; all of its processes see whether it leaves.

    `file` notes which server does, by its name: what a killed one has left there says nothing of
    the next. Without a name, as in gunicorn without the supervisor, it never leaves.
    """

    def __init__(self, file: Path, name: str) -> None:
        self.name = name
        self._file = file

    @property
    def is_leaving(self) -> bool:
        """Whether it was told to stop, and takes requests only until others have noticed."""
        return bool(self.name) and self._note[:] == self._digest

    def leave(self) -> None:
        """Tell all processes that it leaves; on a full disk it leaves without that."""
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
            return b""  # Where nothing can be noted.


def this_node(data: Path) -> ThisNode:
    """The server whose process this is, with its data folder."""
    return ThisNode(data / "leaving", os.environ.get(VARIABLE, ""))
