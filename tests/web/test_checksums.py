"""Checksums of files: a CRC32C from those of the chunks, a SHA-256 once it is wanted."""

from __future__ import annotations

import hashlib
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.digests import digest_field
from tests.dropzone_client import crc32c_of, form_body, form_headers, random_bytes
from tests.live_server import Server
from tests.waiting import wait_until

CHUNK = 40_000
CONTENT = random_bytes(3 * CHUNK + 7, 21)

WISH = {"Want-Repr-Digest": "sha-256=1"}


def create(server: Server) -> str:
    wish = {"name": "a.mov", "size": len(CONTENT)}
    return str(server.post("/api/uploads", json=wish).json()["id"])


def send(server: Server, upload_id: str, index: int, algorithm: str | None) -> dict[str, Any]:
    start = index * CHUNK
    chunk = CONTENT[start : start + CHUNK]
    place = {
        "dzuuid": upload_id,
        "dzchunkindex": index,
        "dztotalfilesize": len(CONTENT),
        "dzchunksize": CHUNK,
        "dztotalchunkcount": 4,
        "dzchunkbyteoffset": start,
    }
    headers = {"Content-Type": "application/octet-stream"}
    if algorithm is not None:
        headers["Content-Digest"] = digest_field(algorithm, chunk)
    answer = server.post(f"/upload?{urlencode(place)}", data=chunk, headers=headers)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2)])
def test_chunks_with_digests_of_any_kind_give_the_file_a_crc32c(
    server: Server, order: tuple[int, ...]
) -> None:
    upload_id = create(server)
    for index, algorithm in zip(order, ("crc32c", "sha-256", "crc32c", "md5"), strict=True):
        document = send(server, upload_id, index, algorithm)
    assert (document["complete"], document["crc32c"]) == (True, crc32c_of(CONTENT))
    video = server.get(f"/api/videos/{upload_id}").json()
    assert (video["crc32c"], video["sha256"]) == (crc32c_of(CONTENT), None)


@pytest.mark.parametrize("kind", ["videos", "uploads"])
def test_a_sha256_is_computed_once_it_is_wanted(server: Server, kind: str) -> None:
    upload_id = create(server)
    for index in range(4):
        send(server, upload_id, index, "crc32c")
    path = f"/api/{kind}/{upload_id}"
    assert server.get(path, headers={"Want-Repr-Digest": "crc32c=1"}).json()["sha256"] is None
    assert server.get(path, headers={"Want-Repr-Digest": "=broken"}).json()["sha256"] is None
    assert server.get(path, headers=WISH).json()["sha256"] is None
    wait_until(lambda: server.get(path).json()["sha256"], "SHA-256")
    assert server.get(path).json()["sha256"] == hashlib.sha256(CONTENT).hexdigest()


def test_the_sha256_of_several_uploads_is_computed_once_it_is_wanted(server: Server) -> None:
    ids = [create(server) for _ in range(2)]
    for upload_id in ids:
        for index in range(4):
            send(server, upload_id, index, "crc32c")

    def sha256s(**headers: str) -> list[str | None]:
        answer = server.get(f"/api/uploads?id={'&id='.join(ids)}", headers=headers)
        return [upload["sha256"] for upload in answer.json()["uploads"]]

    assert sha256s(**WISH) == [None, None]
    wait_until(lambda: all(sha256s()), "both SHA-256")


def test_a_file_with_a_chunk_without_a_digest_gets_its_sha256_unasked(server: Server) -> None:
    upload_id = create(server)
    for index, algorithm in enumerate(("crc32c", None, "crc32c", "crc32c")):
        send(server, upload_id, index, algorithm)
    path = f"/api/videos/{upload_id}"
    wait_until(lambda: server.get(path).json()["sha256"], "SHA-256")
    assert server.get(path).json()["crc32c"] is None


def test_a_chunk_that_was_there_already_changes_no_checksum(server: Server) -> None:
    upload_id = create(server)
    for index in (0, 1, 1, 0, 2, 3):
        document = send(server, upload_id, index, "crc32c")
    assert document["crc32c"] == crc32c_of(CONTENT)


def test_receipts_have_the_checksum_that_the_request_wants(server: Server) -> None:
    body = form_body({}, [("a.mov", CONTENT), ("empty.mov", b"")])
    headers = {**form_headers(), "Want-Repr-Digest": "crc32c=2, sha-256=1"}
    first, empty = server.post("/batch", data=body, headers=headers).json()["files"]
    assert (first["crc32c"], first["sha256"]) == (crc32c_of(CONTENT), None)
    assert (empty["crc32c"], empty["sha256"]) == (crc32c_of(b""), None)
    assert server.get(first["media"]).content == CONTENT
