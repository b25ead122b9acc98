"""POST /batch: many whole files in one request."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from tests.dropzone_client import form_body, form_headers, random_bytes, read_json, request_bytes
from tests.server import Server


def test_every_file_gets_a_receipt_in_order(server: Server) -> None:
    files = [(f"clips/{number}.mp4", random_bytes(number * 997, number)) for number in range(200)]
    response = server.post("/batch", data=form_body({}, files), headers=form_headers())
    answer = response.json()
    assert response.status_code == 200
    assert (answer["stored"], answer["refused"]) == (200, 0)
    for (name, content), receipt in zip(files, answer["files"], strict=True):
        assert receipt["name"] == name
        assert receipt["length"] == len(content)
        assert receipt["sha256"] == hashlib.sha256(content).hexdigest()
    for receipt in answer["files"][::40]:
        stored = server.get(receipt["media"]).content
        assert hashlib.sha256(stored).hexdigest() == receipt["sha256"]


def test_one_bad_file_does_not_spoil_the_rest(server: Server) -> None:
    files = [("a.mp4", b"first"), ("x" * 2000, b"refused" * 1000), ("b.mp4", b"second")]
    answer = server.post("/batch", data=form_body({}, files), headers=form_headers()).json()
    assert (answer["stored"], answer["refused"]) == (2, 1)
    first, refused, second = answer["files"]
    assert refused["error"]["code"] == "malformed_request"
    assert server.get(first["media"]).content == b"first"
    assert server.get(second["media"]).content == b"second"


def test_a_batch_that_breaks_off_keeps_its_whole_files_and_nothing_of_the_rest(
    server: Server,
) -> None:
    files = [("whole.mp4", b"w" * 1000), ("broken.mp4", b"b" * 100_000)]
    body = form_body({}, files)
    request = request_bytes(server, "/batch", body, Content_Type=form_headers()["Content-Type"])
    staged = set(server.staging.iterdir())
    with server.connect() as connection:
        connection.sendall(request[:-50_000])
        connection.shutdown(1)
        status, problem = read_json(connection)
    assert (status, problem["code"]) == (400, "body_truncated")
    names = [video["filename"] for video in server.get("/api/videos?limit=5").json()["videos"]]
    assert names[0] == "whole.mp4"
    assert "broken.mp4" not in names
    assert set(server.staging.iterdir()) == staged


def test_a_batch_of_nothing_is_empty(server: Server) -> None:
    answer = server.post("/batch", data=form_body({}, []), headers=form_headers()).json()
    assert answer == {"stored": 0, "refused": 0, "files": []}


def test_ten_thousand_files_fit_in_one_request(start_server: Callable[..., Server]) -> None:
    server = start_server(SLUICE_DURABILITY="none")
    files = [(f"{number}.mp4", b"%d" % number) for number in range(10_000)]
    body = form_body({}, files)
    answer = server.post("/batch", data=body, headers=form_headers()).json()
    assert answer["stored"] == 10_000
    assert server.get(answer["files"][9_999]["media"]).content == b"9999"
