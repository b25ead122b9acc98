"""Records of uploads on this machine, so that the next run continues where one ended.

They are in a SQLite database. The server finds an upload by its file's fingerprint too, so a lost
record costs no more than asking for it: nothing is synced, and a damaged database is replaced.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

LOCKED_SECONDS = 1.0
"""How long to wait for another process that writes."""

EXPIRY_SECONDS = 30 * 24 * 3600.0
"""Records unused for this long are removed; a server keeps an idle upload for a week. A wrong
clock can remove one too early, which costs one request to the server."""

_TABLE = """
CREATE TABLE IF NOT EXISTS uploads (
    server TEXT, fingerprint TEXT, id TEXT, path BLOB, length INTEGER, is_stored INTEGER,
    used_at REAL,  -- Seconds since the epoch.
    PRIMARY KEY (server, fingerprint)
) WITHOUT ROWID
"""

_ALL = """
SELECT server, fingerprint, id, path, length, is_stored FROM uploads ORDER BY used_at
"""

_FIND = """
SELECT server, fingerprint, id, path, length, is_stored FROM uploads
WHERE server = ? AND fingerprint = ?
"""

_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
"""The low byte of SQLite's error codes."""

_OLD_RECORD = re.compile(r"[0-9a-f]{32}\.json|\w+\.tmp")

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class UploadRecord:
    """An upload under way, or a small file that `is_stored`."""

    server: str
    fingerprint: str
    id: str
    path: str
    length: int
    is_stored: bool = False


class ResumeStore:
    """The records in a folder, which is made when it is first used.

    If the folder cannot be read or written, files are sent all the same, and nothing is
    remembered. Threads and processes may use it at the same time.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / "uploads.sqlite3"

    def load(self, server: str, *fingerprints: str) -> dict[str, UploadRecord]:
        """The records of these files on that server, by fingerprint; they count as used."""
        use = "UPDATE uploads SET used_at = ? WHERE server = ? AND fingerprint = ?"

        def work(connection: sqlite3.Connection) -> dict[str, UploadRecord]:
            rows = [connection.execute(_FIND, (server, each)).fetchone() for each in fingerprints]
            found = {each.fingerprint: each for each in _records(filter(None, rows))}
            connection.executemany(use, [(time.time(), server, each) for each in found])
            return found

        return self._run(work, {})

    def all(self) -> list[UploadRecord]:
        """Every sound record, oldest first."""
        return self._run(lambda connection: _records(connection.execute(_ALL)), [])

    def save(self, *records: UploadRecord) -> None:
        """Write records, in place of earlier ones of the same files."""
        now = time.time()
        rows = [
            (
                each.server,
                each.fingerprint,
                each.id,
                os.fsencode(each.path),
                each.length,
                each.is_stored,
                now,
            )
            for each in records
        ]
        statement = "REPLACE INTO uploads VALUES (?, ?, ?, ?, ?, ?, ?)"
        self._run(lambda connection: connection.executemany(statement, rows), None)

    def forget(self, server: str, *fingerprints: str) -> None:
        """Remove records; harmless without them."""
        keys = [(server, each) for each in fingerprints]
        statement = "DELETE FROM uploads WHERE server = ? AND fingerprint = ?"
        self._run(lambda connection: connection.executemany(statement, keys), None)

    def sweep(self) -> None:
        """Remove records too old to be of use."""
        now = time.time()

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM uploads WHERE used_at < ?", (now - EXPIRY_SECONDS,))
            # Written while the clock was ahead: they would stay for as long again.
            connection.execute("UPDATE uploads SET used_at = ? WHERE used_at > ?", (now, now))

        self._run(work, None)
        self._remove_old_records()

    def _remove_old_records(self) -> None:
        """Remove the files of earlier versions, which kept one for each record."""
        folder = self._folder / "uploads"
        with suppress(OSError):
            for path in folder.iterdir():
                if _OLD_RECORD.fullmatch(path.name):
                    path.unlink()
            folder.rmdir()  # Unless there is something else in it.

    def _run(self, work: Callable[[sqlite3.Connection], _Result], otherwise: _Result) -> _Result:
        """What `work` returns in a transaction; `otherwise` if there is no usable database."""
        for _ in range(2):
            try:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                # Paths are private. The journal gets the same mode.
                os.close(os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
                connection = sqlite3.connect(self._file, timeout=LOCKED_SECONDS)
                with closing(connection), connection:
                    connection.execute("PRAGMA synchronous = OFF")
                    connection.execute(_TABLE)
                    return work(connection)
            except sqlite3.Error as error:
                if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _DAMAGE:
                    break
                for path in (self._file, self._file.with_name(f"{self._file.name}-journal")):
                    with suppress(OSError):
                        path.unlink()
            except (OSError, ValueError):  # ValueError: text that is not Unicode.
                break
        return otherwise


def _records(rows: Iterable[Sequence[Any]]) -> list[UploadRecord]:
    """Leaves out damaged rows, and ids that would change the URL they become part of."""
    return [
        UploadRecord(server, fingerprint, upload_id, os.fsdecode(path), length, bool(is_stored))
        for server, fingerprint, upload_id, path, length, is_stored in rows
        if isinstance(upload_id, str) and upload_id.isalnum()
        if isinstance(path, bytes) and isinstance(length, int)
    ]
