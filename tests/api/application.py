"""The application in this process, over folders of its own."""

from __future__ import annotations

from pathlib import Path

from flask import Flask

from app.factory import create_app
from app.services import build_services
from app.settings import Settings

MAX_UPLOAD_BYTES = 1024 * 1024
"""Small, so that no request that somebody made up reserves much room."""


def application(folder: Path, *, extensions: frozenset[str] = frozenset()) -> Flask:
    """What gunicorn serves, taking files with these name extensions, or any."""
    settings = Settings(
        staging_dir=folder / "staging",
        data_dir=folder / "data",
        durability="none",
        max_upload_bytes=MAX_UPLOAD_BYTES,
        allowed_extensions=extensions,
    )
    services = build_services(settings)
    services.prepare()
    return create_app(services)
