"""POST /upload over real connections to a real server of several processes."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import uuid
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from random import Random

import pytest

from tests.dropzone_client import (
    BOUNDARY,
    ChunkedFile,
    chunk_request,
    form_body,
    form_headers,
    random_bytes,
    read_json,
    request_bytes,
    send_all,
    send_chunk,
    stored_sha256,
)
from tests.live_server import Server
from tests.waiting import wait_until

RAW = {"Content-Type": "video/mp4", "Accept": "application/json"}


def test_chunks_in_order_make_the_file(server: Server) -> None:
    file = ChunkedFile(random_bytes(2_500_001), 1_000_000)
    answer = send_all(server, file)
    assert answer["complete"] is True
    assert answer["received"] == answer["length"] == 2_500_001
    assert answer["media"] == f"/media/{answer['id']}"
    assert stored_sha256(server, answer["id"]) == file.sha256


def test_each_chunk_is_answered_with_the_uploads_progress(server: Server) -> None:
    file = ChunkedFile(random_bytes(3000), 1000)
    answers = [send_chunk(server, file, index).json() for index in (2, 0, 1)]
    assert [answer["received"] for answer in answers] == [1000, 2000, 3000]
    assert [answer["complete"] for answer in answers] == [False, False, True]
    assert len({answer["id"] for answer in answers}) == 1


def test_chunks_out_of_order_in_parallel_and_twice_publish_once(server: Server) -> None:
    file = ChunkedFile(random_bytes(24_000_007, 1), 1_000_000)
    order = list(range(file.count)) * 2
    Random(1).shuffle(order)
    with ThreadPoolExecutor(16) as pool:
        responses = list(pool.map(lambda index: send_chunk(server, file, index), order))
    assert {response.status_code for response in responses} == {200}
    answers = [response.json() for response in responses]
    assert len({answer["id"] for answer in answers}) == 1
    assert any(answer["complete"] for answer in answers)
    videos = server.get("/api/videos?limit=200").json()["videos"]
    assert [video["id"] for video in videos].count(answers[0]["id"]) == 1
    assert stored_sha256(server, answers[0]["id"]) == file.sha256


def test_a_chunk_sent_twice_is_counted_once(server: Server) -> None:
    file = ChunkedFile(random_bytes(2000), 1000)
    first, second = (send_chunk(server, file, 0) for _ in range(2))
    assert first.status_code == second.status_code == 200
    assert first.json() == second.json()
    assert second.json()["received"] == 1000


def test_different_bytes_for_a_stored_chunk_change_nothing(server: Server) -> None:
    file = ChunkedFile(random_bytes(2000), 1000)
    send_chunk(server, file, 0)
    forged = ChunkedFile(bytes(2000), 1000, key=file.key)
    assert send_chunk(server, forged, 0).status_code == 200
    answer = send_chunk(server, file, 1).json()
    assert stored_sha256(server, answer["id"]) == file.sha256


def test_a_last_chunk_repeated_after_completion_gets_the_same_answer(server: Server) -> None:
    file = ChunkedFile(random_bytes(2000), 1000)
    answer = send_all(server, file)
    again = send_chunk(server, file, 1)
    assert again.status_code == 200
    assert {**again.json(), "sha256": None} == {**answer, "sha256": None}


def test_an_empty_file_is_one_empty_chunk(server: Server) -> None:
    answer = send_chunk(server, ChunkedFile(b"", 1000), 0).json()
    assert answer["complete"] is True
    assert answer["length"] == 0
    assert server.get(f"/media/{answer['id']}").content == b""


def test_a_form_without_dropzones_fields_is_a_whole_file(server: Server) -> None:
    content = random_bytes(3_000_001)
    body = form_body({}, [("whole.mp4", content)])
    answer = server.post("/upload", data=body, headers=form_headers()).json()
    assert answer["complete"] is True
    assert stored_sha256(server, answer["id"]) == hashlib.sha256(content).hexdigest()


def test_a_plain_form_may_have_several_files_and_redirects_a_browser(server: Server) -> None:
    body = form_body({}, [("one.mp4", b"first"), ("two.mp4", b"second")])
    response = server.post(
        "/upload",
        data=body,
        headers={**form_headers(), "Accept": "text/html,application/xhtml+xml,*/*;q=0.8"},
        allow_redirects=False,
    )
    assert response.status_code == 303
    assert response.headers["Location"] == "/?uploaded=2"
    newest = server.get("/api/videos?limit=2").json()["videos"]
    assert {video["filename"] for video in newest} == {"one.mp4", "two.mp4"}


def test_a_form_without_a_chosen_file_is_reported(server: Server) -> None:
    response = server.post("/upload", data=form_body({}, [("", b"")]), headers=form_headers())
    assert response.status_code == 400
    assert "no file" in response.json()["detail"]


def test_a_file_part_ahead_of_its_fields_lands_in_the_right_place(server: Server) -> None:
    file = ChunkedFile(random_bytes(2000, 5), 1000)
    end = f"--{BOUNDARY}--\r\n".encode()
    before = server.get("/api/uploads").json()["uploads"]
    for index in (1, 0):
        first = form_body({}, [(file.filename, file.chunk(index))]).removesuffix(end)
        body = first + form_body(file.fields(index), [])
        response = server.post("/upload", data=body, headers=form_headers())
        assert response.status_code == 200, response.text
    answer = response.json()
    assert answer["complete"] is True
    assert stored_sha256(server, answer["id"]) == file.sha256
    after = server.get("/api/uploads").json()["uploads"]
    assert {item["id"] for item in after} <= {item["id"] for item in before}


def test_raw_bodies_take_their_fields_from_the_query(server: Server) -> None:
    file = ChunkedFile(random_bytes(2500, 6), 1000)
    for index in range(file.count):
        response = server.post(
            "/upload",
            params={**file.fields(index), "filename": "raw.mp4"},
            data=file.chunk(index),
            headers=RAW,
        )
        assert response.status_code == 200, response.text
    assert response.json()["filename"] == "raw.mp4"
    assert stored_sha256(server, response.json()["id"]) == file.sha256


def test_a_raw_body_in_chunked_encoding_arrives_too(server: Server) -> None:
    file = ChunkedFile(random_bytes(300_000, 7), 300_000)
    pieces = (file.content[start : start + 7000] for start in range(0, 300_000, 7000))
    response = server.post("/upload", params=file.fields(0), data=pieces, headers=RAW)
    assert response.status_code == 200, response.text
    assert stored_sha256(server, response.json()["id"]) == file.sha256


def test_an_upload_made_through_the_api_is_addressed_by_its_id(server: Server) -> None:
    file = ChunkedFile(random_bytes(2000, 8), 1000)
    created = server.post("/api/uploads", json={"name": "made.mp4", "size": 2000}).json()
    file.key = created["id"]
    answer = send_all(server, file)
    assert answer["id"] == created["id"]
    assert answer["filename"] == "made.mp4"
    assert stored_sha256(server, answer["id"]) == file.sha256


@pytest.mark.parametrize(
    ("changed", "status", "code"),
    [
        ({"dzchunkindex": "one"}, 400, "malformed_request"),
        ({"dzchunkindex": "-1"}, 400, "malformed_request"),
        ({"dzchunkindex": "+1"}, 400, "malformed_request"),
        ({"dzchunkindex": " 1"}, 400, "malformed_request"),
        ({"dzchunkindex": "\u0661"}, 400, "malformed_request"),
        ({"dzchunkindex": "1" * 40}, 400, "malformed_request"),
        ({"dzchunkindex": "7"}, 400, "chunk_mismatch"),
        ({"dzchunksize": "0"}, 400, "chunk_mismatch"),
        ({"dztotalchunkcount": "9"}, 400, "chunk_mismatch"),
        ({"dzchunkbyteoffset": "999"}, 400, "chunk_mismatch"),
        ({"dztotalfilesize": "1999"}, 400, "malformed_body"),
        (
            {"dztotalfilesize": "999999999999999", "dztotalchunkcount": "1000000000000"},
            413,
            "too_large",
        ),
        ({"dzuuid": "../../etc/passwd"}, 400, "malformed_request"),
        ({"dzuuid": ""}, 400, "malformed_request"),
        ({"dzuuid": "a" * 201}, 400, "malformed_request"),
    ],
)
def test_bad_fields_are_named_and_leave_nothing(
    server: Server, changed: dict[str, str], status: int, code: str
) -> None:
    file = ChunkedFile(random_bytes(2000), 1000)
    before = sorted(server.staging.iterdir())
    response = send_chunk(server, file, 1, **changed)
    assert (response.status_code, response.json()["code"]) == (status, code), response.text
    assert response.headers["Content-Type"] == "application/problem+json"
    if code != "malformed_body":
        assert sorted(server.staging.iterdir()) == before


@pytest.mark.parametrize("name", ChunkedFile(b"x", 1).fields(0))
def test_a_missing_field_is_named(server: Server, name: str) -> None:
    file = ChunkedFile(random_bytes(2000), 1000)
    fields = {key: value for key, value in file.fields(0).items() if key != name}
    body = form_body(fields, [(file.filename, file.chunk(0))])
    response = server.post("/upload", data=body, headers=form_headers())
    assert response.status_code == 400
    assert name in response.json()["detail"]


def test_a_chunk_with_another_total_is_a_conflict(server: Server) -> None:
    file = ChunkedFile(random_bytes(2000), 1000)
    send_chunk(server, file, 0)
    other = ChunkedFile(random_bytes(3000), 1000, key=file.key)
    response = send_chunk(server, other, 2)
    assert (response.status_code, response.json()["code"]) == (409, "upload_conflict")


def test_a_chunk_of_the_wrong_length_is_refused(server: Server) -> None:
    file = ChunkedFile(random_bytes(2000), 1000)
    for content in (file.chunk(0)[:-1], file.chunk(0) + b"x"):
        body = form_body(file.fields(0), [(file.filename, content)])
        response = server.post("/upload", data=body, headers=form_headers())
        assert response.status_code == 400, response.text
        raw = server.post("/upload", params=file.fields(0), data=content, headers=RAW)
        assert (raw.status_code, raw.json()["code"]) == (400, "chunk_mismatch")
    assert send_all(server, file)["complete"] is True


def test_a_missing_closing_boundary_is_refused_and_not_counted(server: Server) -> None:
    file = ChunkedFile(random_bytes(2000), 1000)
    body = file.body(0)
    response = server.post("/upload", data=body[:-8] + b"x" * 8, headers=form_headers())
    assert (response.status_code, response.json()["code"]) == (400, "malformed_body")
    assert send_chunk(server, file, 1).json()["received"] == 1000


@pytest.mark.parametrize("form", ["raw", "multipart"])
def test_a_wrong_digest_keeps_nothing_and_a_right_one_is_accepted(
    server: Server, form: str
) -> None:
    file = ChunkedFile(random_bytes(2000), 1000)

    def send(digest: bytes) -> tuple[int, dict[str, object]]:
        value = f"sha-256=:{b64encode(digest).decode()}:"
        if form == "raw":
            headers = {**RAW, "Content-Digest": value}
            response = server.post(
                "/upload", params=file.fields(0), data=file.chunk(0), headers=headers
            )
        else:
            body = form_body({**file.fields(0), "digest": value}, [("a.mp4", file.chunk(0))])
            response = server.post("/upload", data=body, headers=form_headers())
        return response.status_code, response.json()

    status, problem = send(bytes(32))
    assert (status, problem["code"], problem["retryable"]) == (400, "digest_mismatch", True)
    assert send_chunk(server, file, 1).json()["received"] == 1000
    status, answer = send(hashlib.sha256(file.chunk(0)).digest())
    assert (status, answer["complete"]) == (200, True)
    assert stored_sha256(server, str(answer["id"])) == file.sha256


def test_a_chunk_whose_upload_could_not_be_created_is_to_be_sent_again(server: Server) -> None:
    """The chunk that created it had no room, or no database; others were on their way."""
    file = ChunkedFile(random_bytes(2_000_000, 17), 1_000_000)
    request = chunk_request(server, file, 0)
    key = [f"%{file.key}"]
    with (
        server.connect() as connection,
        closing(sqlite3.connect(server.database, timeout=60)) as database,
    ):
        connection.sendall(request[:-1000])
        found = "SELECT id FROM uploads WHERE client_key LIKE ?"
        wait_until(lambda: database.execute(found, key).fetchone(), "the upload is created")
        with database:
            database.execute("DELETE FROM uploads WHERE client_key LIKE ?", key)
        connection.sendall(request[-1000:])
        status, problem = read_json(connection)
    assert (status, problem["retryable"]) == (503, True)
    assert stored_sha256(server, send_all(server, file)["id"]) == file.sha256


def test_late_chunks_of_a_cancelled_upload_get_410(server: Server) -> None:
    file = ChunkedFile(random_bytes(2000), 1000)
    upload_id = send_chunk(server, file, 0).json()["id"]
    assert server.delete(f"/api/uploads/{upload_id}").status_code == 204
    response = send_chunk(server, file, 1)
    assert (response.status_code, response.json()["code"]) == (410, "upload_gone")
    assert upload_id not in {path.name for path in server.staging.iterdir()}


def test_refused_chunks_leave_the_connection_usable(server: Server) -> None:
    file = ChunkedFile(random_bytes(2_000_000), 1_000_000)
    refused = request_bytes(
        server,
        "/upload",
        file.body(0, dzchunkindex="x"),
        Content_Type=form_headers()["Content-Type"],
    )
    with server.connect() as connection:
        connection.sendall(refused + chunk_request(server, file, 0))
        assert read_json(connection)[0] == 400
        status, answer = read_json(connection)
        assert (status, answer["received"]) == (200, 1_000_000)


def test_a_body_of_another_type_is_refused(server: Server) -> None:
    response = server.post("/upload", data=b"{}", headers={"Content-Type": "application/json"})
    assert response.status_code == 400
    for content_type in ("multipart/form-data", 'multipart/form-data; boundary="'):
        response = server.post("/upload", data=b"x", headers={"Content-Type": content_type})
        assert (response.status_code, response.json()["code"]) == (400, "malformed_body")


def test_pages_of_other_sites_cannot_upload_through_a_visitor(server: Server) -> None:
    body = form_body({}, [("evil.mp4", b"x")])
    headers = {**form_headers(), "Sec-Fetch-Site": "cross-site"}
    response = server.post("/upload", data=body, headers=headers)
    assert response.status_code == 403


def test_names_keep_their_characters_but_cannot_leave_the_folder(server: Server) -> None:
    body = form_body({}, [("../../tmp/Ünïcode 影片.mp4", b"x")])
    answer = server.post("/upload", data=body, headers=form_headers()).json()
    assert answer["filename"] == "tmp/Ünïcode 影片.mp4"


def test_answers_carry_a_request_id_that_the_log_has_too(server: Server) -> None:
    request_id = uuid.uuid4().hex
    file = ChunkedFile(b"x", 1)
    response = server.post(
        "/upload", data=file.body(0), headers={**form_headers(), "X-Request-ID": request_id}
    )
    assert response.headers["X-Request-ID"] == request_id
    wait_until(lambda: request_id in server.log, "the line is written, behind the answer")
    lines = [json.loads(line) for line in server.log.splitlines() if request_id in line]
    assert [line["upload_id"] for line in lines] == [response.json()["id"]]
