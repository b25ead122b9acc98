"""Derived files of tests, in a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import select

from app.core.upload import UploadId
from app.db.engine import Database
from app.db.tables import IS_KEPT, derived_files
from app.video.serve.derived_files import DerivedFiles
from app.video.serve.derived_objects import FolderObjects
from app.video.serve.scratch import ScratchSpace


def wall_clock() -> datetime:
    return datetime.now(UTC)


def files_in(
    folder: Path, database: Database, clock: Callable[[], datetime] = wall_clock
) -> DerivedFiles:
    """The derived files of a server without a bucket."""
    return DerivedFiles(
        database=database,
        objects=FolderObjects(folder),
        scratch=ScratchSpace(folder),
        clock=clock,
    )


@contextmanager
def files_of(data: Path) -> Iterator[DerivedFiles]:
    """Those of a running server with this data folder."""
    with closing(Database(f"sqlite:///{data / 'sluice.db'}", synced=False)) as database:
        yield files_in(data / "media", database)


def place(files: DerivedFiles, upload_id: str, name: str, content: bytes) -> Path:
    """Keep a file with this content; its path."""
    with files.writing(UploadId(upload_id), name) as target:
        target.write(content)
    return path_of(files, upload_id, name)


def names_of(files: DerivedFiles, upload_id: str) -> set[str]:
    """The names of all files of a video."""
    query = select(derived_files.c.name).where(derived_files.c.upload_id == upload_id, IS_KEPT)
    with files.database.read() as connection:
        return set(connection.scalars(query))


def path_of(files: DerivedFiles, upload_id: str, name: str) -> Path:
    """The path of a file; one where there is nothing, if the file does not exist."""
    assert isinstance(files.objects, FolderObjects)
    found = files.find(UploadId(upload_id), name)
    return files.objects.folder / upload_id / "none" if found is None else files.objects.path(found)
