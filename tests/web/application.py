"""The application in this process, with its own folders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from flask import Flask

from app.access.passwords import Passwords
from app.core.upload import UploadId
from app.run.build import build_services
from app.run.factory import create_app
from app.settings import Settings
from app.video.serve.derived_files import DerivedFiles
from tests.access.world import CHEAP
from tests.video.offered import write_film

MAX_UPLOAD_BYTES = 1024 * 1024
"""Small, so that no generated request reserves much room."""


@contextmanager
def application(
    folder: Path,
    *,
    extensions: frozenset[str] = frozenset(),
    renditions: str = "ondemand",
    access: str = "open",
    requests_per_minute: int | None = None,
    database_url: str | None = None,
    storage: str = "",
    cors_origins: frozenset[str] = frozenset(),
) -> Iterator[Flask]:
    """What gunicorn serves, accepting files with these name extensions, or any."""
    settings = Settings(
        staging_dir=folder / "staging",
        data_dir=folder / "data",
        durability="none",
        max_upload_bytes=MAX_UPLOAD_BYTES,
        allowed_extensions=extensions,
        renditions=renditions,
        access=access,
        requests_per_minute=requests_per_minute,
        database_url=database_url or "",
        storage=storage,
        cors_origins=cors_origins,
    )
    services = build_services(settings, passwords=Passwords(CHEAP))
    with closing(services.database):
        services.prepare()
        yield create_app(services)


def offer_renditions(app: Flask, video_id: str) -> DerivedFiles:
    """Let a video look like a film in 1080p; what is made from it."""
    files: DerivedFiles = app.extensions["sluice"].media.files
    write_film(files, UploadId(video_id))
    return files
