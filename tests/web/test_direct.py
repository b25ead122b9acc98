"""Cells that clients store in the bucket themselves: the server signs, asks the bucket, records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from app.core.pieces import URL_SECONDS, PromisedCell
from app.core.ranges import ByteRange
from app.run.build import build_services
from app.run.factory import create_app
from app.settings import from_env
from app.storage.base import AddRows
from app.storage.s3.direct import BucketCells
from tests.dropzone_client import crc32c_of, random_bytes
from tests.s3_servers import EACH_SERVER, S3Server, new_prefix

MIB = 1024 * 1024
CELL = 20 * MIB
CONTENT = random_bytes(CELL + MIB)

StoredCell = tuple[ByteRange, int, AddRows]


@pytest.fixture(scope="module", params=EACH_SERVER)
def app(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Flask]:
    """A server that lets clients send to its bucket."""
    store: S3Server = request.getfixturevalue(request.param)
    folder = tmp_path_factory.mktemp("direct")
    environment = store.access.settings(new_prefix())
    settings = from_env(
        environment
        | {
            "SLUICE_STAGING_DIR": str(folder / "staging"),
            "SLUICE_DATA_DIR": str(folder / "data"),
            "SLUICE_DIRECT_UPLOADS": "1",
        }
    )
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, environment[name])
        services = build_services(settings)
        with closing(services.database):
            services.prepare()
            yield create_app(services)


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    return app.test_client()


def create(client: FlaskClient, size: int) -> dict[str, Any]:
    response = client.post("/api/uploads", json={"name": "a.bin", "size": size})
    assert response.status_code == 201
    created: dict[str, Any] = response.get_json()
    return created


def cell(content: bytes, start: int) -> dict[str, Any]:
    """What a client promises of a cell."""
    body = content[start : start + CELL]
    return {"start": start, "length": len(body), "crc32c": crc32c_of(body)}


def offer(client: FlaskClient, upload: dict[str, Any], *cells: dict[str, Any]) -> TestResponse:
    return client.post(f"/api/uploads/{upload['id']}/cells", json={"cells": cells})


def accept(client: FlaskClient, upload: dict[str, Any], *cells: dict[str, Any]) -> TestResponse:
    return client.post(f"/api/uploads/{upload['id']}/cells/stored", json={"cells": cells})


def put(target: dict[str, Any], body: bytes) -> requests.Response:
    """What a browser does with an offer."""
    return requests.request(
        target["method"], target["url"], data=body, headers=target["headers"], timeout=60
    )


def store(client: FlaskClient, upload: dict[str, Any], content: bytes, start: int) -> TestResponse:
    """Send one cell, all the way."""
    promised = cell(content, start)
    (target,) = offer(client, upload, promised).get_json()["cells"]
    assert put(target, content[start : start + CELL]).status_code == 200
    return accept(client, upload, promised)


def missing(client: FlaskClient, upload: dict[str, Any]) -> list[list[int]]:
    found: list[list[int]] = client.get(f"/api/uploads/{upload['id']}").get_json()["missing"]
    return found


def test_a_file_arrives_through_the_bucket_alone(client: FlaskClient) -> None:
    upload = create(client, len(CONTENT))
    assert upload["direct"] == {"cell_bytes": CELL}
    cells = [cell(CONTENT, 0), cell(CONTENT, CELL)]
    targets = offer(client, upload, *cells).get_json()["cells"]
    for target in targets:
        start = target["start"]
        assert put(target, CONTENT[start : start + CELL]).status_code == 200
    answer = accept(client, upload, *cells).get_json()
    assert (answer["state"], answer["direct"]) == ("complete", None)
    assert client.get(answer["media"]).data == CONTENT
    assert put(targets[0], CONTENT[:CELL]).status_code == 200, "while its URL is valid"
    assert client.get(answer["media"]).data == CONTENT


def test_an_upload_is_not_idle_while_a_cell_may_be_on_its_way(
    app: Flask, client: FlaskClient
) -> None:
    inspection = app.extensions["sluice"].inspection

    def idle_seconds(upload: dict[str, Any]) -> float:
        found = {file.key: float(file.idle_seconds) for file in inspection.staged()}
        return found[upload["id"]]

    upload = create(client, len(CONTENT))
    assert idle_seconds(upload) >= 0
    offer(client, upload, cell(CONTENT, 0))
    assert -URL_SECONDS <= idle_seconds(upload) < 60 - URL_SECONDS


def test_nobody_reads_a_file_whose_parts_the_bucket_has_checked(
    app: Flask, client: FlaskClient
) -> None:
    services = app.extensions["sluice"]
    services.housekeeping.digest()
    upload = create(client, len(CONTENT))
    store(client, upload, CONTENT, 0)
    answer = store(client, upload, CONTENT, CELL).get_json()
    assert (answer["sha256"], answer["crc32c"]) == (None, crc32c_of(CONTENT))
    assert services.housekeeping.digest() == 0
    video = client.get(f"/api/videos/{upload['id']}").get_json()
    assert (video["sha256"], video["crc32c"]) == (None, crc32c_of(CONTENT))


def test_a_file_of_one_cell_is_copied(app: Flask, client: FlaskClient) -> None:
    """Its client could replace the object as long as its URL is valid."""
    content = CONTENT[: 5 * MIB]
    upload = create(client, len(content))
    answer = store(client, upload, content, 0).get_json()
    assert answer["state"] == "complete"
    assert client.get(answer["media"]).data == content
    stored = app.extensions["sluice"].store.pieces.catalog.require(upload["id"])
    assert stored.name.startswith("files/")


def test_cells_from_the_bucket_and_chunks_from_the_server_make_one_file(
    client: FlaskClient,
) -> None:
    upload = create(client, len(CONTENT))
    assert store(client, upload, CONTENT, CELL).status_code == 200
    assert missing(client, upload) == [[0, CELL]]
    query = {"dzuuid": upload["id"], "dzchunkindex": 0, "dzchunksize": CELL}
    totals = {"dztotalfilesize": len(CONTENT), "dztotalchunkcount": 2, "dzchunkbyteoffset": 0}
    response = client.post("/upload", query_string=query | totals, data=CONTENT[:CELL])
    assert response.get_json()["complete"]
    assert client.get(f"/media/{upload['id']}").data == CONTENT


def test_the_bucket_refuses_other_bytes_than_were_promised(client: FlaskClient) -> None:
    upload = create(client, len(CONTENT))
    promised = cell(CONTENT, CELL)
    (target,) = offer(client, upload, promised).get_json()["cells"]
    assert put(target, bytes(MIB)).status_code == 400
    assert put(target, CONTENT[CELL:-1]).status_code in {400, 403}
    assert accept(client, upload, promised).get_json()["code"] == "cell_not_stored"
    assert missing(client, upload) == [[0, len(CONTENT)]]


def test_bytes_count_only_if_the_bucket_has_them(client: FlaskClient) -> None:
    upload = create(client, len(CONTENT))
    response = accept(client, upload, cell(CONTENT, 0))
    assert (response.status_code, response.get_json()["code"]) == (409, "cell_not_stored")
    assert store(client, upload, CONTENT, CELL).status_code == 200
    lie = cell(CONTENT, CELL) | {"start": 0, "length": CELL}
    assert accept(client, upload, lie).status_code == 409
    other = create(client, len(CONTENT))
    assert accept(client, other, cell(CONTENT, CELL)).status_code == 409
    assert missing(client, other) == [[0, len(CONTENT)]]


def test_a_cell_that_is_there_gets_no_url_and_counts_once(client: FlaskClient) -> None:
    upload = create(client, len(CONTENT))
    store(client, upload, CONTENT, CELL)
    (known,) = offer(client, upload, cell(CONTENT, CELL)).get_json()["cells"]
    assert known == {"start": CELL, "length": MIB, "stored": True}
    assert accept(client, upload, cell(CONTENT, CELL)).status_code == 200


def test_a_cell_can_be_sent_again_at_another_url(client: FlaskClient) -> None:
    """The request at the first may have broken off, and may still arrive."""
    upload = create(client, len(CONTENT))
    both = cell(CONTENT, 0), cell(CONTENT, CELL)
    (late,) = offer(client, upload, both[0]).get_json()["cells"]
    for target in offer(client, upload, *both).get_json()["cells"]:
        assert target["url"] != late["url"]
        start = target["start"]
        assert put(target, CONTENT[start : start + CELL]).status_code == 200
    assert put(late, CONTENT[:CELL]).status_code == 200
    answer = accept(client, upload, *both).get_json()
    assert answer["state"] == "complete"
    assert client.get(answer["media"]).data == CONTENT


def test_cells_of_two_pages_that_send_the_same_file_count_once(client: FlaskClient) -> None:
    upload = create(client, len(CONTENT))
    first, second = (
        offer(client, upload, cell(CONTENT, CELL)).get_json()["cells"][0] for _ in range(2)
    )
    assert put(first, CONTENT[CELL:]).status_code == 200
    assert accept(client, upload, cell(CONTENT, CELL)).status_code == 200
    assert put(second, CONTENT[CELL:]).status_code == 200
    assert accept(client, upload, cell(CONTENT, CELL)).status_code == 200
    assert missing(client, upload) == [[0, CELL]]


@pytest.mark.parametrize("start", [0, CELL], ids=["the last cell", "another"])
@pytest.mark.parametrize("is_looked_up", [False, True], ids=["before", "after"])
def test_a_report_may_be_repeated_while_the_first_is_slow(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch, *, start: int, is_looked_up: bool
) -> None:
    """The repetition, at another node, is recorded before or after the first has found the cell."""
    upload, promised, real = create(client, len(CONTENT)), cell(CONTENT, start), BucketCells.accept
    if start == 0:
        store(client, upload, CONTENT, CELL)
    (target,) = offer(client, upload, promised).get_json()["cells"]
    assert put(target, CONTENT[start : start + CELL]).status_code == 200

    def slow(cells: BucketCells, key: str, asked: Sequence[PromisedCell]) -> list[StoredCell]:
        monkeypatch.setattr(BucketCells, "accept", real)
        found = real(cells, key, asked) if is_looked_up else None
        with ThreadPoolExecutor() as pool:
            other = client.application.test_client()
            assert pool.submit(accept, other, upload, promised).result().status_code == 200
        return found or real(cells, key, asked)

    monkeypatch.setattr(BucketCells, "accept", slow)
    answer = accept(client, upload, promised).get_json()
    assert answer["missing"] == ([] if start == 0 else [[0, CELL]])
    assert answer["state"] == ("complete" if start == 0 else "receiving")


def test_only_cells_of_the_grid_are_offered(client: FlaskClient) -> None:
    upload = create(client, len(CONTENT))
    for start, length in ((1, CELL), (0, MIB), (CELL, MIB - 1), (CELL, 2 * MIB), (9 * CELL, 5)):
        response = offer(client, upload, cell(CONTENT, 0) | {"start": start, "length": length})
        assert (response.status_code, response.get_json()["code"]) == (400, "chunk_mismatch")


@pytest.mark.parametrize(
    "cells",
    [
        *([], [1], [{"start": 0, "length": 5}], "all"),
        [{"start": -1, "length": 5, "crc32c": "AAAAAA=="}],
        [{"start": 0, "length": 0, "crc32c": "AAAAAA=="}],
        [{"start": 0, "length": 5, "crc32c": "AAAA"}],
        [{"start": 0, "length": 5, "crc32c": "AAAAAA==\r\nX: y"}],
    ],
)
def test_a_malformed_promise_is_refused(client: FlaskClient, cells: object) -> None:
    upload = create(client, len(CONTENT))
    for path in ("cells", "cells/stored"):
        response = client.post(f"/api/uploads/{upload['id']}/{path}", json={"cells": cells})
        assert response.status_code == 400


def test_short_files_go_through_the_server(client: FlaskClient) -> None:
    upload = create(client, MIB)
    assert upload["direct"] is None
    response = offer(client, upload, cell(CONTENT[:MIB], 0))
    assert (response.status_code, response.get_json()["code"]) == (409, "not_direct")


def test_what_is_sent_for_a_cancelled_upload_is_garbage(app: Flask, client: FlaskClient) -> None:
    upload = create(client, len(CONTENT))
    promised = cell(CONTENT, CELL)
    (target,) = offer(client, upload, promised).get_json()["cells"]
    assert client.delete(f"/api/uploads/{upload['id']}").status_code == 204
    assert put(target, CONTENT[CELL:]).status_code == 200
    assert accept(client, upload, promised).status_code == 410
    catalog = app.extensions["sluice"].store.pieces.catalog
    assert len(catalog.announced(f"direct/{upload['id']}.")) == 1, "until a sweep removes it"


def test_strangers_with_a_link_send_to_the_bucket_until_it_is_closed(client: FlaskClient) -> None:
    link = client.post("/api/upload-links", json={"extensions": ["bin"]}).get_json()
    below = urlsplit(link["url"]).path
    stranger = client.application.test_client()
    upload = stranger.post(f"{below}/api/uploads", json={"name": "a.bin", "size": len(CONTENT)})
    upload_id, cells = upload.get_json()["id"], {"cells": [cell(CONTENT, CELL)]}
    path = f"{below}/api/uploads/{upload_id}/cells"
    (target,) = stranger.post(path, json=cells).get_json()["cells"]
    assert put(target, CONTENT[CELL:]).status_code == 200
    assert client.delete(f"/api/upload-links/{link['id']}").status_code == 204
    assert stranger.post(f"{path}/stored", json=cells).status_code == 410
    assert client.get(f"/api/uploads/{upload_id}").status_code == 410, "it ends with the link"


def test_the_page_may_connect_to_the_bucket(app: Flask, client: FlaskClient) -> None:
    policy = client.get("/").headers["Content-Security-Policy"]
    assert f"connect-src 'self' {app.extensions['sluice'].settings.s3_endpoint}" in policy
