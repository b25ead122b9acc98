"""/resumable/ as in the newest draft, over real connections to a real server."""

from __future__ import annotations

import hashlib

import pytest

from tests.dropzone_client import random_bytes, stored_sha256
from tests.ietf_client import append, create, look, send, send_request
from tests.live_server import Server

FILE = random_bytes(30_000, 80)
SHA256 = hashlib.sha256(FILE).hexdigest()
PROBLEMS = "https://iana.org/assignments/http-problem-types#"
UNKNOWN = "0" * 32


@pytest.mark.parametrize("method", ["POST", "PUT"])
@pytest.mark.parametrize("path", ["/resumable/", "/resumable"])
def test_a_file_sent_in_one_request_is_published(server: Server, method: str, path: str) -> None:
    answer = send(server, method, path, FILE, Upload_Complete="?1")
    assert answer.status == 200
    assert answer.headers["upload-complete"] == "?1"
    assert answer.json()["media"] == f"/media/{answer.upload_id}"
    assert answer.json()["complete"] is True
    assert stored_sha256(server, answer.upload_id) == SHA256


def test_a_file_of_known_length_arrives_in_parts(server: Server) -> None:
    created = create(server, FILE[:10_000], Upload_Length="30000")
    assert (created.status, created.headers["upload-complete"]) == (201, "?0")
    upload_id = created.upload_id
    middle = append(server, upload_id, 10_000, FILE[10_000:15_000], is_last=False)
    assert (middle.status, middle.headers["upload-complete"], middle.body) == (204, "?0", b"")
    last = append(server, upload_id, 15_000, FILE[15_000:], is_last=True)
    assert (last.status, last.headers["upload-complete"]) == (200, "?1")
    assert last.json()["id"] == upload_id
    assert stored_sha256(server, upload_id) == SHA256


def test_an_upload_can_be_created_before_any_byte_is_sent(server: Server) -> None:
    upload_id = create(server).upload_id
    state = look(server, upload_id)
    assert (state.status, state.headers["upload-offset"]) == (204, "0")
    assert state.headers["upload-complete"] == "?0"
    assert append(server, upload_id, 0, FILE, is_last=True).status == 200
    assert stored_sha256(server, upload_id) == SHA256


def test_an_unknown_length_stays_open_until_the_last_request(server: Server) -> None:
    upload_id = create(server, FILE[:10_000]).upload_id
    append(server, upload_id, 10_000, FILE[10_000:20_000], is_last=False)
    state = look(server, upload_id)
    assert "upload-length" not in state.headers
    assert server.get(f"/api/uploads/{upload_id}").json()["length"] is None
    assert append(server, upload_id, 20_000, FILE[20_000:], is_last=True).status == 200
    assert look(server, upload_id).headers["upload-length"] == "30000"
    assert stored_sha256(server, upload_id) == SHA256


def test_the_end_of_a_chunked_body_gives_the_length(server: Server) -> None:
    whole = create(server, FILE, is_last=True, Transfer_Encoding="chunked")
    assert (whole.status, whole.json()["length"]) == (200, 30_000)
    assert stored_sha256(server, whole.upload_id) == SHA256
    upload_id = create(server, FILE[:9_999]).upload_id
    rest = append(server, upload_id, 9_999, FILE[9_999:], is_last=True, Transfer_Encoding="chunked")
    assert (rest.status, rest.json()["length"]) == (200, 30_000)
    assert stored_sha256(server, upload_id) == SHA256


def test_a_last_request_without_content_completes_the_upload(server: Server) -> None:
    upload_id = create(server, FILE).upload_id
    assert append(server, upload_id, 30_000, b"", is_last=True).status == 200
    assert stored_sha256(server, upload_id) == SHA256


def test_a_client_that_lost_the_final_answer_gets_it_again(server: Server) -> None:
    first = create(server, FILE, is_last=True)
    state = look(server, first.upload_id)
    assert (state.headers["upload-offset"], state.headers["upload-complete"]) == ("30000", "?1")
    again = append(server, first.upload_id, 30_000, b"", is_last=True)
    assert (again.status, again.headers["upload-complete"]) == (200, "?1")
    assert again.json()["media"] == first.json()["media"]


def test_a_client_that_announces_more_content_completes_the_upload_itself(
    server: Server,
) -> None:
    created = create(server, FILE, Upload_Length="30000")
    assert (created.status, created.headers["upload-complete"]) == (201, "?0")
    last = append(server, created.upload_id, 30_000, b"", is_last=True)
    assert (last.status, last.headers["upload-complete"]) == (200, "?1")
    assert stored_sha256(server, created.upload_id) == SHA256


def test_an_empty_file_is_a_file(server: Server) -> None:
    whole = create(server, is_last=True)
    assert (whole.status, whole.json()["length"]) == (200, 0)
    chunked = create(server, is_last=True, Transfer_Encoding="chunked")
    assert (chunked.status, chunked.json()["length"]) == (200, 0)
    upload_id = create(server, Upload_Length="0").upload_id
    assert look(server, upload_id).headers["upload-complete"] == "?0"
    assert append(server, upload_id, 0, b"", is_last=True).status == 200


@pytest.mark.parametrize("method", ["HEAD", "GET"])
def test_the_state_of_an_upload_is_reported_and_not_cached(server: Server, method: str) -> None:
    upload_id = create(server, FILE[:100], Upload_Length="30000").upload_id
    state = send(server, method, f"/resumable/{upload_id}")
    assert (state.status, state.body) == (204, b"")
    assert state.headers["upload-offset"] == "100"
    assert state.headers["upload-complete"] == "?0"
    assert state.headers["upload-length"] == "30000"
    assert "max-age=" in state.headers["upload-limit"]
    assert state.headers["cache-control"] == "no-store"


def test_limits_are_sent_before_an_upload_and_with_it(server: Server) -> None:
    limits = send(server, "OPTIONS").headers["upload-limit"]
    assert limits == "max-size=1099511627776, max-age=604800"
    created = create(server)
    assert created.headers["upload-limit"].startswith("max-size=1099511627776, max-age=6047")
    assert {"POST", "PUT", "OPTIONS"} == set(send(server, "OPTIONS").headers["allow"].split(", "))


def test_a_cancelled_upload_is_gone(server: Server) -> None:
    upload_id = create(server, FILE[:100], Upload_Length="30000").upload_id
    path = f"/resumable/{upload_id}"
    assert send(server, "DELETE", path).status == 204
    assert send(server, "DELETE", path).status == 410
    assert look(server, upload_id).status == 410
    assert append(server, upload_id, 100, FILE[100:], is_last=True).status == 410
    assert server.get(f"/api/uploads/{upload_id}").status_code == 410


def test_a_published_file_cannot_be_cancelled(server: Server) -> None:
    upload_id = create(server, FILE, is_last=True).upload_id
    answer = send(server, "DELETE", f"/resumable/{upload_id}")
    assert (answer.status, answer.json()["code"]) == (409, "upload_complete")
    assert stored_sha256(server, upload_id) == SHA256


@pytest.mark.parametrize("upload_id", [UNKNOWN, "..%2f..%2fetc", "a%00b", "%ff", "x" * 500])
def test_an_unknown_upload_is_not_found(server: Server, upload_id: str) -> None:
    assert look(server, upload_id).status == 404
    assert append(server, upload_id, 0, b"bytes", is_last=True).status == 404
    assert send(server, "DELETE", f"/resumable/{upload_id}").status == 404


@pytest.mark.parametrize("offset", [0, 99, 101, 30_000])
def test_bytes_at_a_wrong_offset_are_refused_with_the_right_one(
    server: Server, offset: int
) -> None:
    upload_id = create(server, FILE[:100]).upload_id
    answer = append(server, upload_id, offset, FILE[100:], is_last=False)
    assert answer.status == 409
    assert (answer.headers["upload-offset"], answer.headers["upload-complete"]) == ("100", "?0")
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["type"] == PROBLEMS + "mismatching-upload-offset"
    assert (problem["expected-offset"], problem["provided-offset"]) == (100, offset)
    assert problem["code"] == "offset_mismatch"
    assert look(server, upload_id).headers["upload-offset"] == "100"


def test_bytes_for_the_middle_of_a_complete_upload_are_refused_in_the_same_way(
    server: Server,
) -> None:
    upload_id = create(server, FILE, is_last=True).upload_id
    answer = append(server, upload_id, 20_000, FILE[20_000:], is_last=True)
    assert (answer.status, answer.headers["upload-offset"]) == (409, "30000")
    assert stored_sha256(server, upload_id) == SHA256


@pytest.mark.parametrize(
    ("told", "body", "is_last"),
    [("5", b"123456", True), ("7", b"123456", True), ("5", b"123456", False)],
    ids=["too short", "too long", "overrun"],
)
def test_lengths_that_contradict_each_other_create_nothing(
    server: Server, told: str, body: bytes, is_last: bool
) -> None:
    answer = create(server, body, is_last=is_last, Upload_Length=told)
    assert (answer.status, answer.headers["upload-complete"]) == (400, "?0")
    assert answer.json()["type"] == PROBLEMS + "inconsistent-upload-length"
    assert "location" not in answer.headers


@pytest.mark.parametrize(
    ("headers", "body", "is_last"),
    [
        ({"Upload_Length": "29999"}, b"", False),
        ({}, FILE[100:20_000], True),
        ({}, FILE[100:] + b"more", False),
        ({"Transfer_Encoding": "chunked"}, FILE[100:20_000], True),
    ],
    ids=["another length", "too few bytes", "too many", "chunked and too few"],
)
def test_lengths_that_contradict_the_upload_are_refused_and_it_can_resume(
    server: Server, headers: dict[str, str], body: bytes, is_last: bool
) -> None:
    upload_id = create(server, FILE[:100], Upload_Length="30000").upload_id
    answer = append(server, upload_id, 100, body, is_last=is_last, **headers)
    assert answer.status == 400
    assert answer.json()["type"] == PROBLEMS + "inconsistent-upload-length"
    offset = int(answer.headers["upload-offset"])
    assert look(server, upload_id).headers["upload-offset"] == str(offset)
    assert append(server, upload_id, offset, FILE[offset:], is_last=True).status == 200
    assert stored_sha256(server, upload_id) == SHA256


def test_a_body_that_runs_past_the_length_ends_the_upload(server: Server) -> None:
    upload_id = create(server, FILE[:100], Upload_Length="30000").upload_id
    overlong = FILE[100:] + b"more"
    answer = append(server, upload_id, 100, overlong, is_last=True, Transfer_Encoding="chunked")
    assert (answer.status, answer.headers["upload-complete"]) == (400, "?1")
    assert answer.json()["type"] == PROBLEMS + "inconsistent-upload-length"
    assert look(server, upload_id).status == 410
    assert server.get(f"/media/{upload_id}").status_code == 410


@pytest.mark.parametrize("content_type", ["", "application/octet-stream", "video/mp4"])
def test_an_append_must_have_the_append_media_type(server: Server, content_type: str) -> None:
    upload_id = create(server).upload_id
    answer = append(server, upload_id, 0, FILE, is_last=True, Content_Type=content_type)
    assert answer.status == 415
    assert answer.headers["accept-patch"] == "application/partial-upload"
    assert look(server, upload_id).headers["upload-offset"] == "0"


def test_parameters_of_the_content_type_do_not_matter(server: Server) -> None:
    upload_id = create(server).upload_id
    label = "Application/Partial-Upload; version=1"
    assert append(server, upload_id, 0, FILE, is_last=True, Content_Type=label).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Upload_Complete": "true"},
        {"Upload_Complete": "1"},
        {"Upload_Complete": "?2"},
        {"Upload_Complete": "?0, ?0"},
        {"Upload_Complete": "?0", "Upload_Offset": "5"},
        {"Upload_Complete": "?0", "Repr_Digest": "sha-256=:AAAA:"},
        {"Upload_Complete": "?0", "Repr_Digest": "sha-256=abc, ="},
        {"Upload_Complete": "?1", "Want_Repr_Digest": "sha-256=much"},
        {"Upload_Complete": "?1", "Content_Digest": "sha-256=:AAAA:"},
    ],
    ids=str,
)
def test_a_creation_with_missing_or_malformed_headers_is_refused(
    server: Server, headers: dict[str, str]
) -> None:
    answer = send(server, "POST", body=b"bytes", **headers)
    assert (answer.status, answer.json()["code"]) == (400, "malformed_request")
    assert "location" not in answer.headers


@pytest.mark.parametrize(
    "headers",
    [
        {"Upload_Complete": "?0"},
        {"Upload_Offset": "0"},
        {"Upload_Complete": "?0", "Upload_Offset": "-1"},
        {"Upload_Complete": "?0", "Upload_Offset": "abc"},
        {"Upload_Complete": "no", "Upload_Offset": "0"},
    ],
    ids=str,
)
def test_an_append_with_missing_or_malformed_headers_is_refused(
    server: Server, headers: dict[str, str]
) -> None:
    path = f"/resumable/{create(server).upload_id}"
    label = {"Content_Type": "application/partial-upload"}
    assert send(server, "PATCH", path, b"bytes", **label, **headers).status == 400
    assert send(server, "HEAD", path).headers["upload-offset"] == "0"


@pytest.mark.parametrize(
    ("disposition", "content_type", "name"),
    [
        ('inline; filename="holiday film.mp4"', "video/mp4", "holiday film.mp4"),
        ("attachment; filename*=UTF-8''%C3%9Cbung.mp4; filename=\"exercise.mp4\"", "", "Übung.mp4"),
        ("form-data; filename=\"exercise.mp4\"; filename*=UTF-8''%C3%9Cbung.mp4", "", "Übung.mp4"),
        ('inline; filename="\xc3\x9cbung.mp4"', "", "Übung.mp4"),
        ('inline; filename="../../etc/passwd"', "", "etc/passwd"),
        ("inline", "video/mp4", "unnamed.mp4"),
        ("", "video/quicktime", "unnamed.mov"),
        ("", "", "unnamed"),
    ],
)
def test_the_file_is_named_by_its_content_disposition(
    server: Server, disposition: str, content_type: str, name: str
) -> None:
    described = {"Content_Disposition": disposition, "Content_Type": content_type}
    told = {"Upload_Complete": "?0", **described}
    headers = {key: value for key, value in told.items() if value}
    created = send_request(server, "POST", "/resumable/", b"", headers)
    assert created.json()["filename"] == name


@pytest.mark.parametrize("fields", [{"Upload_Length": "5"}, {}])
@pytest.mark.parametrize("offset", [6, 2**40 + 1, 10**15 - 1])
def test_an_offset_beyond_every_limit_is_a_conflict(
    server: Server, fields: dict[str, str], offset: int
) -> None:
    created = create(server, b"by", is_last=False, **fields)
    answer = append(server, created.upload_id, offset, b"tes", is_last=True)
    assert (answer.status, answer.headers["upload-offset"]) == (409, "2")
    assert answer.headers["upload-complete"] == "?0"
    assert answer.json()["expected-offset"] == 2
