"""Several videos as one ZIP file."""

from __future__ import annotations

import io
import socket
import time
import zipfile
from pathlib import Path

import psutil
import pytest
import requests

from app.deliver.archive import distinct_names
from tests.dropzone_client import form_body, form_headers, random_bytes
from tests.live_server import Server

MIB = 1024 * 1024


def store(server: Server, name: str, content: bytes) -> str:
    body = form_body({}, [(name, content)])
    answer = server.post("/upload", data=body, headers=form_headers()).json()
    upload_id: str = answer["id"]
    return upload_id


def fetch(server: Server, *ids: str, **options: object) -> requests.Response:
    return server.post("/media/archive", data={"id": ids}, **options)


def test_an_archive_has_every_file_as_it_is(server: Server) -> None:
    files = {"film.mp4": random_bytes(3 * MIB, 1), "Ferien/été 🎬.mp4": b"x", "empty.mov": b""}
    ids = [store(server, name, content) for name, content in files.items()]
    answer = fetch(server, *ids)
    assert answer.status_code == 200
    assert int(answer.headers["Content-Length"]) == len(answer.content)
    assert answer.headers["Content-Type"] == "application/zip"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="3 videos.zip"'
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == files


def test_the_same_id_twice_is_one_file_and_the_same_name_twice_are_two(server: Server) -> None:
    one, other = store(server, "same.mp4", b"one"), store(server, "Same.mp4", b"other")
    answer = fetch(server, one, other, one)
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.namelist() == ["same.mp4", "Same (2).mp4"]
        assert archive.read("Same (2).mp4") == b"other"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a", "a", "A"], ["a", "a (2)", "A (3)"]),
        (["a.b.mp4", "a.b.mp4", "a.b (2).mp4"], ["a.b.mp4", "a.b (2).mp4", "a.b (2) (2).mp4"]),
        (["x/a", "x/a", "y/a"], ["x/a", "x/a (2)", "y/a"]),
        (["x", "x/a", "X/a"], ["x", "x-a", "X-a (2)"]),
        (["x/a", "x"], ["x/a", "x (2)"]),
        # On Windows these would be absolute, or on another drive.
        (["C:/x.mp4", "c:x.mp4", "C_/x.mp4"], ["C_/x.mp4", "c_x.mp4", "C_/x (2).mp4"]),
        (["ab:c.mp4", "x/C:/y"], ["ab:c.mp4", "x/C:/y"]),
    ],
)
def test_no_file_takes_the_place_of_another(names: list[str], expected: list[str]) -> None:
    assert list(distinct_names(names)) == expected


@pytest.mark.parametrize(
    "form",
    [b"", b"id=", b"other=1", b"\xff", b"&".join([b"id=" + b"0" * 32] * 1001), b"id=%00&" * 1001],
)
def test_a_form_without_videos_or_with_too_many_is_refused(server: Server, form: bytes) -> None:
    answer = server.post("/media/archive", data=form)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_request")


def test_unknown_and_deleted_videos_are_told_before_the_first_byte(server: Server) -> None:
    kept, gone = store(server, "kept.mp4", b"1"), store(server, "gone.mp4", b"2")
    server.delete(f"/api/videos/{gone}")
    assert fetch(server, kept, gone).status_code == 410
    assert fetch(server, kept, "0" * 32).status_code == 404
    assert fetch(server, kept, "../" + kept).status_code == 404


def test_a_video_that_is_deleted_in_the_middle_breaks_the_connection(server: Server) -> None:
    ids = [store(server, f"film-{n}.mp4", random_bytes(16 * MIB, n)) for n in range(2)]
    with fetch(server, *ids, stream=True) as answer:
        length = int(answer.headers["Content-Length"])
        received = len(answer.raw.read(MIB))
        server.delete(f"/api/videos/{ids[1]}")
        with pytest.raises(requests.exceptions.ChunkedEncodingError, match="IncompleteRead"):
            received += sum(map(len, answer.iter_content(MIB)))
        assert received < length
    assert server.get("/healthz").status_code == 200
    assert fetch(server, ids[0]).status_code == 200


def test_a_client_that_leaves_frees_its_thread_and_files(server: Server) -> None:
    upload_id = store(server, "film.mp4", random_bytes(16 * MIB))
    form = f"id={upload_id}".encode()
    head = f"POST /media/archive HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(form)}\r\n\r\n"
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(head.encode() + form)
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    path = str(server.library / upload_id)
    deadline = time.monotonic() + 60
    while any(path in opened(worker) for worker in server.web_workers()):
        assert time.monotonic() < deadline, "a file stays open"
        time.sleep(0.1)


def opened(process: psutil.Process) -> list[str]:
    try:
        return [file.path for file in process.open_files()]
    except psutil.Error:
        return []


def test_memory_does_not_grow_with_the_archive(server: Server, tmp_path: Path) -> None:
    content = random_bytes(32 * MIB)
    ids = [store(server, f"large-{n}.mp4", content) for n in range(3)]
    before = memory(server)
    with fetch(server, *ids, stream=True) as answer, (tmp_path / "a.zip").open("wb") as file:
        for block in answer.iter_content(MIB):
            file.write(block)
        after = memory(server)
    assert after - before < 32 * MIB
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert [info.file_size for info in archive.infolist()] == [32 * MIB] * 3


def memory(server: Server) -> int:
    return sum(worker.memory_info().rss for worker in server.web_workers())
