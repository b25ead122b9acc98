"""Uploads over broken connections, with the Python library."""

from __future__ import annotations

import hashlib
import io
import os
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import pytest

from sluice_client import (
    Client,
    ContentMismatch,
    FileChanged,
    Interrupted,
    Phase,
    Progress,
    Refused,
    ServerUnreachable,
)
from sluice_client.local_file import LocalFile
from tests.client.bad_line import BadLine, Line, Request, sometimes
from tests.client.conftest import MakeFile
from tests.dropzone_client import forged, stored_sha256
from tests.live_server import Server

MakeClient = Callable[..., Client]
KIB = 1024
MIB = 1024 * 1024

pytestmark = pytest.mark.e2e


def assert_same(server: Server, upload_id: str, path: Path) -> None:
    assert stored_sha256(server, upload_id) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_file_arrives_whole_and_is_verified(
    server: Server, make_client: MakeClient, make_file: MakeFile
) -> None:
    path = make_file(size=5_000_001)
    uploaded = make_client(server.url, chunk_bytes=MIB).upload(path)
    assert (uploaded.is_verified, uploaded.length, uploaded.sent) == (True, 5_000_001, 5_000_001)
    assert_same(server, uploaded.id, path)


@pytest.mark.parametrize("size", [0, 1, MIB, MIB + 1])
def test_every_size_arrives(
    server: Server, make_client: MakeClient, make_file: MakeFile, size: int
) -> None:
    path = make_file(size=size)
    uploaded = make_client(server.url, chunk_bytes=MIB).upload(path)
    assert_same(server, uploaded.id, path)


def test_a_stored_file_is_not_sent_again(
    line: BadLine, make_client: MakeClient, make_file: MakeFile
) -> None:
    client, path = make_client(line.url), make_file()
    first = client.upload(path)
    line.heal()
    again = client.upload(path)
    assert (again.id, again.crc32c, again.sent) == (first.id, first.crc32c, 0)
    assert line.sent() == 0


def test_a_file_that_only_looks_the_same_is_another_upload(
    server: Server, make_client: MakeClient, make_file: MakeFile
) -> None:
    client, path = make_client(server.url), make_file(size=4_000_000)
    facts = path.stat()
    first = client.upload(path)
    with path.open("r+b") as file:
        file.seek(300_000)  # Between the bytes that the fingerprint samples.
        file.write(b"other bytes")
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    second = client.upload(path)
    assert second.id != first.id
    assert_same(server, second.id, path)


def test_bytes_that_this_run_has_not_sent_are_compared_by_sha256(
    server: Server, make_client: MakeClient, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may have sent them under the fingerprint that it gives to look-alikes."""
    client, path = make_client(server.url), make_file()
    content = path.read_bytes()
    name = f"client1-{len(content)}-{hashlib.sha256(content).hexdigest()}"
    monkeypatch.setattr(LocalFile, "fingerprint", lambda *_: name)
    path.write_bytes(forged(content, 300_000))
    client.upload(path)
    path.write_bytes(content)
    with pytest.raises(ContentMismatch, match="SHA-256"):
        client.upload(path)
    assert_same(server, client.upload(path).id, path)


@pytest.mark.parametrize("fault", [Line.cut, Line.reset])
def test_a_broken_connection_costs_only_its_current_chunk(
    server: Server,
    line: BadLine,
    make_client: MakeClient,
    make_file: MakeFile,
    fault: Callable[[Line], None],
) -> None:
    path = make_file(size=6_000_000)
    line.on_body = sometimes(fault, after=400_000, times=3, path="/upload")
    uploaded = make_client(line.url, chunk_bytes=MIB).upload(path)
    assert_same(server, uploaded.id, path)
    assert 6_000_000 < line.sent() <= 6_000_000 + 3 * MIB


def test_a_stalled_connection_is_replaced(
    server: Server, line: BadLine, make_client: MakeClient, make_file: MakeFile
) -> None:
    path = make_file(size=8_000_000)
    line.on_body = sometimes(Line.stall, after=100_000, times=2, path="/upload")
    client = make_client(line.url, chunk_bytes=4 * MIB, stall_seconds=1.0, answer_seconds=2.0)
    uploaded = client.upload(path)
    assert_same(server, uploaded.id, path)


def test_an_answer_that_never_comes_times_out(
    server: Server, line: BadLine, make_client: MakeClient, make_file: MakeFile
) -> None:
    path = make_file(size=2_000_000)
    line.on_answer = sometimes(Line.stall, after=0, times=1, path="/upload")
    uploaded = make_client(line.url, chunk_bytes=MIB, answer_seconds=1.0).upload(path)
    assert_same(server, uploaded.id, path)


def test_retry_after_is_obeyed(
    server: Server, line: BadLine, make_client: MakeClient, make_file: MakeFile
) -> None:
    def busy(refusing: Line) -> None:
        refusing.answer("503 Service Unavailable", "Retry-After: 2")

    path = make_file()
    line.on_head = sometimes(busy, after=0, times=1, path="/upload")
    waits: list[Progress] = []

    def listen(progress: Progress) -> None:
        if progress.phase is Phase.WAITING:
            waits.append(progress)

    client = make_client(line.url)
    uploaded = client.upload(path, on_progress=listen)
    assert_same(server, uploaded.id, path)
    assert [progress.note for progress in waits] != []
    seconds = int(waits[0].note.rsplit("in ", 1)[1].split(" ")[0])
    assert seconds >= 2


def test_chunks_shrink_below_a_proxys_limit(
    server: Server, line: BadLine, make_client: MakeClient, make_file: MakeFile
) -> None:
    limit = 300 * KIB

    def refuse_large(refusing: Line, request: Request) -> None:
        if request.length > limit:
            refusing.answer("413 Request Entity Too Large", "Content-Type: text/html")

    path = make_file(size=4_000_000)
    line.on_head = refuse_large
    uploaded = make_client(line.url, chunk_bytes=2 * MIB).upload(path)
    assert_same(server, uploaded.id, path)
    accepted = [r.body for r in line.requests if r.path.startswith("/upload") and r.status == 200]
    assert max(accepted) == 256 * KIB


def test_corrupted_bytes_are_sent_again(
    server: Server, line: BadLine, make_client: MakeClient, make_file: MakeFile
) -> None:
    garbled: list[Request] = []

    def garble_once(request: Request, block: bytes) -> bytes:
        if garbled or not request.path.startswith("/upload?"):
            return block
        garbled.append(request)
        return bytes(len(block))

    path = make_file(size=2_000_000)
    line.garble = garble_once
    uploaded = make_client(line.url, chunk_bytes=MIB).upload(path)
    assert [request.status for request in garbled] == [400]
    assert_same(server, uploaded.id, path)


def test_a_file_that_changes_while_it_is_sent_is_an_error_and_leaves_nothing(
    server: Server, line: BadLine, make_client: MakeClient, make_file: MakeFile
) -> None:
    path = make_file(size=4_000_000)

    def change(_: Line, request: Request) -> None:
        if request.path.startswith("/upload") and line.sent() > MIB:
            with path.open("ab") as file:
                file.write(b"more")

    line.on_body = change
    with pytest.raises(FileChanged, match="changed while it was sent"):
        make_client(line.url, chunk_bytes=512 * KIB).upload(path)
    created = next(r for r in line.requests if r.path == "/api/uploads")
    assert created.status == 201
    uploads = server.get("/api/uploads").json()["uploads"]
    assert [upload for upload in uploads if upload["length"] == 4_000_000] == []


def test_the_client_gives_up_after_a_time_without_progress(
    line: BadLine, make_client: MakeClient, make_file: MakeFile
) -> None:
    path = make_file()
    line.on_head = lambda broken, request: broken.cut() if "/upload?" in request.path else None
    with pytest.raises(ServerUnreachable, match="without progress"):
        make_client(line.url, give_up_seconds=2.0).upload(path)


def test_an_upload_that_expired_meanwhile_starts_over(
    server: Server, line: BadLine, make_client: MakeClient, make_file: MakeFile
) -> None:
    path = make_file(size=3_000_000)
    is_cancelled = threading.Event()

    def cancel(_: Line, request: Request) -> None:
        if request.path.startswith("/upload?") and line.sent() > MIB and not is_cancelled.is_set():
            is_cancelled.set()
            for upload in server.get("/api/uploads").json()["uploads"]:
                if upload["length"] == 3_000_000:
                    server.delete(f"/api/uploads/{upload['id']}")

    line.on_head = cancel
    uploaded = make_client(line.url, chunk_bytes=512 * KIB, parallel=1).upload(path)
    assert is_cancelled.is_set()
    assert_same(server, uploaded.id, path)


def test_a_refused_file_is_not_retried(
    line: BadLine, make_client: MakeClient, make_file: MakeFile
) -> None:
    path = make_file()
    os.truncate(path, 2 << 40)  # Sparse, and twice what the server accepts by default.
    with pytest.raises(Refused) as refused:
        make_client(line.url).upload(path)
    assert sum(request.method == "POST" for request in line.requests) == 1
    assert (refused.value.status, refused.value.code) == (413, "too_large")


def test_stop_ends_an_upload_and_the_next_call_resumes_it(
    server: Server, line: BadLine, make_client: MakeClient, make_file: MakeFile
) -> None:
    path = make_file(size=6_000_000)
    line.bytes_per_second = 1_000_000
    stopped = make_client(line.url, chunk_bytes=MIB)

    def stop_in_the_middle(progress: Progress) -> None:
        if progress.done > 3_000_000:
            stopped.stop()

    with pytest.raises(Interrupted):
        stopped.upload(path, on_progress=stop_in_the_middle)
    line.heal()
    # With more connections, a chunk that a busy machine delays would be sent twice.
    uploaded = make_client(line.url, chunk_bytes=MIB, parallel=1).upload(path)
    assert uploaded.sent < 6_000_000
    assert line.sent() == uploaded.sent
    assert_same(server, uploaded.id, path)


def test_progress_rises_to_the_size_of_the_file(
    server: Server, make_client: MakeClient, make_file: MakeFile
) -> None:
    seen: list[Progress] = []
    make_client(server.url, chunk_bytes=256 * KIB).upload(make_file(), on_progress=seen.append)
    assert seen[0].done == 0
    assert (seen[-1].phase, seen[-1].done, seen[-1].total) == (Phase.DONE, 3_000_000, 3_000_000)
    assert all(0 <= progress.done <= 3_000_000 for progress in seen)


def test_connections_are_kept_alive(
    line: BadLine, make_client: MakeClient, make_file: MakeFile
) -> None:
    connections = set()

    def note(used: Line, _: Request) -> None:
        connections.add(used.client.getpeername())

    line.on_head = note
    client = make_client(line.url, chunk_bytes=128 * KIB, parallel=3)
    client.upload(make_file(size=5_000_000))
    assert len(line.requests) > 10
    assert len(connections) <= 4


def test_a_stream_that_is_another_file_on_the_server_is_removed_there(
    server: Server, line: BadLine, make_client: MakeClient
) -> None:
    def other_checksum(_request: Request, block: bytes) -> bytes:
        return re.sub(rb'("crc32c": ?")[^"]{6}', rb"\g<1>" + b"A" * 6, block)

    line.garble = other_checksum
    with pytest.raises(ContentMismatch):
        make_client(line.url).upload_stream(io.BytesIO(b"bytes"), "wrong.mkv")
    assert list(make_client(server.url).videos("wrong.mkv")) == []


def test_a_stream_that_is_interrupted_once_it_is_complete_is_removed(
    server: Server, line: BadLine, make_client: MakeClient
) -> None:
    client = make_client(line.url)

    def stop_while_verifying(request: Request, block: bytes) -> bytes:
        if request.method != "GET":
            return block
        client.stop()
        return re.sub(
            rb'"(sha256|crc32c)": ?"[^"]*"', lambda found: b'"a":0'.ljust(len(found[0])), block
        )

    line.garble = stop_while_verifying
    with pytest.raises(Interrupted):
        client.upload_stream(io.BytesIO(b"bytes"), "interrupted.mkv")
    assert list(make_client(server.url).videos("interrupted.mkv")) == []


@pytest.mark.parametrize("is_waiting", [True, False])
@pytest.mark.parametrize("buffering", [-1, 0])
def test_a_stream_that_comes_in_small_pieces_is_sent_to_its_end(
    server: Server, make_client: MakeClient, buffering: int, is_waiting: bool
) -> None:
    """A program beside ours may have made the pipe one whose reader does not wait for bytes."""
    output, given = os.pipe()
    os.set_blocking(output, is_waiting)

    def write() -> None:
        for _ in range(5):
            time.sleep(0.02)
            os.write(given, b"piece")
        os.close(given)

    with os.fdopen(output, "rb", buffering) as stream, ThreadPoolExecutor() as pool:
        pool.submit(write)
        uploaded = make_client(server.url).upload_stream(stream, "pieces.mkv")
    assert uploaded.length == 25
    assert stored_sha256(server, uploaded.id) == hashlib.sha256(b"piece" * 5).hexdigest()


def test_a_stream_that_is_no_file_may_come_in_small_pieces_too(
    server: Server, make_client: MakeClient
) -> None:
    class Pieces(io.BytesIO):
        left: ClassVar[list[Any]] = [b"two ", None, b"pieces", b""]

        def read(self, _size: int | None = -1) -> Any:
            return self.left.pop(0)

    uploaded = make_client(server.url).upload_stream(Pieces(), "pieces.mkv")
    assert stored_sha256(server, uploaded.id) == hashlib.sha256(b"two pieces").hexdigest()
