"""What can prevent a start; each message says what to do."""

from __future__ import annotations

import errno
import os
import pwd
import socket
import stat
import time
from contextlib import suppress

from app.domain.cells import Grid
from app.domain.nodes import NodeState
from app.records.nodes import LEASE_SECONDS, NodeRecords
from app.settings import PREFIX, Settings

RELEASE_SECONDS = 1.0
"""How long to wait for a port in use: a server killed a moment ago is about to release it."""


class StartRefused(Exception):
    """The message says why, and what to do."""


def require_own_folders(settings: Settings) -> None:
    """Raise `StartRefused` if a folder is a link or another user's: it could not be used."""
    for path, variable in (
        (settings.staging_dir, "STAGING_DIR"),
        (settings.library_dir, "DATA_DIR"),
    ):
        with suppress(OSError):
            found = path.lstat()
            if stat.S_ISLNK(found.st_mode):
                raise StartRefused(
                    f"{path} is a symbolic link. Set {PREFIX}{variable} to a folder that is not a "
                    "link."
                )
            if found.st_uid not in {os.geteuid(), 0}:
                raise StartRefused(
                    f"{path} belongs to {_user_name(found.st_uid)}, and would be closed to this "
                    f"server. Set {PREFIX}{variable} to a folder of your own."
                )


def require_room_for_cells(settings: Settings) -> None:
    """Raise `StartRefused` if a cell of the longest file does not fit into the spools.

    Whether or not its client declares how long it is.
    """
    longest = settings.max_upload_bytes
    least = max(Grid.of(known).largest_bytes(longest) for known in (longest, None))
    if settings.storage and settings.spool_bytes < least:
        raise StartRefused(
            f"A file of {longest} bytes may go to the bucket in parts of {least}, "
            f"which {PREFIX}SPOOL_BYTES={settings.spool_bytes} cannot hold. Set it to at least "
            f"{least}, or lower {PREFIX}MAX_UPLOAD_BYTES."
        )


def require_only_node(nodes: NodeRecords, *, release_seconds: float = LEASE_SECONDS) -> None:
    """Raise `StartRefused` if other nodes share the records, though files are on their disks.

    Each would miss the files of the others, and end their uploads. Waits for the lease of a server
    that was killed to end.
    """
    deadline = time.monotonic() + release_seconds
    while others := [node for node in nodes.all() if node.state is not NodeState.GONE]:
        if time.monotonic() > deadline:
            raise StartRefused(
                f"{others[0].report.address} is running with the same database, and {PREFIX}"
                "STORAGE is empty: its files are on its own disk, where this server does not find "
                f"them. Set {PREFIX}STORAGE on every node to the bucket that they share, or "
                f"{PREFIX}DATABASE_URL to a database of this server alone."
            )
        time.sleep(0.2)


def require_free_address(host: str, port: int, *, release_seconds: float = RELEASE_SECONDS) -> None:
    """Raise `StartRefused` unless this process may listen there."""
    deadline = time.monotonic() + release_seconds
    while (error := _bind_error(host, port)) is not None:
        if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
            raise StartRefused(_explain(error, host, port))
        time.sleep(0.05)


def _bind_error(host: str, port: int) -> OSError | None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), port))
            probe.listen()
        except OSError as error:
            return error
    return None


def _explain(error: OSError, host: str, port: int) -> str:
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this machine. Set {PREFIX}HOST to one that is."
    if error.errno == errno.EADDRINUSE:
        return (
            f"Port {port} is in use. Stop the program that uses it "
            f"(`ss -ltnp 'sport = :{port}'` shows which), or set {PREFIX}PORT to another port."
        )
    if error.errno == errno.EACCES:
        return f"This user may not listen on port {port}. Set {PREFIX}PORT to one above 1023."
    return f"Cannot listen on {host}, port {port}: {error.strerror}."


def _user_name(number: int) -> str:
    try:
        return f"the user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"user {number}"
