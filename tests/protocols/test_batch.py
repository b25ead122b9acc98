"""POST /batch: many whole files in one request."""

from __future__ import annotations

import hashlib
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.dropzone_client import (
    BOUNDARY,
    ChunkedFile,
    form_body,
    form_headers,
    random_bytes,
    read_json,
    request_bytes,
    send_all,
)
from tests.live_server import Server
from tests.long_tests import long


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


@pytest.mark.parametrize(
    ("fields", "headers"),
    [({"chunk": "0", "chunks": "3"}, {}), ({}, {"Content-Range": "bytes 0-4/20"})],
)
def test_a_chunk_of_a_larger_file_is_refused(
    server: Server, fields: dict[str, str], headers: dict[str, str]
) -> None:
    body = form_body(fields, [("a.mp4", b"chunk")])
    response = server.post("/batch", data=body, headers={**form_headers(), **headers})
    assert (response.status_code, response.json()["code"]) == (400, "unknown_chunk_fields")


def test_one_bad_file_does_not_affect_the_rest(server: Server) -> None:
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
    assert (problem["stored"], problem["refused"], len(problem["files"])) == (1, 0, 1)
    assert server.get(problem["files"][0]["media"]).content == b"w" * 1000
    names = [video["filename"] for video in server.get("/api/videos?limit=5").json()["videos"]]
    assert names[0] == "whole.mp4"
    assert "broken.mp4" not in names
    assert set(server.staging.iterdir()) == staged


def test_a_file_sent_again_with_its_fingerprint_is_stored_once(server: Server) -> None:
    body = fingerprinted_body(
        [("print-a", "print a.mp4", b"one"), ("print-b", "print b.mp4", b"two")]
    )
    first = server.post("/batch", data=body, headers=form_headers()).json()
    again = server.post("/batch", data=body, headers=form_headers()).json()
    assert ids(again) == ids(first)
    assert ["known" in receipt for receipt in first["files"]] == [False, False]
    assert [receipt["known"] for receipt in again["files"]] == [True, True]
    assert names_of(server, "print ") == ["print b.mp4", "print a.mp4"]
    assert server.get(again["files"][1]["media"]).content == b"two"


def test_identical_files_in_one_batch_are_stored_once(server: Server) -> None:
    twin = ("twin", "twin.mp4", b"same bytes")
    answer = server.post(
        "/batch", data=fingerprinted_body([twin, twin, twin]), headers=form_headers()
    ).json()
    assert len(set(ids(answer))) == 1
    assert names_of(server, "twin.mp4") == ["twin.mp4"]


def test_one_fingerprint_with_two_lengths_is_two_files(server: Server) -> None:
    body = fingerprinted_body([("grown", "g.mp4", b"short"), ("grown", "g.mp4", b"longer")])
    answer = server.post("/batch", data=body, headers=form_headers()).json()
    assert len(set(ids(answer))) == 2


def test_the_same_batch_twice_at_once_stores_each_file_once(server: Server) -> None:
    files = [(f"race-{n}", f"race {n}.mp4", random_bytes(20_000, n)) for n in range(150)]
    body = fingerprinted_body(files)

    def send(_: int) -> list[str]:
        return ids(server.post("/batch", data=body, headers=form_headers()).json())

    with ThreadPoolExecutor(4) as pool:
        first, *others = pool.map(send, range(4))
    assert all(other == first for other in others)
    assert len(names_of(server, "race ")) == 150


def test_a_deleted_file_can_be_sent_again_and_again(server: Server) -> None:
    body = fingerprinted_body([("back", "back.mp4", b"back again")])
    seen = set()
    for _ in range(3):
        (upload_id,) = ids(server.post("/batch", data=body, headers=form_headers()).json())
        assert server.get(f"/media/{upload_id}").content == b"back again"
        server.delete(f"/api/videos/{upload_id}")
        seen.add(upload_id)
    assert len(seen) == 3


def test_a_file_uploaded_in_chunks_is_not_stored_again(server: Server) -> None:
    new = {"name": "chunky.mp4", "size": 5, "fingerprint": "chunky"}
    upload_id = server.post("/api/uploads", json=new).json()["id"]
    send_all(server, ChunkedFile(b"12345", 5, key=upload_id))
    body = fingerprinted_body([("chunky", "chunky.mp4", b"12345")])
    assert ids(server.post("/batch", data=body, headers=form_headers()).json()) == [upload_id]


def test_a_file_of_known_length_may_contain_any_bytes(server: Server) -> None:
    delimiter = f"\r\n--{BOUNDARY}\r\n".encode()
    contents = [delimiter * 3, b"", random_bytes(3_000_000, 7), delimiter[:-1], b"x"]
    parts = [({"length": str(len(content))}, "told.mp4", content) for content in contents]
    answer = server.post("/batch", data=body_of(parts), headers=form_headers()).json()
    assert answer["stored"] == len(contents)
    for content, receipt in zip(contents, answer["files"], strict=True):
        assert receipt["sha256"] == hashlib.sha256(content).hexdigest()
        assert server.get(receipt["media"]).content == content


@pytest.mark.parametrize(
    ("length", "code"),
    [("4", "malformed_body"), ("6", "malformed_body"), ("999", "chunk_mismatch")],
)
def test_a_wrong_length_ends_the_batch_and_keeps_earlier_files(
    server: Server, length: str, code: str
) -> None:
    before = f"before {length}.mp4"
    parts = [({"length": "5"}, before, b"right"), ({"length": length}, "wrong.mp4", b"wrong")]
    response = server.post("/batch", data=body_of(parts), headers=form_headers())
    assert (response.status_code, response.json()["code"]) == (400, code)
    assert [receipt["name"] for receipt in response.json()["files"]] == [before]
    assert names_of(server, before) == [before]
    assert names_of(server, "wrong") == []


def test_a_client_that_prefers_html_gets_the_receipts_too(server: Server) -> None:
    """The answer to a successful batch is JSON for everyone too."""
    parts = [({"length": "5"}, "page.mp4", b"right"), ({"length": "4"}, "wrong.mp4", b"wrong")]
    headers = {**form_headers(), "Accept": "text/html"}
    response = server.post("/batch", data=body_of(parts), headers=headers)
    assert (response.status_code, response.json()["code"]) == (400, "malformed_body")
    assert response.headers["Content-Type"] == "application/problem+json"
    assert [receipt["name"] for receipt in response.json()["files"]] == ["page.mp4"]


@pytest.mark.parametrize("length", ["", "-5", "5.0", "five", "9" * 19])
def test_an_invalid_length_refuses_only_its_own_file(server: Server, length: str) -> None:
    parts = [({"length": length}, "odd.mp4", b"what?"), ({}, "fine.mp4", b"fine")]
    answer = server.post("/batch", data=body_of(parts), headers=form_headers()).json()
    assert (answer["stored"], answer["refused"]) == (1, 1)
    assert answer["files"][0]["error"]["code"] == "malformed_request"
    assert server.get(answer["files"][1]["media"]).content == b"fine"


def test_a_refused_file_of_known_length_is_skipped(server: Server) -> None:
    content = random_bytes(2_000_000, 8)
    parts = [({"length": "2000000"}, "x" * 2000, content), ({"length": "4"}, "b.mp4", b"next")]
    answer = server.post("/batch", data=body_of(parts), headers=form_headers()).json()
    assert (answer["stored"], answer["refused"]) == (1, 1)
    assert server.get(answer["files"][1]["media"]).content == b"next"


def test_the_fields_of_a_part_without_a_file_are_not_those_of_the_next(server: Server) -> None:
    parts = [({"length": "0", "fingerprint": "nothing"}, "", b""), ({}, "some.mp4", b"some")]
    answer = server.post("/batch", data=body_of(parts), headers=form_headers()).json()
    assert answer["stored"] == 1
    assert server.get(answer["files"][0]["media"]).content == b"some"


def test_each_of_many_files_can_have_both_of_its_fields(server: Server) -> None:
    parts = [
        ({"fingerprint": f"both {number}", "length": "1"}, f"both {number}.mp4", b"1")
        for number in range(1100)
    ]
    answer = server.post("/batch", data=body_of(parts), headers=form_headers()).json()
    assert answer["stored"] == 1100


def test_a_malformed_fingerprint_refuses_only_its_own_file(server: Server) -> None:
    files = [("x" * 201, "a.mp4", b"a"), ("fine", "b.mp4", b"b")]
    answer = server.post("/batch", data=fingerprinted_body(files), headers=form_headers()).json()
    assert (answer["stored"], answer["refused"]) == (1, 1)
    assert answer["files"][0]["error"]["code"] == "malformed_request"


def test_files_of_one_batch_are_listed_as_if_sent_one_by_one(server: Server) -> None:
    files = [(f"order {number:03}.mp4", b"%d" % number) for number in range(100)]
    server.post("/batch", data=form_body({}, files), headers=form_headers())
    assert names_of(server, "order ") == [name for name, _ in reversed(files)]


def test_a_killed_batch_keeps_its_complete_groups(
    start_server: Callable[..., Server],
) -> None:
    server = start_server()
    files = [(f"{number}.mp4", random_bytes(50_000, number)) for number in range(128)]
    body = form_body({}, [*files, ("cut.mp4", b"c" * 1_000_000)])
    request = request_bytes(server, "/batch", body, Content_Type=form_headers()["Content-Type"])
    with server.connect() as connection:
        connection.sendall(request[:-500_000])
        deadline = time.monotonic() + 60
        while len(names_of(server, "")) < 128 and time.monotonic() < deadline:
            time.sleep(0.05)
        server.restart(signal.SIGKILL)
    assert sorted(names_of(server, "")) == sorted(name for name, _ in files)
    for name, media in media_of(server):
        assert server.get(media).content == dict(files)[name]


def test_an_empty_batch_has_no_receipts(server: Server) -> None:
    answer = server.post("/batch", data=form_body({}, []), headers=form_headers()).json()
    assert answer == {"stored": 0, "refused": 0, "files": []}


@pytest.mark.parametrize("count", [1_000, *long([10_000])])
def test_ten_thousand_files_fit_in_one_request(server: Server, count: int) -> None:
    files = [(f"{number}.mp4", b"%d" % number) for number in range(count)]
    body = form_body({}, files)
    answer = server.post("/batch", data=body, headers=form_headers()).json()
    assert answer["stored"] == count
    assert server.get(answer["files"][count - 1]["media"]).content == b"%d" % (count - 1)


def fingerprinted_body(files: list[tuple[str, str, bytes]]) -> bytes:
    """A form of files, each preceded by its fingerprint."""
    return body_of([({"fingerprint": text}, name, content) for text, name, content in files])


def body_of(files: list[tuple[dict[str, str], str, bytes]]) -> bytes:
    """A form of files, each preceded by its own fields."""
    end = f"--{BOUNDARY}--\r\n".encode()
    parts = (form_body(fields, [(name, content)]) for fields, name, content in files)
    return b"".join(part.removesuffix(end) for part in parts) + end


def ids(answer: dict[str, Any]) -> list[str]:
    return [receipt["id"] for receipt in answer["files"]]


def media_of(server: Server) -> Iterator[tuple[str, str]]:
    """Name and path of each video, newest first."""
    query: dict[str, str] | None = {"limit": "200"}
    while query:
        page = server.get("/api/videos", params=query).json()
        yield from ((video["filename"], video["media"]) for video in page["videos"])
        query = {"limit": "200", "cursor": page["next"]} if page["next"] else None


def names_of(server: Server, beginning: str) -> list[str]:
    return [name for name, _ in media_of(server) if name.startswith(beginning)]
