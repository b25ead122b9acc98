"""Checks at the start, and warnings of what may delete uploads; each message says what to do."""

from __future__ import annotations

import errno
import os
import re
import socket
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from app.core.nodes import NodeState
from app.db.nodes import LEASE_SECONDS, NodeRecords
from app.settings import PREFIX, Settings
from app.settings.staging import count_uploads, remembered_staging, rename_former_note
from app.storage.data_folder import shown, user_name
from app.storage.local.folder import make_private_folder

RELEASE_SECONDS = 1.0
"""How long to wait for a port in use: a server that was just killed is about to release it."""


_PASSING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE})
"""Temporary errors of a disk or machine, independent of the settings."""

SYSTEMD = Path("/run/systemd/system")
"""Exists if systemd runs (sd_booted(3)), and so cleans temporary folders."""


class StartRefused(Exception):
    """The server cannot start; the message says why, and what to do."""


def require_usable_folders(settings: Settings) -> None:
    """Create both folders; raise `StartRefused` if one is unusable, or conflicts with the other.

    The staging folder may be the data folder or be in it, but not where other files are kept: an
    upload would be published onto itself, and then deleted. A disk that is full or temporarily not
    writable is not an error in the settings: the server starts, and `/readyz` reports it.
    """
    staging = settings.staging_dir.resolve()
    for taken in (settings.library_dir, settings.data_dir / "media"):
        if staging.is_relative_to(taken.resolve()):
            raise StartRefused(
                f"The staging folder {shown(settings.staging_dir)} is in {shown(taken)}, where "
                f"other files are kept. Set {PREFIX}STAGING_DIR to another folder, as in "
                f"{shown(settings.data_dir / 'staging')}."
            )
    rename_former_note(settings.data_dir)
    data = settings.data_dir if settings.storage else settings.library_dir
    for path, variable in ((settings.staging_dir, "STAGING_DIR"), (data, "DATA_DIR")):
        _require_own(path, variable)
        try:
            make_private_folder(path)
            os.scandir(path).close()
        except OSError as error:
            if error.errno not in _PASSING:
                raise StartRefused(
                    f"{shown(path)} cannot be used: {error.strerror}. Set {PREFIX}{variable} to a "
                    "folder that this server may create and write."
                ) from error


def _require_own(path: Path, variable: str) -> None:
    with suppress(OSError):
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            raise StartRefused(
                f"{shown(path)} is a symbolic link. Set {PREFIX}{variable} to a folder that is not "
                "a link."
            )
        if found.st_uid not in {os.geteuid(), 0}:
            raise StartRefused(
                f"{shown(path)} belongs to {user_name(found.st_uid)}, and would be closed to this "
                f"server. Set {PREFIX}{variable} to a folder of your own."
            )


def staging_warnings(settings: Settings, *, is_systemd: bool | None = None) -> list[str]:
    """Warnings about anything that could delete or hide unfinished uploads."""
    found = []
    cleans = SYSTEMD.is_dir() if is_systemd is None else is_systemd
    age = cleaning_age(settings.staging_dir) if cleans else None
    if age is not None and settings.expiry_seconds > age.seconds:
        found.append(
            f"systemd-tmpfiles removes what lies unchanged in {age.path} for "
            f"{age.seconds / 86_400:g} days ({age.file}): unfinished uploads end then, and not "
            f"after {PREFIX}EXPIRY_SECONDS ({settings.expiry_seconds / 86_400:g} days). Set "
            f"{PREFIX}STAGING_DIR to a folder elsewhere"
        )
    before = remembered_staging(settings.data_dir)
    if before is not None and before != settings.staging_dir and (left := count_uploads(before)):
        found.append(
            f"{left} files of unfinished uploads are in {shown(before)}, the staging folder of the "
            f"last start: uploads without their file end. To go on with them, set "
            f"{PREFIX}STAGING_DIR to it"
        )
    return found


def require_only_node(nodes: NodeRecords, *, release_seconds: float = LEASE_SECONDS) -> None:
    """Raise `StartRefused` if other nodes share the records, but the files are on local disks.

    Each node would miss the files of the others, and end their uploads. Waits for the lease of a
    killed server to expire.
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
    """Raise `StartRefused` unless this process can listen on the address."""
    deadline = time.monotonic() + release_seconds
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    while True:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host.strip("[]"), port))
                probe.listen()
                return
            except OSError as error:
                if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                    raise StartRefused(_explain(error, host, port)) from error
        time.sleep(0.05)


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


# ---- what systemd-tmpfiles removes (tmpfiles.d(5)) -----------------------------------------------

FOLDERS = tuple(
    Path(name)
    for name in (
        "/etc/tmpfiles.d",
        "/run/tmpfiles.d",
        "/usr/local/lib/tmpfiles.d",
        "/usr/lib/tmpfiles.d",
    )
)
"""A file overrides those of the same name in later folders."""

_CLEANED = frozenset("dDevqQ")
_EXCLUDED = frozenset("xX")

_SPAN = re.compile(r"([0-9]+) *([a-zµ]*)")
_UNIT_SECONDS = {
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
    **dict.fromkeys(("w", "week", "weeks"), 604_800.0),
    **dict.fromkeys(("ms", "msec"), 0.001),
    **dict.fromkeys(("us", "usec"), 0.000_001),
}


@dataclass(frozen=True, slots=True)
class CleaningAge:
    """Files below `path` are removed after `seconds` without a change, as configured in `file`."""

    path: str
    seconds: float
    file: Path


def cleaning_age(folder: Path, folders: Sequence[Path] = FOLDERS) -> CleaningAge | None:
    """The age at which files in `folder` are removed; None if they stay.

    The line with the longest path that contains the folder counts.
    """
    best: CleaningAge | None = None
    longest = 0
    for file, kind, path, age in _lines(folders):
        if not folder.is_relative_to(path) or len(path) < longest:
            continue
        if kind in _EXCLUDED:
            best, longest = None, len(path)
        elif kind in _CLEANED:
            seconds = _seconds(age)
            best = None if seconds is None else CleaningAge(path, seconds, file)
            longest = len(path)
    return best


def _lines(folders: Sequence[Path]) -> Iterator[tuple[Path, str, str, str]]:
    """File, type, path and age of each line, in the order in which systemd reads the files."""
    files: dict[str, Path] = {}
    for folder in folders:
        with suppress(OSError):
            for file in folder.glob("*.conf"):
                files.setdefault(file.name, file)
    for _, file in sorted(files.items()):
        with suppress(OSError):
            for line in file.read_text("utf-8", "replace").splitlines():
                kind, path, *rest = [*line.split(), "", ""]
                if kind[:1] not in {"", "#"} and path:
                    yield file, kind[0], path, rest[3] if len(rest) > 3 else "-"


def _seconds(age: str) -> float | None:
    """The age in seconds; None for "-", which keeps the files forever."""
    text = age.lstrip("~").rpartition(":")[2].lower()  # The prefix in "am:10d" selects times.
    parts = _SPAN.findall(text)
    if not parts or any(unit not in _UNIT_SECONDS for _, unit in parts):
        return None
    return sum(int(number) * _UNIT_SECONDS[unit] for number, unit in parts)
