"""Uploads as the records get them, and a database to keep them in."""

from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

from app.domain.upload import Upload, UploadId
from app.records.engine import Database

NOW = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

_numbers = count(1)


def at(seconds: float) -> datetime:
    """A moment so many seconds after `NOW`."""
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
    """An upload that has just been created; without a number it is one of its own."""
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


def sqlite(path: Path) -> Database:
    """The database in a file, as a worker process opens it."""
    return Database(f"sqlite:///{path}", synced=False, connections=16)
