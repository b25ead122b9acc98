"""Copies the records and the library to a folder that a server can be started on. No Flask."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from crc32c import crc32c
from sqlalchemy import select

from app.core.access import Scope
from app.core.crc32c import in_base64
from app.core.errors import StorageFailed, UploadGone, UploadNotFound
from app.core.lifecycle import UploadState
from app.core.ranges import ByteRange
from app.core.upload import Upload, UploadId, parse_upload_id
from app.db.engine import Database
from app.db.nodes import SharedValues
from app.db.tables import derived_files, jobs, media, uploads
from app.db.transfer import copy_records
from app.http.services import BOOT_MARKER, Services
from app.records.uploads import UploadRecords
from app.storage.data_folder import shown
from app.uploads.storage_identity import LIBRARY

_ID = re.compile("[0-9a-f]{32}")

_OWN_NAME = re.compile(r"[0-9a-f]{32}|\.[0-9a-f]{32}\.partial")
"""Files that a backup puts into its library, complete or partial."""


IDS_AT_ONCE = 1000
"""Ids per query: SQLite and PostgreSQL limit the number of parameters."""


NAMES_SHOWN = 3
"""Maximum names of videos without a file that are shown."""


class FolderInUse(Exception):
    """The folder is, or was, a server's data folder: a backup would delete its contents."""


class BackupRefused(Exception):
    """The run would replace a good backup with a worse one; the message says why."""


@dataclass(slots=True)
class Backup:
    """One backup run; its counts are final once `run` has ended.

    Published files never change, so those from an earlier run are kept.
    """

    services: Services
    folder: Path
    linked: int = 0
    copied: int = 0
    kept: int = 0
    removed: int = 0
    without_file: int = 0
    """Videos whose file is neither in the library nor in an earlier backup."""
    names_without_file: list[str] = field(default_factory=list)
    """Names of the first few of them."""

    def run(self, *, with_library: bool = True, is_forced: bool = False) -> None:
        """Copy everything; raises `FolderInUse`, `OSError` or `sqlite3.Error`.

        Also raises `BackupRefused`, unless it `is_forced`, if the folder has a backup of another
        library, or if most files of that backup are missing here and were not deleted.
        """
        own_folder = self.services.settings.data_dir.resolve()
        if (self.folder / BOOT_MARKER).exists() or self.folder.resolve() == own_folder:
            raise FolderInUse(f"{shown(self.folder)} is a server's data folder")
        if not is_forced:
            self._require_same_library()
            self._require_most_files(with_library=with_library)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The library is copied twice, because it takes long: the second pass, right after the
        # database, adds files published during the first.
        names = self._copy_library(set()) if with_library else set()
        self._copy_database()
        if with_library:
            names = self._copy_library(names)
            # The backup may have the last copy of files that are recorded but not in the library.
            names |= self._complete(self._backed_up() - names)
            for path in self._library.iterdir():
                if path.name not in names and _OWN_NAME.fullmatch(path.name):
                    path.unlink()
                    self.removed += 1
            self._look_for_files()

    @property
    def _library(self) -> Path:
        return self.folder / "library"

    @property
    def _database(self) -> Path:
        return self.folder / "sluice.db"

    def _require_same_library(self) -> None:
        before = self._read_backup("SELECT value FROM facts WHERE name = ?", LIBRARY)
        own = SharedValues(self.services.database).get(LIBRARY)
        if before and before != [own]:
            raise BackupRefused(
                f"{shown(self.folder)} has a backup of another library. Is "
                f"{shown(self.services.settings.data_dir)} the library that you mean? --force "
                "replaces that backup."
            )

    def _require_most_files(self, *, with_library: bool) -> None:
        """Raise `BackupRefused` if this library has lost most of the backup's files.

        Deleted files do not count.
        """
        query = "SELECT id FROM uploads WHERE state = ?"
        copied = set(self._read_backup(query, UploadState.COMPLETE.value))
        if with_library:
            copied |= self._backed_up()
            kept = set(self.services.inspection.published())
        else:
            kept = self._complete(copied)
        states = self._states(copied - kept)
        lost = {name for name in copied - kept if states.get(name) is not UploadState.DELETED}
        if 2 * len(lost) > len(copied):
            raise BackupRefused(
                f"{len(lost)} of the {len(copied)} files in {shown(self.folder)} are missing in "
                f"{shown(self.services.settings.data_dir)}, and were not deleted. Is its disk "
                "mounted? --force replaces the backup all the same."
            )

    def _complete(self, names: set[str]) -> set[str]:
        states = self._states(names)
        return {name for name, state in states.items() if state is UploadState.COMPLETE}

    def _states(self, names: set[str]) -> dict[str, UploadState]:
        found: dict[str, UploadState] = {}
        ordered = sorted(names)
        for start in range(0, len(ordered), IDS_AT_ONCE):
            some = ordered[start : start + IDS_AT_ONCE]
            states = self.services.records.states([UploadId(name) for name in some])
            found.update((str(name), state) for name, state in states.items())
        return found

    def _backed_up(self) -> set[str]:
        """Names of the complete files in the folder's library."""
        with suppress(FileNotFoundError):
            return {path.name for path in self._library.iterdir() if _ID.fullmatch(path.name)}
        return set()

    def _read_backup(self, query: str, value: str) -> list[str]:
        """First column of a query on an earlier backup; empty if it cannot be read."""
        with suppress(sqlite3.Error):
            url = f"{self._database.absolute().as_uri()}?immutable=1"  # Creates no -wal and -shm.
            with closing(sqlite3.connect(url, uri=True)) as connection:
                return [row[0] for row in connection.execute(query, [value])]
        return []

    def _copy_database(self) -> None:
        partial = self.folder / ".sluice.db.partial"
        _make_private(partial)
        # Derived files are not copied: a server that starts on the copy makes them again.
        source, without = self.services.database, [jobs, media]
        if self.services.bucket is None:  # Those in a bucket are there until they are replaced.
            without.append(derived_files)
        if source.file is not None:
            source.file.copy_to(partial, without=without)
        else:
            with closing(Database(f"sqlite:///{partial}", synced=True)) as target:
                target.migrate()
                copy_records(source, target, without=without)
            target.checkpoint()
        partial.replace(self._database)
        _sync(self.folder)

    def _copy_library(self, known: set[str]) -> set[str]:
        """Copy the files that are not `known`; returns `known` and all names in the library."""
        self._library.mkdir(mode=0o700, exist_ok=True)
        names = set(self.services.inspection.published())
        for name in sorted(names - known):
            source, target = self.services.settings.library_dir / name, self._library / name
            if target.exists():
                self.kept += 1
                continue
            with suppress(FileNotFoundError):  # Deleted during the backup.
                try:
                    target.hardlink_to(source)
                    self.linked += 1
                except FileNotFoundError:
                    raise
                except OSError:  # Another file system, or one without links.
                    # To a temporary name: an interrupted run leaves no partial file.
                    partial = target.with_name(f".{name}.partial")
                    _make_private(partial)
                    shutil.copyfile(source, partial)
                    _sync(partial)
                    partial.replace(target)
                    self.copied += 1
        _sync(self._library)
        return names | known

    def _look_for_files(self) -> None:
        """Count the copied records without a file, except those of videos deleted since.

        The latter are marked as deleted in the copy.
        """
        # Filtered by id only: with the state in the query, SQLite would sort all rows each time.
        some = select(uploads.c.id, uploads.c.state).order_by(uploads.c.id).limit(IDS_AT_ONCE)
        last: str | None = ""
        with closing(Database(f"sqlite:///{self._database}", synced=True)) as copy:
            while last is not None:
                with copy.read() as connection:
                    rows = connection.execute(some.where(uploads.c.id > last)).all()
                complete = [row.id for row in rows if row.state == UploadState.COMPLETE.value]
                lost = {name for name in complete if not (self._library / name).exists()}
                for name, state in self._states(lost).items():
                    if state is UploadState.DELETED:
                        UploadRecords(copy).move(UploadId(name), state, datetime.now(UTC))
                    elif state is UploadState.COMPLETE:
                        self.without_file += 1
                        if len(self.names_without_file) < NAMES_SHOWN:
                            self.names_without_file.append(name)
                last = rows[-1].id if rows else None
        copy.checkpoint()


def _make_private(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# ---- verify --------------------------------------------------------------------------------------

# Compares the library's files with their records. No Flask.


READ_BYTES = 1024 * 1024


class RecordMismatch(StrEnum):
    """The kinds of mismatches."""

    MISSING = "missing"
    """There is a record but no file."""
    WRONG_SIZE = "wrong_size"
    WRONG_DIGEST = "wrong_digest"
    UNREADABLE = "unreadable"
    """The disk cannot read the file."""
    NO_RECORD = "no_record"
    """There is a file but no record of it."""


@dataclass(frozen=True, slots=True)
class VerifyFinding:
    """A file that differs from its record; `name` is the upload's id, or the file's name."""

    name: str
    difference: RecordMismatch
    detail: str


@dataclass(slots=True)
class Verification:
    """One pass over the library; its counts are final once `run` has ended."""

    services: Services
    scope: Scope
    checked: int = 0
    without_digest: int = 0
    """Files too new to have a digest in their record: only their size was compared."""

    def run(self) -> Iterator[VerifyFinding]:
        """Yields each mismatch as it is found."""
        known = set()
        for video in self.services.library.all(self.scope):
            known.add(video.id)
            self.checked += 1
            self.without_digest += video.sha256 is None and video.crc32c is None
            finding = self._check(video)
            if finding is not None and self._is_still_there(video.id):
                yield finding
        for name in self.services.inspection.published():
            if name not in known and not self._is_still_there(name):
                yield VerifyFinding(name, RecordMismatch.NO_RECORD, "the file has no record")

    def _check(self, video: Upload) -> VerifyFinding | None:
        digest, checksum, length = hashlib.sha256(), 0, 0
        buffer = memoryview(bytearray(READ_BYTES))
        try:
            with self.services.library.open(video, ByteRange(0, video.known_length)) as file:
                while count := file.readinto(buffer):
                    digest.update(buffer[:count])
                    checksum = crc32c(buffer[:count], checksum)
                    length += count
        except UploadGone:
            return VerifyFinding(video.id, RecordMismatch.MISSING, "the file is not there")
        except (OSError, StorageFailed) as error:
            return VerifyFinding(video.id, RecordMismatch.UNREADABLE, str(error))
        if length != video.length:
            detail = f"{length} bytes where the record says {video.length}"
            return VerifyFinding(video.id, RecordMismatch.WRONG_SIZE, detail)
        if video.sha256 not in {None, digest.hexdigest()}:
            detail = f"SHA-256 {digest.hexdigest()} where the record says {video.sha256}"
            return VerifyFinding(video.id, RecordMismatch.WRONG_DIGEST, detail)
        if video.crc32c not in {None, in_base64(checksum)}:
            detail = f"CRC32C {in_base64(checksum)} where the record says {video.crc32c}"
            return VerifyFinding(video.id, RecordMismatch.WRONG_DIGEST, detail)
        return None

    def _is_still_there(self, name: str) -> bool:
        """Whether the record still exists: the library changes while it is read."""
        try:
            self.services.uploads.get(self.scope, parse_upload_id(name))
        except (UploadNotFound, UploadGone):
            return False
        return True
