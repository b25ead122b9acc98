"""A database of the first release, with everything that was under way, is carried over."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import MetaData, inspect, select, text

from app.access.webhook_delivery import DeliveryQueue
from app.core.access import FIRST_PROJECT
from app.core.crc32c import RangeSums
from app.core.jobs import WEBHOOK, JobState, Lane
from app.core.lifecycle import UploadState
from app.core.pieces import Piece
from app.core.playback import PlaybackProblem
from app.core.ranges import ByteRange, RangeSet
from app.core.upload import UploadId
from app.db.engine import Database, SchemaState
from app.db.jobs import JobRecords
from app.db.tables import derived_files, projects
from app.records.uploads import UploadRecords
from app.storage.s3.catalog import BucketCatalog
from tests.postgresql import Postgresql
from tests.records.making import NOW, sqlite

TABLES = Path(__file__).with_name("first_tables.sql")
ON_SERVER = Path(__file__).with_name("first_tables_on_server.sql")

IN_FOLDER, RECEIVING, HELD, VERIFYING, COMPLETE = (UploadId(f"{n:032x}") for n in range(1, 6))
"""Uploads: one in a folder, and one of each active state and a finished one in a bucket."""

UNFINISHED = (RECEIVING, HELD, VERIFYING)
WEBHOOK_ID, PAUSED_ID = "a" * 32, "b" * 32
MIB = 1024 * 1024
WHOLE = ByteRange(0, 30 * MIB)
SUMS = RangeSums().add(WHOLE, 0)
MOMENT = 1_893_553_445_678_901
"""`NOW`, as the tables have it."""

_databases = count()


def upload(upload_id: UploadId, state: str, *, length: int, received: RangeSet) -> dict[str, Any]:
    return {
        "id": upload_id,
        "owner": "someone",
        "client_key": f"key-{upload_id}",
        "filename": "Ferien/été 🎬.mp4",
        "length": length,
        "fingerprint": "a:1:2",
        "state": state,
        "created_at": MOMENT,
        "active_at": MOMENT,
        "kind": "partial" if state == "held" else "file",
        "received": received.to_bytes(),
        "search_name": "ferien/ete 🎬.mp4",
        "sort_name": b"ferien/ete",
        "sender": "person:1",
        "progress": 0,
        "is_stalled": False,
        "is_sha256_wanted": False,
    }


def upload_in_bucket(upload_id: UploadId, state: str) -> dict[str, Any]:
    whole = upload(upload_id, state, length=30 * MIB, received=RangeSet.of([WHOLE]))
    return {
        **whole,
        "crc32c": "AAAAAA==",
        "progress": 20 * MIB,
        "retry_at": MOMENT,
        "sums": SUMS.to_bytes(),
    }


def job(upload_id: UploadId, step: str, state: str, **values: Any) -> dict[str, Any]:
    return {
        "upload_id": upload_id,
        "step": step,
        "argument": "",
        "lane": "quick",
        "priority": 0,
        "client": "person:1",
        "turn": 0,
        "state": state,
        "attempts": 1,
        "is_renewed": False,
        "progress": 0.5,
        "queued_at": MOMENT,
        "updated_at": MOMENT + 1_000_000,
        "due_at": MOMENT + 2_000_000,
        **values,
    }


def webhook(webhook_id: str, *, paused_at: int | None) -> dict[str, Any]:
    return {
        "id": webhook_id,
        "project_id": FIRST_PROJECT,
        "url": "https://example.com/",
        "secret": "whsec_",
        "events": "[]",
        "created_by": "person:1",
        "created_at": MOMENT,
        "paused_at": paused_at,
    }


def delivery(number: int, webhook_id: str, state: str, *, token: str | None) -> dict[str, Any]:
    return {
        "id": f"{number:032x}",
        "webhook_id": webhook_id,
        "event_number": number,
        "subject": COMPLETE,
        "state": state,
        "token": token,
        "attempts": 1,
        "created_at": MOMENT,
        "due_at": MOMENT,
    }


def file_in_bucket(key: UploadId, **values: Any) -> dict[str, Any]:
    """A file whose first cell is in its multipart upload."""
    begun = {"multipart_name": f"files/{key}", "multipart_id": f"multipart of {key}"}
    common = {"key": key, "cell_bytes": 20 * MIB, "length": 30 * MIB, "active_at": MOMENT}
    return {**common, "is_published": False, **begun, **values}


def cell(key: UploadId) -> dict[str, Any]:
    stamp = {"part_number": 1, "length": 20 * MIB, "etag": "etag", "crc32c": "AAAAAA=="}
    return {"key": key, "cell": 0, "epoch": 1, "leased_until": MOMENT, "through": 0, **stamp}


def piece(key: UploadId, number: int, *, etag: str | None) -> dict[str, Any]:
    start = (20 + 5 * number) * MIB
    span = {"start": start, "end": start + 5 * MIB, "name": f"pieces/{key}/{number}"}
    return {"key": key, "cell": 1, "etag": etag, "leased_until": MOMENT, **span}


def derived_file(folder: str, name: str) -> dict[str, Any]:
    times = {"made_at": MOMENT, "used_at": MOMENT, "due_at": None}
    about = {"version": name, "upload_id": COMPLETE, "folder": folder, "length": 5}
    return {**about, "name": f"{folder}/{name}", **times}


ROWS: dict[str, list[dict[str, Any]]] = {
    "uploads": [
        upload(
            IN_FOLDER,
            "receiving",
            length=100,
            received=RangeSet.of([ByteRange(0, 5), ByteRange(7, 9)]),
        ),
        upload_in_bucket(RECEIVING, "receiving"),
        upload_in_bucket(HELD, "held"),
        upload_in_bucket(VERIFYING, "verifying"),
        {**upload_in_bucket(COMPLETE, "complete"), "published_at": MOMENT},
    ],
    "stored_files": [
        *(file_in_bucket(key) for key in UNFINISHED),
        file_in_bucket(
            COMPLETE,
            name="files/published",
            is_published=True,
            crc32c="AAAAAA==",
            multipart_name=None,
            multipart_id=None,
        ),
    ],
    "stored_cells": [cell(key) for key in UNFINISHED],
    "stored_pieces": [
        *(piece(key, 0, etag="etag") for key in UNFINISHED),
        piece(RECEIVING, 1, etag=None),  # Its request was not over.
    ],
    "stored_garbage": [{"name": "pieces/old", "multipart_id": None, "due_at": MOMENT}],
    "media_jobs": [
        job(
            IN_FOLDER,
            "segments",
            "queued",
            argument="720/3",
            lane="on_demand",
            priority=5,
            attempts=2,
            turn=4,
            problem_code="ffmpeg_failed",
            problem_detail="The picture cannot be decoded.",
        ),
        job(COMPLETE, "index", "done"),
        job(COMPLETE, "pictures", "running", lane="background", worker="node-1"),
    ],
    "webhooks": [webhook(WEBHOOK_ID, paused_at=None), webhook(PAUSED_ID, paused_at=MOMENT)],
    "webhook_events": [
        {
            "number": number,
            "id": f"event-{number}",
            "project_id": FIRST_PROJECT,
            "subject": COMPLETE,
            "type": "upload.completed",
            "payload": "{}",
            "created_at": MOMENT,
        }
        for number in (1, 2, 3)
    ],
    "webhook_deliveries": [
        delivery(1, WEBHOOK_ID, "sending", token="t" * 32),
        delivery(2, WEBHOOK_ID, "waiting", token=None),
        delivery(3, PAUSED_ID, "waiting", token=None),
    ],
    "nodes": [
        {
            "name": "node-1",
            "address": "",
            "version": "1",
            "is_leaving": False,
            "counts": "{}",
            "traffic": "{}",
            "started_at": MOMENT,
            "lease_until": MOMENT,
        }
    ],
    "turns": [{"work": "sweep", "due_at": MOMENT}],
    "made_files": [
        derived_file("", "poster.jpg"),
        derived_file("rungs/720", "1.m4s"),
        derived_file("renditions", "720.mp4"),
    ],
}
"""By table, in the order in which they can be inserted."""


def in_file(folder: Path) -> Database:
    with closing(sqlite3.connect(folder / "sluice.db")) as connection:
        connection.executescript(TABLES.read_text())
    return sqlite(folder / "sluice.db")


def on_server(server: Postgresql) -> Database:
    name = f"first tables {next(_databases)}"
    url = server.create(name)
    server.ask(ON_SERVER.read_text(), database=name)
    return Database(url, synced=True)


@pytest.fixture(params=["in_file", "on_server"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """The tables of the first release with `ROWS`, carried over."""
    if request.param == "in_file":
        opened = in_file(tmp_path)
    else:
        opened = on_server(request.getfixturevalue("postgresql_server"))
    with closing(opened) as database:
        with database.write() as connection:
            first = MetaData()
            first.reflect(connection)
            for table, rows in ROWS.items():
                for row in rows:
                    connection.execute(first.tables[table].insert().values(row))
        assert database.schema_state() is SchemaState.OLDER
        database.migrate()
        yield database


def indexes_of(database: Database) -> dict[str, str]:
    """By name, with their conditions, which Alembic does not compare."""
    query = text(
        "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
        if database.file is not None
        else "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' "
        "AND indexname NOT LIKE '%_pkey'"  # A renamed table has the old name.
    )
    with database.read() as connection:
        return {name: " ".join(sql.split()) for name, sql in connection.execute(query)}


def test_its_tables_are_those_of_a_new_database(
    database: Database, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    assert database.schema_state() is SchemaState.CURRENT
    with database.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, projects.metadata) == []
        columns = {each["name"] for each in inspect(connection).get_columns("webhook_deliveries")}
    assert "token" not in columns
    if database.file is not None:
        with closing(sqlite(tmp_path / "new.db")) as new:
            new.migrate()
            assert indexes_of(database) == indexes_of(new)
    else:
        assert indexes_of(database) == indexes_of(request.getfixturevalue("on_server"))


def test_an_upload_in_a_folder_goes_on(database: Database) -> None:
    records = UploadRecords(database)
    found = records.get(IN_FOLDER)
    assert found is not None
    assert found.received == RangeSet.of([ByteRange(0, 5), ByteRange(7, 9)])
    after = records.add_received(found, ByteRange(0, 100), NOW)
    assert after.state is UploadState.VERIFYING


@pytest.mark.parametrize("upload_id", UNFINISHED)
def test_an_unfinished_upload_in_a_bucket_starts_over(
    database: Database, upload_id: UploadId
) -> None:
    records, catalog = UploadRecords(database), BucketCatalog(database, lambda: NOW)
    found = records.get(upload_id)
    assert found is not None
    assert (found.state, found.received) == (UploadState.RECEIVING, RangeSet())
    assert found.crc32c is None
    assert found.sums == RangeSums()
    file = catalog.require_open(upload_id)
    assert (file.length, file.is_published, file.multipart) == (30 * MIB, False, None)
    assert catalog.pieces(upload_id, WHOLE) == ([], WHOLE.end)
    assert catalog.parts(upload_id) == []
    assert catalog.lease(upload_id, "someone", 30)
    catalog.announce(upload_id, "pieces/new")
    again = records.add_received(
        found,
        WHOLE,
        NOW,
        rows=lambda connection: catalog.add(
            connection, upload_id, [Piece(0, WHOLE, "pieces/new", "AAAAAA==")]
        ),
    )
    assert again.received == RangeSet.of([WHOLE])
    assert [each.name for each in catalog.pieces(upload_id, WHOLE)[0]] == ["pieces/new"]


def test_what_a_bucket_has_of_unfinished_uploads_becomes_garbage(database: Database) -> None:
    catalog = BucketCatalog(database, lambda: NOW)
    due = {(each.name, each.multipart_id) for each in catalog.inventory.garbage(100)}
    assert due == {
        ("pieces/old", None),
        (f"pieces/{RECEIVING}/1", None),
        *((f"pieces/{key}/0", None) for key in UNFINISHED),
        *((f"files/{key}", f"multipart of {key}") for key in UNFINISHED),
    }


def test_a_finished_file_in_a_bucket_stays(database: Database) -> None:
    found = UploadRecords(database).get(COMPLETE)
    assert found is not None
    assert (found.state, found.crc32c) == (UploadState.COMPLETE, "AAAAAA==")
    catalog = BucketCatalog(database)
    file = catalog.require(COMPLETE)
    assert (file.name, file.length, file.is_published) == ("files/published", 30 * MIB, True)
    assert list(catalog.inventory.published()) == [COMPLETE]
    assert catalog.inventory.is_needed("files/published")


def test_jobs_of_videos_go_on(database: Database) -> None:
    jobs = JobRecords(database)
    (segments,) = jobs.of(IN_FOLDER)
    assert (str(segments), segments.state, segments.attempts) == (
        "segments 720/3",
        JobState.QUEUED,
        2,
    )
    assert segments.problem == PlaybackProblem("ffmpeg_failed", "The picture cannot be decoded.")
    assert segments.due_at - segments.queued_at == timedelta(seconds=2)
    assert (segments.client, segments.turn) == ("person:1", 4)
    assert {(job.kind, job.state) for job in jobs.of(COMPLETE)} == {
        ("index", JobState.DONE),
        ("pictures", JobState.RUNNING),
    }
    minute = timedelta(minutes=1)
    taken = jobs.claim(Lane.BACKGROUND, "node-2", NOW + minute, minute, ["pictures"])
    assert taken is not None
    assert (taken.kind, taken.attempts) == ("pictures", 2)


def test_deliveries_are_sent_by_the_job_of_their_webhook(database: Database) -> None:
    queue, jobs, lease = DeliveryQueue(database), JobRecords(database), timedelta(minutes=1)
    ready = queue.ready(NOW)
    assert ready == {WEBHOOK_ID: FIRST_PROJECT}
    jobs.add(WEBHOOK, ready, Lane.WEBHOOKS, NOW)
    job = jobs.claim(Lane.WEBHOOKS, "node-2", NOW, lease, [WEBHOOK])
    assert job is not None
    for event in ("event-1", "event-2"):
        begun = queue.begin(job, NOW)
        assert begun is not None
        assert begun.event_id == event
        assert queue.note_delivered(begun, NOW, 200)
    assert queue.begin(job, NOW) is None


def test_renditions_alone_may_be_evicted(database: Database) -> None:
    with database.read() as connection:
        rows = connection.execute(select(derived_files.c.version, derived_files.c.is_evictable))
        assert {version: bool(is_evictable) for version, is_evictable in rows} == {
            "poster.jpg": False,
            "1.m4s": True,
            "720.mp4": True,
        }
