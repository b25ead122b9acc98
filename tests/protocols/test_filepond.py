"""/filepond over real connections to a real server."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
import requests

from tests.dropzone_client import (
    form_body,
    form_headers,
    random_bytes,
    read_response,
    stored_sha256,
)
from tests.live_server import Server

CHUNK_TYPE = "application/offset+octet-stream"


def begin(server: Server, length: int, **headers: str) -> str:
    """POST before the first chunk: a form with only what the page says about the file."""
    response = server.post(
        "/filepond",
        data=form_body({"filepond": "{}"}, []),
        headers={**form_headers(), "Upload-Length": str(length), **headers},
    )
    assert response.status_code == 201, response.text
    assert response.headers["Content-Type"].startswith("text/plain")
    return response.text


def send(server: Server, upload_id: str, content: bytes, offset: int, end: int) -> Any:
    """PATCH with a chunk of `content`."""
    headers = {
        "Content-Type": CHUNK_TYPE,
        "Upload-Offset": str(offset),
        "Upload-Length": str(len(content)),
        "Upload-Name": "film.mp4",
    }
    url = f"{server.url}/filepond?patch={upload_id}"
    return requests.patch(url, data=content[offset:end], headers=headers, timeout=60)


def offset_of(server: Server, upload_id: str) -> str:
    """The offset that HEAD returns."""
    response = requests.head(f"{server.url}/filepond?patch={upload_id}", timeout=60)
    assert response.status_code == 200
    assert response.headers["Cache-Control"] == "no-store"
    return response.headers["Upload-Offset"]


def revert(server: Server, upload_id: str | bytes) -> requests.Response:
    """DELETE with the id as body."""
    return server.delete("/filepond", data=upload_id, headers={"Content-Type": "text/plain"})


def test_a_whole_file_in_a_form_gets_its_id(server: Server) -> None:
    content = random_bytes(1_000_003)
    body = form_body({"filepond": '{"album": 7}'}, [("whole.mp4", content)])
    response = server.post("/filepond", data=body, headers=form_headers())
    assert response.status_code == 201
    assert server.get(f"/api/videos/{response.text}").json()["filename"] == "whole.mp4"
    assert stored_sha256(server, response.text) == hashlib.sha256(content).hexdigest()


def test_a_whole_file_is_whole_even_if_the_page_sends_its_length(server: Server) -> None:
    body = form_body({}, [("whole.mp4", b"content")])
    headers = {**form_headers(), "Upload-Length": "7"}
    upload_id = server.post("/filepond", data=body, headers=headers).text
    assert server.get(f"/media/{upload_id}").content == b"content"


def test_a_form_of_two_files_is_refused_as_only_one_can_have_the_id(server: Server) -> None:
    before = newest_video(server)
    staged = sorted(server.staging.iterdir())
    body = form_body({}, [("one.mp4", b"first"), ("two.mp4", b"second")])
    response = server.post("/filepond", data=body, headers=form_headers())
    assert (response.status_code, response.json()["code"]) == (400, "malformed_request")
    assert newest_video(server) == before
    assert sorted(server.staging.iterdir()) == staged


def newest_video(server: Server) -> list[str]:
    return [video["id"] for video in server.get("/api/videos?limit=1").json()["videos"]]


def test_chunks_make_the_file_under_its_first_name_and_id(server: Server) -> None:
    content = random_bytes(2_500_000, 1)
    upload_id = begin(server, len(content), **{"Upload-Name": "film.mp4"})
    for offset in range(
        0, 2_500_001, 500_000
    ):  # FilePond adds an empty chunk if the length is a multiple of the chunk size.
        response = send(server, upload_id, content, offset, offset + 500_000)
        assert response.status_code == 204, response.text
        assert response.headers["Upload-Offset"] == str(min(offset + 500_000, 2_500_000))
    assert server.get(f"/api/videos/{upload_id}").json()["filename"] == "film.mp4"
    assert stored_sha256(server, upload_id) == hashlib.sha256(content).hexdigest()


def test_a_name_sent_only_with_the_first_chunk_is_kept(server: Server) -> None:
    upload_id = begin(server, 4)
    assert server.get(f"/api/uploads/{upload_id}").json()["filename"] == "unnamed"
    send(server, upload_id, b"abcd", 0, 2)
    assert server.get(f"/api/uploads/{upload_id}").json()["filename"] == "film.mp4"
    send(server, upload_id, b"abcd", 2, 4)
    assert server.get(f"/api/videos/{upload_id}").json()["filename"] == "film.mp4"


def test_a_refused_type_is_refused_with_the_first_chunk(
    start_server: Callable[..., Server],
) -> None:
    server = start_server(SLUICE_ALLOWED_EXTENSIONS="mov")
    upload_id = begin(server, 4)
    response = send(server, upload_id, b"abcd", 0, 4)
    assert (response.status_code, response.json()["code"]) == (415, "type_not_allowed")
    url, headers = f"{server.url}/filepond?patch={upload_id}", {"Upload-Offset": "0"}
    nameless = requests.patch(url, data=b"abcd", headers=headers, timeout=60)
    assert nameless.status_code == 415
    assert offset_of(server, upload_id) == "0"


def test_an_empty_file_is_one_empty_chunk(server: Server) -> None:
    upload_id = begin(server, 0)
    assert send(server, upload_id, b"", 0, 0).status_code == 204
    assert server.get(f"/media/{upload_id}").content == b""


def test_head_returns_the_offset_of_the_upload(server: Server) -> None:
    content = random_bytes(3000)
    upload_id = begin(server, 3000)
    assert offset_of(server, upload_id) == "0"
    send(server, upload_id, content, 0, 1000)
    assert offset_of(server, upload_id) == "1000"
    send(server, upload_id, content, 1000, 3000)
    assert offset_of(server, upload_id) == "3000"


def test_a_chunk_sent_again_from_its_start_is_accepted(server: Server) -> None:
    content = random_bytes(3000)
    upload_id = begin(server, 3000)
    for start, end in ((0, 1000), (0, 1000), (1000, 2000), (0, 1000), (2000, 3000)):
        assert send(server, upload_id, content, start, end).status_code == 204
    assert stored_sha256(server, upload_id) == hashlib.sha256(content).hexdigest()


def test_a_chunk_that_breaks_off_does_not_move_the_offset_into_it(server: Server) -> None:
    """The client skips chunks that begin before the offset; this one would be lost."""
    content = random_bytes(30_000_000, 2)
    upload_id = begin(server, len(content))
    send(server, upload_id, content, 0, 10_000_000)
    head = (
        f"PATCH /filepond?patch={upload_id} HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: {CHUNK_TYPE}\r\n"
        f"Content-Length: 10000000\r\nUpload-Offset: 10000000\r\nUpload-Length: 30000000\r\n\r\n"
    )
    with server.connect() as connection:
        connection.sendall(head.encode() + content[10_000_000:19_000_000])
        connection.shutdown(1)
        assert read_response(connection)[0] == 400
    assert offset_of(server, upload_id) == "10000000"
    for start in (10_000_000, 20_000_000):
        assert send(server, upload_id, content, start, start + 10_000_000).status_code == 204
    assert stored_sha256(server, upload_id) == hashlib.sha256(content).hexdigest()


def test_load_and_restore_lead_to_the_file_with_its_name(server: Server) -> None:
    body = form_body({}, [("named.mp4", b"content")])
    upload_id = server.post("/filepond", data=body, headers=form_headers()).text
    for parameter in ("load", "restore"):
        response = server.get(f"/filepond?{parameter}={upload_id}")
        assert (response.status_code, response.content) == (200, b"content")
        assert "named.mp4" in response.headers["Content-Disposition"]


def test_an_unfinished_upload_cannot_be_loaded(server: Server) -> None:
    assert server.get(f"/filepond?load={begin(server, 10)}").status_code == 404


def test_no_file_is_fetched_from_another_server(server: Server) -> None:
    response = server.get("/filepond", params={"fetch": f"{server.url}/healthz"})
    assert (response.status_code, response.json()["code"]) == (400, "malformed_request")


def test_revert_cancels_an_upload_and_deletes_a_video(server: Server) -> None:
    upload_id = begin(server, 10)
    assert revert(server, upload_id).status_code == 204
    assert server.get(f"/api/uploads/{upload_id}").status_code == 410
    body = form_body({}, [("gone.mp4", b"content")])
    video_id = server.post("/filepond", data=body, headers=form_headers()).text
    assert revert(server, video_id).status_code == 204
    assert server.get(f"/media/{video_id}").status_code == 410
    assert revert(server, video_id).status_code == 410


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({}, 400, "malformed_request"),
        ({"Upload-Offset": "-1"}, 400, "malformed_request"),
        ({"Upload-Offset": "1e3"}, 400, "malformed_request"),
        ({"Upload-Offset": "0", "Upload-Length": "ten"}, 400, "malformed_request"),
        ({"Upload-Offset": "0", "Upload-Length": "11"}, 409, "upload_conflict"),
        ({"Upload-Offset": "8"}, 400, "chunk_mismatch"),
    ],
)
def test_a_chunk_with_wrong_headers_is_refused(
    server: Server, headers: dict[str, str], status: int, code: str
) -> None:
    upload_id = begin(server, 10)
    url = f"{server.url}/filepond?patch={upload_id}"
    response = requests.patch(url, data=b"abcd", headers=headers, timeout=60)
    assert (response.status_code, response.json()["code"]) == (status, code), response.text
    assert offset_of(server, upload_id) == "0"


@pytest.mark.parametrize("length", ["", "-1", "ten"])
def test_a_malformed_length_creates_no_upload(server: Server, length: str) -> None:
    response = server.post("/filepond", headers={"Upload-Length": length})
    assert (response.status_code, response.json()["code"]) == (400, "malformed_request")


def test_a_file_beyond_the_limit_is_refused_before_it_is_sent(server: Server) -> None:
    response = server.post("/filepond", headers={"Upload-Length": str(10**15)})
    assert (response.status_code, response.json()["code"]) == (413, "too_large")


@pytest.mark.parametrize("given", ["", "0" * 32, "../../etc/passwd", "\x00", "é"])
def test_an_invalid_id_is_not_found(server: Server, given: str) -> None:
    response = requests.head(f"{server.url}/filepond", params={"patch": given}, timeout=60)
    assert response.status_code == 404
    assert revert(server, given.encode()).status_code == 404
    assert requests.head(f"{server.url}/filepond", timeout=60).status_code == 400


def test_names_keep_all_their_characters(server: Server) -> None:
    name = "Ünïcode 影片.mp4".encode().decode("latin-1")
    upload_id = begin(server, 1, **{"Upload-Name": name})
    assert server.get(f"/api/uploads/{upload_id}").json()["filename"] == "Ünïcode 影片.mp4"


def test_the_form_before_the_chunks_leaves_the_connection_usable(server: Server) -> None:
    with requests.Session() as session:
        for _ in range(3):
            response = session.post(
                f"{server.url}/filepond",
                data=form_body({"filepond": "x" * 5000}, []),
                headers={**form_headers(), "Upload-Length": "5"},
                timeout=60,
            )
            assert response.status_code == 201
        assert session.get(f"{server.url}/healthz", timeout=60).status_code == 200
