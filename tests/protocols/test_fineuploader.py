"""/fineuploader over real connections to a real server, and what its fields say."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
import requests

from app.core.errors import ChunkMismatch, InvalidRequest
from app.protocols.forms.dialects import FINEUPLOADER
from app.uploads.client_uploads import Chunk
from tests.dropzone_client import (
    ChunkedFile,
    form_body,
    form_headers,
    random_bytes,
    read_json,
    request_bytes,
    stored_sha256,
)
from tests.live_server import Server

URL = "/fineuploader"


def part_fields(file: ChunkedFile, index: int) -> dict[str, str]:
    """The fields in the order the client sends them."""
    return {
        "qqpartindex": str(index),
        "qqpartbyteoffset": str(index * file.chunk_bytes),
        "qqchunksize": str(len(file.chunk(index))),
        "qqtotalparts": str(file.count),
        "qqtotalfilesize": str(len(file.content)),
        "qqfilename": file.filename,
        "qquuid": file.key,
    }


def send_part(server: Server, file: ChunkedFile, index: int, **changed: str) -> requests.Response:
    body = form_body({**part_fields(file, index), **changed}, [("blob", file.chunk(index))])
    return server.post(URL, data=body, headers=form_headers())


def send_all(server: Server, file: ChunkedFile) -> dict[str, Any]:
    for index in range(file.count):
        response = send_part(server, file, index)
        assert response.status_code == 200, response.text
        assert response.json()["success"] is True
    document: dict[str, Any] = response.json()
    return document


def finish(server: Server, file: ChunkedFile, **options: Any) -> requests.Response:
    fields = {
        "qquuid": file.key,
        "qqfilename": file.filename,
        "qqtotalfilesize": str(len(file.content)),
        "qqtotalparts": str(file.count),
    }
    return server.post(URL, **(options or {"data": fields}))


def test_parts_make_the_file_under_its_own_name(server: Server) -> None:
    file = ChunkedFile(random_bytes(2_500_001), 1_000_000)
    answer = send_all(server, file)
    assert (answer["complete"], answer["filename"]) == (True, "film.mp4")
    assert "newUuid" not in answer
    assert stored_sha256(server, answer["id"]) == file.sha256


def test_parts_in_any_order_and_twice_make_one_video(server: Server) -> None:
    file = ChunkedFile(random_bytes(3500, 1), 1000)
    answers = [send_part(server, file, index).json() for index in (3, 1, 3, 0, 2)]
    assert [answer["success"] for answer in answers] == [True] * 5
    assert answers[-1]["complete"] is True
    assert stored_sha256(server, answers[-1]["id"]) == file.sha256


def test_a_file_in_one_piece_keeps_its_name_too(server: Server) -> None:
    file = ChunkedFile(random_bytes(2500, 2), 10_000)
    fields = {"qquuid": file.key, "qqfilename": "whole.mp4", "qqtotalfilesize": "2500"}
    body = form_body(fields, [("ignored.mp4", file.content)])
    answer = server.post(URL, data=body, headers=form_headers()).json()
    assert (answer["success"], answer["filename"]) == (True, "whole.mp4")
    assert stored_sha256(server, answer["id"]) == file.sha256
    assert server.delete(f"{URL}/{file.key}").json() == {"success": True}
    assert server.get(f"/media/{answer['id']}").status_code == 410


def test_a_form_without_fields_gets_a_name_for_deleting_its_file(server: Server) -> None:
    body = form_body({}, [("plain.mp4", b"content")])
    answer = server.post(URL, data=body, headers=form_headers()).json()
    assert answer["newUuid"] == answer["id"]
    assert server.delete(f"{URL}/{answer['newUuid']}").status_code == 200


@pytest.mark.parametrize("is_part", [True, False])
def test_raw_bodies_take_their_fields_from_the_query(server: Server, is_part: bool) -> None:
    file = ChunkedFile(random_bytes(2500, 3), 1000 if is_part else 2500)
    whole = {"qquuid": file.key, "qqfilename": "film.mp4", "qqfile": "film.mp4"}
    for index in range(file.count):
        response = server.post(
            URL,
            params=part_fields(file, index) if is_part else whole,
            data=file.chunk(index),
            headers={"Content-Type": "application/octet-stream"},
        )
        assert response.status_code == 200, response.text
    assert response.json()["filename"] == "film.mp4"
    assert stored_sha256(server, response.json()["id"]) == file.sha256


@pytest.mark.parametrize("kind", ["data", "json"])
def test_the_request_after_the_last_part_gets_the_video(server: Server, kind: str) -> None:
    file = ChunkedFile(random_bytes(2500, 4), 1000)
    send_all(server, file)
    response = finish(server, file, **{kind: {"qquuid": file.key}})
    assert response.status_code == 200
    assert response.json()["success"] is True
    assert response.json()["media"] == f"/media/{response.json()['id']}"


def test_a_file_with_a_missing_part_is_not_finished(server: Server) -> None:
    file = ChunkedFile(random_bytes(2500, 5), 1000)
    send_part(server, file, 0)
    response = finish(server, file)
    answer = response.json()
    assert (response.status_code, answer["success"], answer["reset"]) == (409, False, True)
    assert "1500 bytes" in answer["error"]
    assert send_all(server, file)["complete"] is True
    assert finish(server, file).status_code == 200


def test_deletion_cancels_an_unfinished_upload(server: Server) -> None:
    file = ChunkedFile(random_bytes(2500, 6), 1000)
    upload_id = send_part(server, file, 0).json()["id"]
    assert server.delete(f"{URL}/{file.key}").status_code == 200
    assert server.get(f"/api/uploads/{upload_id}").status_code == 410
    assert server.delete(f"{URL}/{file.key}").status_code == 410
    assert server.delete(f"{URL}/{uuid.uuid4()}").status_code == 404


def test_deletion_by_post_does_the_same(server: Server) -> None:
    file = ChunkedFile(random_bytes(2500, 7), 1000)
    answer = send_all(server, file)
    response = server.post(URL, data={"_method": "DELETE", "qquuid": file.key})
    assert (response.status_code, response.json()) == (200, {"success": True})
    assert server.get(f"/media/{answer['id']}").status_code == 410


def test_parts_of_an_ended_upload_make_the_client_start_over(server: Server) -> None:
    file = ChunkedFile(random_bytes(2500, 8), 1000)
    upload_id = send_part(server, file, 0).json()["id"]
    server.delete(f"/api/uploads/{upload_id}")
    response = send_part(server, file, 1)
    answer = response.json()
    assert (response.status_code, answer["code"]) == (410, "upload_gone")
    assert (answer["success"], answer["preventRetry"], answer["reset"]) == (False, True, True)
    assert answer["error"] == answer["detail"]


def test_a_retryable_error_keeps_the_parts_that_were_sent(server: Server) -> None:
    file = ChunkedFile(random_bytes(2_500_000, 9), 1_000_000)
    send_part(server, file, 0)
    body = form_body(part_fields(file, 1), [("blob", file.chunk(1))])
    headers = {"Content_Type": form_headers()["Content-Type"]}
    with server.connect() as connection:
        connection.sendall(request_bytes(server, URL, body, **headers)[:-1000])
        connection.shutdown(1)
        status, answer = read_json(connection)
    assert (status, answer["code"]) == (400, "body_truncated")
    assert (answer["success"], answer["preventRetry"], answer["reset"]) == (False, False, False)
    assert stored_sha256(server, send_all(server, file)["id"]) == file.sha256


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"qqpartindex": "x"}, "malformed_request"),
        ({"qqpartindex": "7"}, "chunk_mismatch"),
        ({"qqtotalparts": "2"}, "chunk_mismatch"),
        ({"qqpartbyteoffset": "2000"}, "chunk_mismatch"),
        ({"qqtotalfilesize": ""}, "malformed_request"),
        ({"qquuid": "../../etc"}, "malformed_request"),
    ],
)
def test_bad_fields_prevent_a_retry_and_leave_nothing(
    server: Server, changed: dict[str, str], code: str
) -> None:
    file = ChunkedFile(random_bytes(2500, 10), 1000)
    before = sorted(server.staging.iterdir())
    response = send_part(server, file, 1, **changed)
    answer = response.json()
    assert (response.status_code, answer["code"]) == (400, code), response.text
    assert (answer["success"], answer["preventRetry"]) == (False, True)
    assert sorted(server.staging.iterdir()) == before


def test_a_small_form_must_name_its_upload(server: Server) -> None:
    assert server.post(URL, data={"qqfilename": "a"}).status_code == 400
    assert server.post(URL, data={"qquuid": str(uuid.uuid4())}).status_code == 404
    assert server.post(URL, data={"qquuid": "a", "x": "y" * 70_000}).status_code == 413


FIELDS = part_fields(ChunkedFile(bytes(25), 10, key="uuid"), 2)


def test_a_parts_offset_follows_from_its_fields() -> None:
    assert FINEUPLOADER.parse(FIELDS) == Chunk("uuid", 20, 5, 25, "film.mp4")
    whole = {"qquuid": "uuid", "qqtotalfilesize": "25"}
    assert FINEUPLOADER.parse(whole) == Chunk("uuid", 0, 25, 25)


def test_a_form_without_name_or_length_is_not_a_chunk() -> None:
    assert FINEUPLOADER.parse({}) is None
    assert FINEUPLOADER.parse({"qquuid": "uuid", "qqfilename": "a.mp4"}) is None


@pytest.mark.parametrize("name", sorted(FIELDS.keys() - {"qqfilename"}))
def test_a_missing_field_of_a_part_is_named(name: str) -> None:
    fields = {key: value for key, value in FIELDS.items() if key != name}
    with pytest.raises(InvalidRequest, match=name):
        FINEUPLOADER.parse(fields)


@pytest.mark.parametrize("name", sorted(FIELDS.keys() - {"qqfilename", "qquuid"}))
@pytest.mark.parametrize("text", ["", " ", "-1", "1.0", "٣", "1\n", "9" * 19])
def test_a_field_that_is_not_a_plain_number_is_malformed(name: str, text: str) -> None:
    with pytest.raises(InvalidRequest, match=name):
        FINEUPLOADER.parse({**FIELDS, name: text})


@pytest.mark.parametrize(
    "changed",
    [{"qqpartindex": "1"}, {"qqpartindex": "3"}, {"qqchunksize": "4"}, {"qqchunksize": "6"}],
)
def test_fields_that_contradict_each_other_are_a_mismatch(changed: dict[str, str]) -> None:
    with pytest.raises(ChunkMismatch):
        FINEUPLOADER.parse({**FIELDS, **changed})
