"""Uploads begun in one dialect of forms and finished in another, by their id."""

from __future__ import annotations

import hashlib

import requests

from tests.dropzone_client import (
    ChunkedFile,
    form_body,
    form_headers,
    random_bytes,
    send_chunk,
    stored_sha256,
)
from tests.live_server import Server
from tests.protocols.numbered_client import NumberedFile

CHUNK_BYTES = 1000


def test_every_dialect_can_send_a_chunk_of_the_same_file(server: Server) -> None:
    content = random_bytes(5 * CHUNK_BYTES)
    resumable = NumberedFile(content, CHUNK_BYTES, "resumable", "/resumablejs", "shared.mp4")
    upload_id = resumable.send(server, 1).json()["id"]
    flow = NumberedFile(content, CHUNK_BYTES, "flow", "/flow", identifier=upload_id)
    assert flow.probe(server, 1) == 200
    assert flow.send(server, 2).json()["id"] == upload_id
    dropzone = ChunkedFile(content, CHUNK_BYTES, key=upload_id)
    assert send_chunk(server, dropzone, 2).json()["id"] == upload_id
    assert send_filepond_chunk(server, upload_id, content, 3).status_code == 204
    answer = send_fine_part(server, upload_id, content, 4).json()
    assert (answer["id"], answer["complete"]) == (upload_id, True)
    assert answer["filename"] == "shared.mp4"
    assert stored_sha256(server, upload_id) == hashlib.sha256(content).hexdigest()
    assert resumable.probe(server, 5) == 200


def send_filepond_chunk(
    server: Server, upload_id: str, content: bytes, index: int
) -> requests.Response:
    offset = index * CHUNK_BYTES
    url = f"{server.url}/filepond?patch={upload_id}"
    chunk = content[offset : offset + CHUNK_BYTES]
    return requests.patch(url, data=chunk, headers={"Upload-Offset": str(offset)}, timeout=60)


def send_fine_part(server: Server, upload_id: str, content: bytes, index: int) -> requests.Response:
    offset = index * CHUNK_BYTES
    chunk = content[offset : offset + CHUNK_BYTES]
    fields = {
        "qqpartindex": str(index),
        "qqpartbyteoffset": str(offset),
        "qqchunksize": str(len(chunk)),
        "qqtotalparts": str(len(content) // CHUNK_BYTES),
        "qqtotalfilesize": str(len(content)),
        "qquuid": upload_id,
    }
    body = form_body(fields, [("blob", chunk)])
    return server.post("/fineuploader", data=body, headers=form_headers())


def test_bytes_another_client_has_sent_are_not_sent_again(server: Server) -> None:
    content = random_bytes(3 * CHUNK_BYTES, 1)
    created = server.post("/api/uploads", json={"name": "made.mp4", "size": len(content)}).json()
    send_filepond_chunk(server, created["id"], content, 1)
    flow = NumberedFile(content, CHUNK_BYTES, "flow", "/flow", identifier=created["id"])
    assert [flow.probe(server, number) for number in (1, 2, 3)] == [204, 200, 204]


def test_an_id_with_another_length_is_a_conflict(server: Server) -> None:
    created = server.post("/api/uploads", json={"name": "made.mp4", "size": 10}).json()
    other = ChunkedFile(random_bytes(20), 10, key=created["id"])
    response = send_chunk(server, other, 0)
    assert (response.status_code, response.json()["code"]) == (409, "upload_conflict")
