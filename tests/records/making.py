"""Uploads as the records get them, and a database to keep them in."""

from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from app.core.upload import Upload, UploadId
from app.db.engine import Database
from app.db.sql import insert_unless_known
from app.db.sqlite import BUSY_SECONDS
from app.db.tables import projects

NOW = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

_numbers = count(1)


def at(seconds: float) -> datetime:
    """The moment `seconds` after `NOW`."""
    return NOW + timedelta(seconds=seconds)


def new_upload(
    number: int | None = None,
    *,
    owner: str = "someone",
    key: str | None = None,
    length: int | None = 100,
    fingerprint: str | None = None,
    created_at: datetime = NOW,
) -> Upload:
    """An upload that has just been created; without a number its id is unique."""
    number = next(_numbers) if number is None else number
    return Upload(
        id=UploadId(f"{number:032x}"),
        owner=owner,
        filename="Ferien/été 🎬.mp4",
        length=length,
        client_key=f"key-{number}" if key is None else key,
        fingerprint=fingerprint,
        created_at=created_at,
        active_at=created_at,
    )


def sqlite(path: Path, *, busy_seconds: float = BUSY_SECONDS) -> Database:
    """The database in a file, as a worker process opens it."""
    return Database(f"sqlite:///{path}", synced=False, connections=16, busy_seconds=busy_seconds)


def new_sqlite(path: Path) -> Database:
    """A new database with its tables: a copy, as creating them takes longer than most tests.

    Where there is one already, it stays.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_migrated())
    return sqlite(path)


def add_projects(database: Database, *names: str) -> None:
    """Store projects with these ids, unless they are there."""
    values = {"name": "", "created_at": NOW, "used_bytes": 0}
    with database.write() as connection:
        for name in names:
            insert_unless_known(connection, projects, {"id": name, **values})


@cache
def _migrated() -> bytes:
    with TemporaryDirectory(prefix="sluice-test-") as folder:
        path = Path(folder) / "sluice.db"
        with closing(sqlite(path)) as database:
            database.migrate()
        return path.read_bytes()
