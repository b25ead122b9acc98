"""A server whose connections to PostgreSQL go through PgBouncer in transaction mode."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from app.db.postgresql import SESSION
from tests.dropzone_client import ChunkedFile, random_bytes, send_all, stored_sha256
from tests.live_server import NO_FFMPEG, running_server
from tests.postgresql import pgbouncer, postgresql, set_limits

pytestmark = pytest.mark.e2e

UPLOADS = 20
FILE_BYTES = 3_000_000
CHUNK_BYTES = 200_000
"""So small that psycopg would prepare the statements of a chunk: it does after five uses."""


def test_many_uploads_at_once_through_a_pooler_are_right_and_the_log_has_no_error(
    tmp_path: Path,
) -> None:
    with postgresql() as database, pgbouncer(database) as pooler:
        url = pooler.pooled(database.create("sluice"))
        set_limits(database)
        options = {"SLUICE_DATABASE_URL": url, **NO_FFMPEG}
        with running_server(tmp_path, **options) as server:

            def upload(number: int) -> bool:
                file = ChunkedFile(random_bytes(FILE_BYTES, number), CHUNK_BYTES)
                upload_id = send_all(server, file)["id"]
                return stored_sha256(server, upload_id) == file.sha256

            with ThreadPoolExecutor(UPLOADS) as pool:
                assert all(pool.map(upload, range(UPLOADS)))
        with psycopg.connect(url.replace("+psycopg", "")) as connection:
            found = {name: connection.execute(f"SHOW {name}").fetchone() for name in SESSION}
        assert "0" not in {row and row[0] for row in found.values()}
    entries = [json.loads(line) for line in server.log.splitlines()]
    assert [each for each in entries if each["level"] in {"error", "critical"}] == []
