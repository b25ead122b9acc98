"""Reconciles the table of derived files with this machine's folder, where they may differ.

They do at the first start of a version with that table, after the folder was lost, and with a
database from a backup, which has no rows of derived files.

<media>/.adopted    the table has had all other files
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
from app.db.tables import derived_files
from app.storage.local.folder import disk_errors, make_private_folder
from app.video.serve.derived_files import VERSION_BYTES, DerivedFiles, row_of
from app.video.serve.derived_objects import UNVERSIONED, FolderObjects, object_name

ADOPTED = ".adopted"

VIDEOS_AT_ONCE = 100
"""In one transaction."""

_VERSIONED = re.compile(rf"(.+)\.([0-9a-f]{{{2 * VERSION_BYTES}}})")

log = logging.getLogger(__name__)


def adopt_files(files: DerivedFiles, objects: FolderObjects) -> None:
    """Drop rows without a file, and add the files that have no row.

    Repeatable; must not run while files are made. Once done, a call costs one short query.
    """
    marker = objects.folder / ADOPTED
    if marker.exists() and not files.is_empty():
        return
    dropped, added, videos = files.drop_missing(), 0, objects.videos()
    while some := list(islice(videos, VIDEOS_AT_ONCE)):
        added += _add(files, objects, some)
    with disk_errors():
        make_private_folder(objects.folder)
        marker.touch(mode=0o600)
    if dropped or added:
        log.info("derived files: %d rows without a file, %d files added", dropped, added)


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
