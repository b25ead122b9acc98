"""Translates database errors to errors of the domain."""

from __future__ import annotations

import os
import sqlite3

from sqlalchemy.exc import DataError, DBAPIError, ProgrammingError
from sqlalchemy.exc import TimeoutError as NoFreeConnection

from app.core.errors import InvalidRequest, NoRoom, ServerBusy, StorageFailed, UploadError

DATABASE_ERRORS = (sqlite3.Error, DBAPIError, NoFreeConnection)
"""From SQLAlchemy and its pool, and from SQLite when a transaction begins or is rolled back."""

_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})

_FAILED = frozenset(
    {
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_NOLFS,
        sqlite3.SQLITE_NOTADB,
    }
)
"""Errors of the disk or the file; all others are bugs or violated constraints."""

_NO_MEMORY_FOR_INDEX = frozenset({sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMMAP})
"""SQLite cannot enlarge its -shm file, usually because the disk is full."""

_TRY_AGAIN = ("08", "40", "53", "55P03", "57", "25006", "25P03")
"""Prefixes of SQLSTATEs that can be retried: a lost connection, a deadlock, too many connections, a
lock or statement timeout, a server that stops or is read-only (postgresql.org, "PostgreSQL Error
Codes")."""

_LOST = frozenset({"OperationalError", "InterfaceError"})
"""Without a SQLSTATE: the server cannot be reached. Names of PEP 249, which SQLAlchemy's errors and
the driver's have in common."""

_DISK_FULL = "53100"

_SERVER_FAILED = ("28", "3D", "3F", "42501", "58", "XX")
"""Prefixes of SQLSTATEs of a failed server: login refused, no such database or schema, missing
privileges, a disk error, a corrupt table."""


def sqlite_code(error: BaseException) -> int:
    """SQLite's extended result code (sqlite.org/rescode.html); 0 for other errors."""
    code: int = getattr(_of_driver(error), "sqlite_errorcode", None) or 0
    return code


def is_busy(error: BaseException) -> bool:
    """Whether another connection locked the database for longer than the busy timeout."""
    return sqlite_code(error) & 0xFF in _BUSY


def wants_new_connection(error: BaseException) -> bool:
    """Whether the connection is unusable and must be replaced.

    SQLite opened the file read-only, which is permanent for a connection, or a server ended it.
    """
    if sqlite_code(error):
        return sqlite_code(error) & 0xFF == sqlite3.SQLITE_READONLY
    return isinstance(as_upload_error(error), ServerBusy)


def raise_as_upload_error(error: BaseException) -> None:
    """Raise the matching error of the domain, if there is one."""
    ours = as_upload_error(error)
    if ours is not None:
        raise ours from error


def as_upload_error(error: BaseException) -> UploadError | None:
    """Returns the matching error of the domain; None for bugs and violated constraints."""
    if isinstance(error, NoFreeConnection):
        return ServerBusy("The database is busy.")
    if hasattr(_of_driver(error), "sqlstate"):
        return _of_server(error)
    code = sqlite_code(error)
    if code & 0xFF in _BUSY:
        return ServerBusy("The database is busy.")
    if code & 0xFF == sqlite3.SQLITE_FULL or code in _NO_MEMORY_FOR_INDEX:
        return NoRoom("The disk of the database is full.")
    if code & 0xFF in _FAILED:
        return StorageFailed(f"The database failed: {_of_driver(error)}.")
    return None


def _of_server(error: BaseException) -> UploadError | None:
    """Translate the error by its SQLSTATE.

    Unlike SQLite, a server rejects text with a NUL byte and numbers too large for their column.
    Clients can send both.
    """
    if isinstance(error, DataError):
        return InvalidRequest("The request has a text or a number that cannot be stored.")
    state: str = getattr(_of_driver(error), "sqlstate", None) or ""
    if not state and _LOST.intersection(kind.__name__ for kind in type(error).__mro__):
        return ServerBusy("The database cannot be reached.")
    is_of_url = isinstance(error, ProgrammingError) and error.statement is None  # Its options.
    if state == _DISK_FULL:
        return NoRoom("The disk of the database is full.")
    if state.startswith(_TRY_AGAIN):
        return ServerBusy("The database is busy.")
    if state.startswith(_SERVER_FAILED) or (not state and is_of_url):
        return StorageFailed(f"The database failed: {_of_driver(error)}")
    return None


def driver_message(error: UploadError) -> str:
    """Returns the driver's message, for the operator only: it may name hosts, users and paths."""
    cause = error.__cause__
    lines = str(_of_driver(cause)).splitlines() if cause is not None else []
    return lines[0] if lines else ""


def operator_message(error: UploadError) -> str:
    """Returns the error in one line, with the driver's or system's message and the path, if any.

    For the operator only.
    """
    cause = error.__cause__
    if isinstance(cause, OSError) and cause.filename is not None:
        return f"{error} ({ascii(os.fsdecode(cause.filename))[1:-1]})"
    details = driver_message(error) if isinstance(error, ServerBusy) else ""
    return f"{error} {details}".rstrip()


def _of_driver(error: BaseException) -> BaseException:
    return (error.orig if isinstance(error, DBAPIError) else None) or error
