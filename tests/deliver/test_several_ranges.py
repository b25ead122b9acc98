"""Several ranges of GET /media/{id} from a real server."""

from __future__ import annotations

import socket
from collections.abc import Callable

import psutil
import pytest
import requests

from app.deliver.conditional import MAX_RANGES
from tests.deliver.stored import Stored, received_parts, store
from tests.dropzone_client import random_bytes
from tests.live_server import Server

pytestmark = pytest.mark.e2e

CONTENT = random_bytes(1_000_003, 90)
LENGTH = len(CONTENT)
LARGE_BYTES = 128 * 1024 * 1024
MOST_GROWTH_BYTES = 24 * 1024 * 1024


@pytest.fixture(scope="module")
def film(server: Server) -> Stored:
    return store(server, "film.mp4", CONTENT)


@pytest.mark.parametrize(
    ("ranges", "spans"),
    [
        ("bytes=0-9,20-29", [(0, 10), (20, 30)]),
        ("bytes=20-29,0-9", [(20, 30), (0, 10)]),
        ("bytes=0-0,-1", [(0, 1), (LENGTH - 1, LENGTH)]),
        ("bytes=0-9,5-29,100-", [(0, 30), (100, LENGTH)]),
        ("bytes=0-9,50-59,2000000-", [(0, 10), (50, 60)]),
        ("bytes=65530-131080,200000-400000", [(65530, 131081), (200_000, 400_001)]),
    ],
)
def test_each_range_is_a_part_with_its_position_and_type(
    film: Stored, ranges: str, spans: list[tuple[int, int]]
) -> None:
    response = film.ask(ranges)
    assert response.status_code == 206
    assert "Content-Range" not in response.headers
    assert response.headers["Content-Length"] == str(len(response.content))
    parts = received_parts(response)
    assert [part.content for part in parts] == [CONTENT[start:end] for start, end in spans]
    assert [part.headers for part in parts] == [
        {"content-type": "video/mp4", "content-range": f"bytes {start}-{end - 1}/{LENGTH}"}
        for start, end in spans
    ]


@pytest.mark.parametrize(
    ("ranges", "start", "end"),
    [
        ("bytes=0-9,10-19", 0, 20),
        ("bytes=10-19,0-9", 0, 20),
        ("bytes=100-199,150-160", 100, 200),
        ("bytes=0-9,1000003-", 0, 10),
        ("bytes=0-,5-6,-1", 0, LENGTH),
    ],
)
def test_ranges_that_merge_into_one_are_not_multipart(
    film: Stored, ranges: str, start: int, end: int
) -> None:
    response = film.ask(ranges)
    assert response.status_code == 206
    assert response.headers["Content-Type"] == "video/mp4"
    assert response.headers["Content-Range"] == f"bytes {start}-{end - 1}/{LENGTH}"
    assert response.content == CONTENT[start:end]


def test_ranges_all_beyond_the_end_are_refused(film: Stored) -> None:
    response = film.ask("bytes=1000003-,5000000-6000000")
    assert response.status_code == 416
    assert response.headers["Content-Range"] == f"bytes */{LENGTH}"


def test_too_many_ranges_return_the_whole_file(film: Stored) -> None:
    ranges = [f"{start}-{start}" for start in range(0, 2 * MAX_RANGES + 2, 2)]
    most = film.ask("bytes=" + ",".join(ranges[:MAX_RANGES]))
    assert len(received_parts(most)) == MAX_RANGES
    response = film.ask("bytes=" + ",".join(ranges))
    assert (response.status_code, response.content) == (200, CONTENT)


def test_if_range_applies_to_several_ranges_too(film: Stored) -> None:
    headers = film.ask("bytes=0-0").headers
    for validator in (headers["ETag"], headers["Last-Modified"]):
        assert len(received_parts(film.ask("bytes=0-1,5-9", If_Range=validator))) == 2
    other = film.ask("bytes=0-1,5-9", If_Range='"other"')
    assert (other.status_code, other.content) == (200, CONTENT)


def test_a_multipart_answer_has_the_headers_of_the_whole_file(film: Stored) -> None:
    own = {"Date", "X-Request-ID", "Content-Length", "Content-Type"}
    whole, parts = film.server.get(film.path).headers, film.ask("bytes=0-1,5-9").headers
    assert {k: v for k, v in parts.items() if k not in own} == {
        k: v for k, v in whole.items() if k not in own
    }


def test_head_ignores_ranges_as_the_rfc_requires(film: Stored) -> None:
    response = requests.head(film.url, headers={"Range": "bytes=0-1,5-9"}, timeout=60)
    assert response.status_code == 200
    assert response.headers["Content-Length"] == str(LENGTH)


def test_the_connection_is_usable_after_parts(film: Stored) -> None:
    with requests.Session() as session:
        for start in range(0, 100, 10):
            header = {"Range": f"bytes={start}-{start + 4},500-504"}
            parts = received_parts(session.get(film.url, headers=header, timeout=60))
            assert [part.content for part in parts] == [
                CONTENT[start : start + 5],
                CONTENT[500:505],
            ]


def test_a_truncated_file_closes_the_connection_and_sends_no_wrong_byte(server: Server) -> None:
    film = store(server, "cut.mp4", CONTENT)
    with (server.library / film.id).open("r+b") as file:
        file.truncate(700_000)
    with server.connect() as connection:
        head = (
            f"GET {film.path} HTTP/1.1\r\nHost: localhost\r\nRange: bytes=600000-800000,0-9\r\n\r\n"
        )
        connection.sendall(head.encode())
        answer = read_to_end(connection)
    assert CONTENT[600_000:700_000] in answer
    assert answer.endswith(CONTENT[699_900:700_000])


def read_to_end(connection: socket.socket) -> bytes:
    received = b""
    while block := connection.recv(1 << 20):
        received += block
    return received


def test_the_servers_memory_does_not_depend_on_the_ranges(
    start_server: Callable[..., Server],
) -> None:
    server = start_server(SLUICE_WORKERS="1", SLUICE_DURABILITY="none")
    created = server.post("/api/uploads", json={"name": "large.mp4", "size": LARGE_BYTES}).json()
    film = Stored(server, created["id"])
    query = (
        f"dzuuid={film.id}&dzchunkindex=0&dztotalfilesize={LARGE_BYTES}"
        f"&dzchunksize={LARGE_BYTES}&dztotalchunkcount=1&dzchunkbyteoffset=0"
    )
    sent = server.post(f"/upload?{query}", data=Zeros(LARGE_BYTES))
    assert sent.json()["complete"] is True
    (worker,) = server.web_workers()
    count(film, "bytes=0-999999,2000000-2999999")
    before = worker.memory_info().rss
    forget_peak(worker)
    half = LARGE_BYTES // 2
    assert count(film, f"bytes=0-{half - 2},{half}-") > LARGE_BYTES
    assert peak_bytes(worker) - before < MOST_GROWTH_BYTES


class Zeros:
    """A body of known length that is never held in memory."""

    def __init__(self, length: int) -> None:
        self.len = self._left = length

    def read(self, size: int) -> bytes:
        count = min(size, self._left)
        self._left -= count
        return bytes(count)


def count(film: Stored, ranges: str) -> int:
    """Number of bytes in the answer's body."""
    with requests.get(film.url, headers={"Range": ranges}, stream=True, timeout=60) as response:
        assert response.headers["Content-Type"].startswith("multipart/byteranges")
        received = sum(len(block) for block in response.iter_content(1 << 20))
        assert received == int(response.headers["Content-Length"])
        return received


def forget_peak(process: psutil.Process) -> None:
    """Reset the kernel's record of the peak memory."""
    with open(f"/proc/{process.pid}/clear_refs", "w") as file:
        file.write("5")


def peak_bytes(process: psutil.Process) -> int:
    """The server's peak memory in bytes."""
    with open(f"/proc/{process.pid}/status") as file:
        status = file.read()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
