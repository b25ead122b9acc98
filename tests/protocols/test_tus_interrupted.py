"""tus over broken connections: half-open requests, racing clients, killed workers."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import parse_headers
from pathlib import Path
from random import Random
from typing import IO

import psutil
import pytest

from tests.conformance.tus_client import CHUNK_TYPE, Tus, base64_of, headers_of
from tests.conformance.wire import Connection
from tests.dropzone_client import random_bytes, stored_sha256
from tests.live_server import Server
from tests.long_tests import long

MIB = 1024 * 1024
FILE = random_bytes(4_000_000, 91)
SHA256 = hashlib.sha256(FILE).hexdigest()
HALF = 2_345_678


@pytest.fixture
def tus(server: Server) -> Tus:
    return Tus(f"{server.url}/tus/")


def id_of(url: str) -> str:
    return url.rpartition("/")[2]


def finish(server: Server, tus: Tus, url: str) -> None:
    """Resume the upload, and check the file."""
    offset = tus.offset(url)
    assert tus.patch(url, offset, FILE[offset:]).status == 204
    assert stored_sha256(server, id_of(url)) == SHA256


# ---- requests that are sent in part --------------------------------------------------------------


def plain(tus: Tus, url: str, body: bytes) -> Connection:
    """A PATCH with the length of the whole file."""
    return tus.half_sent(url, 0, len(FILE), body)


def chunked(tus: Tus, url: str, body: bytes) -> Connection:
    """A PATCH of unknown length."""
    return chunked_request("PATCH", url, body, Upload_Offset=0)


def overridden(tus: Tus, url: str, body: bytes) -> Connection:
    """What the Java client sends, as it has no PATCH."""
    return chunked_request("POST", url, body, Upload_Offset=0, X_HTTP_Method_Override="PATCH")


def chunked_request(method: str, url: str, body: bytes, **fields: str | int) -> Connection:
    connection = Connection(url)
    head = headers_of(Content_Type=CHUNK_TYPE, Transfer_Encoding="chunked", **fields)
    connection.begin(method, url, head)
    pieces = (body[start : start + 65536] for start in range(0, len(body), 65536))
    connection.send_and_stall(b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in pieces))
    return connection


Begin = Callable[[Tus, str, bytes], Connection]
BEGINNINGS = [plain, chunked, overridden]


@pytest.mark.parametrize("begin", BEGINNINGS)
def test_the_first_lookup_after_a_cut_counts_every_byte(
    server: Server, tus: Tus, begin: Begin
) -> None:
    url = tus.create(len(FILE))
    with begin(tus, url, FILE[:HALF]):
        writer_of(server, url)
    assert tus.offset(url) == HALF
    finish(server, tus, url)


@pytest.mark.parametrize("begin", BEGINNINGS)
def test_a_reset_loses_nothing_the_server_had_received(
    server: Server, tus: Tus, begin: Begin
) -> None:
    url = tus.create(len(FILE))
    connection = begin(tus, url, FILE[:HALF])
    while server.get(f"/api/uploads/{id_of(url)}").json()["offset"] < HALF:
        time.sleep(0.05)
    connection.abort()
    assert tus.offset(url) == HALF
    finish(server, tus, url)


def test_a_cut_within_a_chunk_header_keeps_the_bytes_before_it(server: Server, tus: Tus) -> None:
    url = tus.create(len(FILE))
    with chunked(tus, url, FILE[:HALF]) as connection:
        connection.send_and_stall(b"100000\r\n" + FILE[HALF : HALF + 1000])
        writer_of(server, url)
    assert tus.offset(url) == HALF + 1000
    with chunked_request("PATCH", url, b"", Upload_Offset=HALF + 1000) as connection:
        connection.send(b"10000")
    assert tus.offset(url) == HALF + 1000
    finish(server, tus, url)


def test_a_chunk_with_a_checksum_is_all_or_nothing(server: Server, tus: Tus) -> None:
    url = tus.create(len(FILE))
    checksum = f"sha1 {'A' * 27}="
    chunked_request("PATCH", url, FILE[:HALF], Upload_Offset=0, Upload_Checksum=checksum).close()
    assert tus.offset(url) == 0
    finish(server, tus, url)


@pytest.mark.parametrize("begin", BEGINNINGS)
@pytest.mark.parametrize("first", ["HEAD", "PATCH", "DELETE"])
def test_a_half_open_request_is_ended_from_another_process(
    server: Server, tus: Tus, begin: Begin, first: str
) -> None:
    url = tus.create(len(FILE))
    with begin(tus, url, FILE[:HALF]) as half_open, idle_connections(server) as others:
        writer = writer_of(server, url)
        connection = next(found for pid, found in others.items() if pid != writer)
        if first == "HEAD":
            assert int(request(connection, "HEAD", url)["Upload-Offset"]) == HALF
        elif first == "DELETE":
            request(connection, "DELETE", url)
        elif "Upload-Offset" not in request(connection, "PATCH", url, FILE, Upload_Offset=0):
            request(connection, "PATCH", url, FILE[HALF:], Upload_Offset=tus.offset(url))
        assert half_open.read().status in {409, 410}
    if first == "DELETE":
        assert tus.head(url).status == 410
        assert not (server.staging / id_of(url)).exists()
    else:
        finish(server, tus, url)


@pytest.mark.parametrize("begin", BEGINNINGS)
@pytest.mark.parametrize("path", ["/tus/", "/api/uploads/"])
def test_a_request_that_waits_ends_with_its_upload(
    server: Server, tus: Tus, begin: Begin, path: str
) -> None:
    url = tus.create(len(FILE))
    with begin(tus, url, FILE[:HALF]) as half_open:
        while server.get(f"/api/uploads/{id_of(url)}").json()["offset"] < HALF:
            time.sleep(0.05)
        ended = server.delete(path + id_of(url), headers={"Tus-Resumable": "1.0.0"})
        assert ended.status_code == 204
        assert half_open.read().status == 410


@contextmanager
def idle_connections(server: Server) -> Iterator[dict[int, socket.socket]]:
    """A connection to each worker process, by process id."""
    workers = server.web_workers()
    found: dict[int, socket.socket] = {}
    with ExitStack() as stack:
        while len(found) < len(workers):
            connection = stack.enter_context(server.connect())
            request(connection, "OPTIONS", f"{server.url}/tus/")
            ours = connection.getsockname()[1]
            for worker in workers:
                if ours in {c.raddr[1] for c in worker.net_connections() if c.status != "LISTEN"}:
                    found[worker.pid] = connection
        yield found


def writer_of(server: Server, url: str) -> int:
    """Wait for a process to open the upload's file; its id."""
    while True:
        for worker in server.web_workers():
            if any(id_of(url) in file.path for file in worker.open_files()):
                pid: int = worker.pid
                return pid
        time.sleep(0.02)


def request(
    connection: socket.socket, method: str, url: str, body: bytes = b"", **fields: str | int
) -> dict[str, str]:
    """The headers of the answer to a request on a kept connection."""
    head = headers_of(Host="localhost", Content_Length=len(body), Content_Type=CHUNK_TYPE, **fields)
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    path = "/" + url.split("/", 3)[3]
    connection.sendall(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body)
    incoming: IO[bytes]
    with connection.makefile("rb") as incoming:
        incoming.readline()
        headers = dict(parse_headers(incoming).items())
        if method != "HEAD":
            incoming.read(int(headers.get("Content-Length", 0)))
    return headers


# ---- clients that race ---------------------------------------------------------------------------


def test_offsets_never_go_down_while_lookups_and_chunks_race(server: Server, tus: Tus) -> None:
    url = tus.create(len(FILE))
    race = Race(tus, url)
    threads = [threading.Thread(target=race.look) for _ in range(3)]
    threads += [threading.Thread(target=race.send, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert race.went_back == []
    assert race.highest == len(FILE)
    assert stored_sha256(server, id_of(url)) == SHA256


class Race:
    """Clients of one upload that do not know of each other."""

    def __init__(self, tus: Tus, url: str) -> None:
        self.highest = 0
        self.went_back: list[tuple[int, int]] = []
        self._tus = tus
        self._url = url
        self._lock = threading.Lock()

    def look(self) -> None:
        while self.highest < len(FILE):
            self._ask()

    def send(self, seed: int) -> None:
        """Send chunks, every other one broken off midway."""
        random = Random(seed)
        while (offset := self._ask()) < len(FILE):
            body = FILE[offset : offset + random.randrange(1, 300_000)]
            if random.random() < 0.5:
                self._tus.half_sent(self._url, offset, len(FILE) - offset, body).close()
                continue
            reply = self._tus.patch(self._url, offset, body)
            assert reply.status in {204, 409}
            if reply.status == 204:
                self._told(int(reply["Upload-Offset"]), offset)

    def _ask(self) -> int:
        known = self.highest
        return self._told(self._tus.offset(self._url), known)

    def _told(self, offset: int, known: int) -> int:
        with self._lock:
            if offset < known:
                self.went_back.append((known, offset))
            self.highest = max(self.highest, offset)
        return offset


# ---- workers that die, and memory ----------------------------------------------------------------

CHECKPOINT = 64 * MIB
ON_THE_WAY = 16 * MIB
"""More than the buffers of both sockets hold."""


def block(index: int) -> bytes:
    """A MiB unlike any other in the file."""
    return index.to_bytes(8, "big") * (MIB // 8)


def send_blocks(connection: Connection, first: int, last: int) -> None:
    for index in range(first, last):
        connection.send(block(index))


def test_a_killed_worker_loses_no_more_than_a_checkpoint(
    start_server: Callable[..., Server],
) -> None:
    server = start_server()
    tus = Tus(f"{server.url}/tus/")
    url = tus.create(300 * MIB)
    with tus.half_sent(url, 0, 300 * MIB, b"") as connection:
        send_blocks(connection, 0, 200)
        writer = writer_of(server, url)
        os.kill(writer, signal.SIGKILL)
        with suppress(psutil.NoSuchProcess):
            psutil.Process(writer).wait(30)
    offset = tus.offset(url)
    assert 200 * MIB - CHECKPOINT - ON_THE_WAY <= offset <= 200 * MIB
    first, into = divmod(offset, MIB)
    with tus.half_sent(url, offset, 300 * MIB - offset, block(first)[into:]) as connection:
        send_blocks(connection, first + 1, 300)
        assert connection.read().status == 204
    expected = hashlib.sha256(b"".join(map(block, range(300)))).hexdigest()
    assert stored_sha256(server, id_of(url)) == expected


CHECKSUMS: dict[str, dict[str, str]] = {
    "without": {},
    "before": {"Upload_Checksum": "sha256 {}"},
    "behind": {"Trailer": "Upload-Checksum", "Transfer_Encoding": "chunked"},
}


@pytest.mark.parametrize("kind", ["without", "behind", *long(["before"])])
def test_memory_does_not_depend_on_the_size_of_a_chunk(
    start_server: Callable[..., Server], kind: str
) -> None:
    server = start_server(SLUICE_WORKERS="1")
    tus = Tus(f"{server.url}/tus/")
    send_large(tus, 4, kind)
    before = peak_memory(server)
    send_large(tus, 100, kind)
    assert peak_memory(server) - before < 16 * MIB


def send_large(tus: Tus, count: int, kind: str) -> None:
    """Send that many MiB in one request, with or without a checksum."""
    digest = hashlib.sha256()
    for index in range(count):
        digest.update(block(index))
    checksum = f"sha256 {base64_of(digest.digest())}"
    url = tus.create(count * MIB)
    fields: dict[str, str | int] = {"Upload_Offset": 0, "Content_Type": CHUNK_TYPE}
    fields |= {name: value.format(checksum[7:]) for name, value in CHECKSUMS[kind].items()}
    with Connection(url) as connection:
        if kind == "behind":
            connection.begin("PATCH", url, headers_of(**fields))
            for index in range(count):
                connection.send(b"%x\r\n%s\r\n" % (MIB, block(index)))
            connection.send(f"0\r\nUpload-Checksum: {checksum}\r\n\r\n".encode())
        else:
            connection.begin("PATCH", url, headers_of(Content_Length=count * MIB, **fields))
            send_blocks(connection, 0, count)
        assert connection.read().status == 204


def peak_memory(server: Server) -> int:
    """The peak memory of a worker process in bytes."""
    return max(peak_of(worker.pid) for worker in server.web_workers())


def peak_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
