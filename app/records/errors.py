"""Translates database errors to errors of the domain."""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoFreeConnection

from app.domain.errors import NoRoom, ServerBusy, StorageFailed, UploadError

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
"""Errors of the disk or the file; all others are our bugs, or broken constraints."""

_NO_MEMORY_FOR_INDEX = frozenset({sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMMAP})
"""SQLite cannot enlarge its -shm file, usually because the disk is full."""


def sqlite_code(error: BaseException) -> int:
    """SQLite's extended result code (sqlite.org/rescode.html); 0 for other errors."""
    driver_error = error.orig if isinstance(error, DBAPIError) else error
    code: int = getattr(driver_error, "sqlite_errorcode", None) or 0
    return code


def is_busy(error: BaseException) -> bool:
    """Whether another connection held the database for longer than the busy timeout."""
    return sqlite_code(error) & 0xFF in _BUSY


def is_read_only(error: BaseException) -> bool:
    """Whether SQLite opened the file read-only; a connection never changes that."""
    return sqlite_code(error) & 0xFF == sqlite3.SQLITE_READONLY


def raise_as_upload_error(error: BaseException) -> None:
    """Raise the error of the domain, if there is one."""
    ours = as_upload_error(error)
    if ours is not None:
        raise ours from error


def as_upload_error(error: BaseException) -> UploadError | None:
    """The matching error of the domain; None for bugs and broken constraints."""
    code = sqlite_code(error)
    if isinstance(error, NoFreeConnection) or code & 0xFF in _BUSY:
        return ServerBusy("The database is busy.")
    if code & 0xFF == sqlite3.SQLITE_FULL or code in _NO_MEMORY_FOR_INDEX:
        return NoRoom("The disk of the database is full.")
    if code & 0xFF in _FAILED:
        return StorageFailed(f"The database failed: {_text(error)}.")
    return None


def _text(error: BaseException) -> str:
    return str(error.orig if isinstance(error, DBAPIError) else error)
