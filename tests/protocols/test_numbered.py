"""/resumablejs and /flow over real connections to a real server."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.dropzone_client import (
    BOUNDARY,
    form_body,
    form_headers,
    random_bytes,
    read_json,
    request_bytes,
    stored_sha256,
)
from tests.live_server import Server
from tests.protocols.numbered_client import NumberedFile
from tests.waiting import wait_until

MakeFile = Callable[..., NumberedFile]

DIALECTS = {"resumable": "/resumablejs", "flow": "/flow"}


@pytest.fixture(params=DIALECTS)
def make_file(request: pytest.FixtureRequest) -> MakeFile:
    """Makes files of one dialect, each with its own name."""

    def make(length: int, chunk_bytes: int = 1000, seed: int = 0) -> NumberedFile:
        content, name = random_bytes(length, seed), f"{uuid.uuid4().hex}.mp4"
        path = DIALECTS[request.param]
        return NumberedFile(content, chunk_bytes, request.param, path, name)

    return make


def test_chunks_with_a_longer_last_one_make_the_file(server: Server, make_file: MakeFile) -> None:
    file = make_file(2_999_999, 1_000_000)
    assert [len(file.chunk(number)) for number in (1, 2)] == [1_000_000, 1_999_999]
    answer = file.send_all(server)
    assert (answer["complete"], answer["received"]) == (True, 2_999_999)
    assert answer["filename"] == file.filename
    assert stored_sha256(server, answer["id"]) == file.sha256


def test_raw_bodies_take_their_fields_from_the_query(server: Server, make_file: MakeFile) -> None:
    file = make_file(2500)
    responses = [file.send_raw(server, number) for number in (2, 1)]
    assert {response.status_code for response in responses} == {200}
    answer = responses[-1].json()
    assert (answer["complete"], answer["filename"]) == (True, file.filename)
    assert stored_sha256(server, answer["id"]) == file.sha256


def test_chunks_in_parallel_and_twice_make_one_video(server: Server, make_file: MakeFile) -> None:
    file = make_file(1_000_007, 50_000, seed=3)
    numbers = list(range(file.count, 0, -1)) * 2
    with ThreadPoolExecutor(8) as pool:
        responses = list(pool.map(lambda number: file.send(server, number), numbers))
    assert {response.status_code for response in responses} == {200}
    assert len({response.json()["id"] for response in responses}) == 1
    assert stored_sha256(server, responses[0].json()["id"]) == file.sha256


def test_a_file_part_ahead_of_its_fields_lands_in_the_right_place(
    server: Server, make_file: MakeFile
) -> None:
    file = make_file(2500)
    end = f"--{BOUNDARY}--\r\n".encode()
    for number in (2, 1):
        first = form_body({}, [("blob", file.chunk(number))]).removesuffix(end)
        body = first + form_body(file.fields(number), [])
        response = server.post(file.path, data=body, headers=form_headers())
        assert response.status_code == 200, response.text
    answer = response.json()
    assert (answer["complete"], answer["filename"]) == (True, file.filename)
    assert stored_sha256(server, answer["id"]) == file.sha256


def test_a_chunk_test_request_reports_whether_the_chunk_arrived(
    server: Server, make_file: MakeFile
) -> None:
    file = make_file(3500)
    assert [file.probe(server, number) for number in (1, 2, 3)] == [204, 204, 204]
    file.send(server, 2)
    assert [file.probe(server, number) for number in (1, 2, 3)] == [204, 200, 204]
    file.send(server, 1)
    file.send(server, 3)
    assert [file.probe(server, number) for number in (1, 2, 3)] == [200, 200, 200]


def test_a_partly_stored_chunk_is_requested_again(server: Server, make_file: MakeFile) -> None:
    file = make_file(3_000_000, 1_000_000)
    request = request_bytes(
        server, file.path, form_body(file.fields(1), [("blob", file.chunk(1))]),
        Content_Type=form_headers()["Content-Type"],
    )  # fmt: skip
    with server.connect() as connection:
        connection.sendall(request[:-300_000])
    wait_for_bytes_of(server, file)
    assert file.probe(server, 1) == 204
    answer = file.send_all(server)
    assert stored_sha256(server, answer["id"]) == file.sha256


def wait_for_bytes_of(server: Server, file: NumberedFile) -> None:
    def is_kept() -> bool:
        uploads = server.get("/api/uploads").json()["uploads"]
        return any(item["filename"] == file.filename and item["received"] for item in uploads)

    wait_until(is_kept, "some of the broken chunk is kept")


def test_an_empty_file_does_not_exist_before_its_chunk_is_sent(
    server: Server, make_file: MakeFile
) -> None:
    file = make_file(0)
    assert file.probe(server, 1) == 204
    answer = file.send(server, 1).json()
    assert answer["complete"] is True
    assert file.probe(server, 1) == 200


def test_an_empty_file_that_was_only_announced_does_not_exist(
    server: Server, make_file: MakeFile
) -> None:
    created = server.post("/api/uploads", json={"name": "empty.mp4", "size": 0}).json()
    file = make_file(0)
    file.identifier = created["id"]
    assert file.probe(server, 1) == 204
    assert file.send(server, 1).json()["id"] == created["id"]


def test_the_same_file_again_is_the_existing_video(server: Server, make_file: MakeFile) -> None:
    file = make_file(2500)
    first = file.send_all(server)
    again = file.send_all(server)
    assert (again["id"], again["complete"]) == (first["id"], True)
    videos = server.get("/api/videos?limit=200").json()["videos"]
    assert [video["filename"] for video in videos].count(file.filename) == 1


def test_a_deleted_video_can_be_uploaded_again(server: Server, make_file: MakeFile) -> None:
    file = make_file(2500)
    first = file.send_all(server)
    assert server.delete(f"/api/videos/{first['id']}").status_code == 204
    assert [file.probe(server, number) for number in (1, 2)] == [204, 204]
    again = file.send_all(server)
    assert again["id"] != first["id"]
    assert stored_sha256(server, again["id"]) == file.sha256


def test_a_cancelled_upload_starts_over_with_its_first_chunk_and_loses_nothing(
    server: Server, make_file: MakeFile
) -> None:
    file = make_file(5500, seed=4)
    cancelled = file.send(server, 3).json()["id"]
    assert server.delete(f"/api/uploads/{cancelled}").status_code == 204
    with ThreadPoolExecutor(5) as pool:
        responses = list(pool.map(lambda number: file.send(server, number), (5, 4, 3, 2, 1)))
    assert {response.status_code for response in responses} == {200}
    (upload_id,) = {response.json()["id"] for response in responses}
    assert upload_id != cancelled
    assert stored_sha256(server, upload_id) == file.sha256


def test_a_late_chunk_of_a_cancelled_upload_creates_nothing(
    server: Server, make_file: MakeFile
) -> None:
    file = make_file(3500)
    upload_id = file.send(server, 1).json()["id"]
    server.delete(f"/api/uploads/{upload_id}")
    response = file.send(server, 2)
    assert response.json()["code"] == "upload_gone"
    assert response.status_code == {"resumable": 400, "flow": 410}[file.prefix]
    uploads = server.get("/api/uploads").json()["uploads"]
    assert file.filename not in {item["filename"] for item in uploads}


def test_an_upload_addressed_by_its_id_never_starts_over(
    server: Server, make_file: MakeFile
) -> None:
    created = server.post("/api/uploads", json={"name": "made.mp4", "size": 2500}).json()
    server.delete(f"/api/uploads/{created['id']}")
    file = make_file(2500)
    file.identifier = created["id"]
    assert file.probe(server, 1) == 204
    assert file.send(server, 1).json()["code"] == "upload_gone"


def test_an_identifier_that_only_looks_like_an_id_is_ordinary(
    server: Server, make_file: MakeFile
) -> None:
    file = make_file(2500)
    file.identifier = hashlib.md5(file.filename.encode()).hexdigest()
    first = file.send_all(server)
    server.delete(f"/api/videos/{first['id']}")
    again = file.send_all(server)
    assert stored_sha256(server, again["id"]) == file.sha256


def test_names_that_the_client_reduces_to_the_same_identifier_are_two_files(
    server: Server, make_file: MakeFile
) -> None:
    one, other = make_file(2500, seed=1), make_file(2500, seed=2)
    one.filename, other.filename = f"影片{one.filename}", f"電影{one.filename}"
    name = f"{one.prefix}Identifier"
    assert one.fields(1)[name] == other.fields(1)[name]
    for file in (one, other):
        answer = file.send_all(server)
        assert answer["filename"] == file.filename
        assert stored_sha256(server, answer["id"]) == file.sha256


@pytest.mark.parametrize(
    ("changed", "status", "code"),
    [
        ({"ChunkNumber": "one"}, 400, "malformed_request"),
        ({"ChunkNumber": "0"}, 400, "chunk_mismatch"),
        ({"ChunkNumber": "9"}, 400, "chunk_mismatch"),
        ({"CurrentChunkSize": "999"}, 400, "chunk_mismatch"),
        ({"TotalSize": "999"}, 400, "chunk_mismatch"),
    ],
)
def test_bad_fields_end_the_upload_with_a_problem_and_leave_nothing(
    server: Server, make_file: MakeFile, changed: dict[str, str], status: int, code: str
) -> None:
    file = make_file(3500)
    before = sorted(server.staging.iterdir())
    response = file.send(server, 1, **changed)
    assert (response.status_code, response.json()["code"]) == (status, code), response.text
    assert response.json()["status"] == status
    assert sorted(server.staging.iterdir()) == before


def test_a_file_beyond_the_limit_is_not_retried(server: Server, make_file: MakeFile) -> None:
    file = make_file(3500)
    response = file.send(server, 1, TotalSize=str(10**15))
    assert response.json()["code"] == "too_large"
    assert response.status_code == {"resumable": 400, "flow": 413}[file.prefix]


def test_a_test_request_without_its_fields_is_refused(server: Server, make_file: MakeFile) -> None:
    file = make_file(1)
    response = server.get(file.path)
    assert response.status_code == 400
    assert f"{file.prefix}ChunkNumber" in response.json()["detail"]


def test_a_retryable_error_has_a_status_the_client_retries(
    server: Server, make_file: MakeFile
) -> None:
    file = make_file(2500)
    digest = {"digest": "sha-256=:" + "A" * 43 + "=:"}
    body = form_body({**file.fields(1), **digest}, [("blob", file.chunk(1))])
    response = server.post(file.path, data=body, headers=form_headers())
    problem = response.json()
    assert (response.status_code, problem["status"]) == (503, 503)
    assert (problem["code"], problem["retryable"]) == ("digest_mismatch", True)
    assert int(response.headers["Retry-After"]) > 0
    assert file.probe(server, 1) == 204
    assert file.send(server, 1).status_code == 200


def test_a_truncated_body_has_a_status_the_client_retries(
    server: Server, make_file: MakeFile
) -> None:
    file = make_file(2_500_000, 1_000_000)
    request = request_bytes(
        server, file.path, form_body(file.fields(1), [("blob", file.chunk(1))]),
        Content_Type=form_headers()["Content-Type"],
    )  # fmt: skip
    with server.connect() as connection:
        connection.sendall(request[:-1000])
        connection.shutdown(1)
        status, problem = read_json(connection)
    assert (status, problem["code"]) == (503, "body_truncated")
