"""Reconciles the table of derived files with this machine's folder, where they may differ.

They do at the first start of a version with that table, with a database from a backup, which has no
rows of derived files, and with another folder: perhaps only because its disk is not mounted.

<media>/.adopted    a token that the database has, too, once the table has all files of this folder
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import sqlalchemy as sa

from app.core.playback import Made
from app.core.upload import UploadId
from app.db.nodes import SharedValues
from app.db.tables import derived_files
from app.storage.local.folder import disk_errors, make_private_folder
from app.video.serve.derived_files import VERSION_BYTES, DerivedFiles, row_of
from app.video.serve.derived_objects import UNVERSIONED, FolderObjects, object_name

ADOPTED = ".adopted"

TOKEN = "derived_files_folder"
"""Name of the token in the database."""

TOKEN_BYTES = 16

VIDEOS_AT_ONCE = 100
"""In one transaction."""

_VERSIONED = re.compile(rf"(.+)\.([0-9a-f]{{{2 * VERSION_BYTES}}})")

log = logging.getLogger(__name__)


def adopt_files(files: DerivedFiles, objects: FolderObjects) -> None:
    """Add the files that have no row. Rows without a file stay: it may be on a disk that is absent.

    Repeatable; must not run while files are made. Once done, a call costs two short queries.
    """
    marker, values = objects.folder / ADOPTED, SharedValues(files.database)
    token, has_rows = values.get(TOKEN), not files.is_empty()
    if has_rows and token is not None and _read(marker) == token:
        return
    if has_rows and next(objects.videos(), None) is None:
        log.error(
            "derived files: the database lists some, and %s has none. Is its disk mounted? If they "
            "are lost, `jobs again --all` makes them again",
            objects.folder,
        )
        return
    with disk_errors():
        marker.unlink(missing_ok=True)  # If this is interrupted, the next start goes on.
    added, videos = 0, objects.videos()
    while some := list(islice(videos, VIDEOS_AT_ONCE)):
        added += _add(files, objects, some)
    token = secrets.token_hex(TOKEN_BYTES)
    values.put(TOKEN, token)
    with disk_errors():
        make_private_folder(objects.folder)
        marker.touch(mode=0o600)
        marker.write_text(token)
    if added:
        log.info("derived files: %d files added", added)


def _read(marker: Path) -> str | None:
    with disk_errors():
        return marker.read_text() if marker.exists() else None


def _add(files: DerivedFiles, objects: FolderObjects, videos: Sequence[UploadId]) -> int:
    """Add the files of some videos that have no row; those with a version are due for deletion.

    They were discarded, or never visible, or are of a database that is gone: their renditions may
    be outdated.
    """
    query = sa.select(derived_files).where(derived_files.c.upload_id.in_(videos))
    known, kept = set(), set()
    with files.database.read() as connection:
        for row in connection.execute(query):
            file = Made(row.upload_id, row.name, row.length, row.made_at, row.version)
            known.add(object_name(file))
            if row.due_at is None:
                kept.add((file.upload_id, file.name))
    rows = []
    for found in (found for video in videos for found in objects.list(video)):
        if found.name in known:
            continue
        upload_id, _, name = found.name.partition("/")
        version = UNVERSIONED + secrets.token_hex(VERSION_BYTES - 1)
        if versioned := _VERSIONED.fullmatch(name):
            name, version = versioned.groups()
        path = objects.folder / found.name
        file = Made(UploadId(upload_id), name, path.stat().st_size, found.changed_at, version)
        is_lost = versioned or (upload_id, name) in kept
        # Versions without a table noted the last use as the time of the folder.
        used = {"used_at": _changed_at(path.parent)}
        rows.append(row_of(file, due_at=files.clock() if is_lost else None) | used)
    if rows:
        with files.database.write() as connection:
            connection.execute(sa.insert(derived_files), rows)
    return len(rows)


def _changed_at(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)
