"""What every server must deliver: the same bytes, and connections usable or closed.

Ours, gunicorn's other workers, TLS, and Werkzeug's own server bring bodies in different ways.
"""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
import requests

from tests.dropzone_client import (
    ChunkedFile,
    form_body,
    form_headers,
    random_bytes,
    read_response,
    send_chunk,
    stored_sha256,
)
from tests.e2e.server_kinds import MAIN_KINDS, OTHER_KINDS, STEP_BYTES, Kind, running
from tests.live_server import NO_FFMPEG, Server
from tests.long_tests import long
from tests.waiting import wait_until, wait_until_read

pytestmark = pytest.mark.e2e

TUS = {"Tus-Resumable": "1.0.0"}
PATCH = {**TUS, "Content-Type": "application/offset+octet-stream"}
CONTENT = random_bytes(3 * STEP_BYTES + 12_345, 61)
IDLE_SECONDS = 4


@pytest.fixture(scope="module", params=[*MAIN_KINDS, *long(OTHER_KINDS)], ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Which server."""
    found: Kind = request.param
    return found


@pytest.fixture(scope="module")
def server(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of that kind, shared by the tests of this file."""
    folder = tmp_path_factory.mktemp("server")
    options = {"SLUICE_TEST_CONSTANTS": "body_idle_seconds=600", **NO_FFMPEG}
    with running(kind, folder, **options) as one:
        yield one


def tus(server: Server, method: str, path: str, **options: object) -> requests.Response:
    """One request of a tus client."""
    verify = str(server.certificate) if server.certificate else True
    return requests.request(method, server.url + path, timeout=60, verify=verify, **options)  # type: ignore[arg-type]


def create(server: Server, length: int = len(CONTENT)) -> str:
    """The path of a new upload with that length."""
    response = tus(server, "POST", "/tus/", headers={**TUS, "Upload-Length": str(length)})
    assert response.status_code == 201, response.text
    return urlsplit(response.headers["Location"]).path


def offset(server: Server, path: str) -> int:
    """How many bytes have arrived, asked the way a resuming client does."""
    return int(tus(server, "HEAD", path, headers=TUS).headers["Upload-Offset"])


def received(server: Server, path: str) -> int:
    """How many bytes are recorded, asked without disturbing a writer."""
    return int(server.get(f"/api/uploads/{path.rsplit('/', 1)[-1]}").json()["offset"])


def patch(server: Server, path: str, body: object, start: int = 0, checksum: str = "") -> int:
    """Send bytes; the status."""
    fields = {**PATCH, "Upload-Offset": str(start)}
    if checksum:
        fields["Upload-Checksum"] = checksum
    return tus(server, "PATCH", path, data=body, headers=fields).status_code


def head_of(method: str, path: str, length: int, headers: Mapping[str, str]) -> bytes:
    """The head of a request as raw bytes."""
    fields = {"Host": "127.0.0.1", "Content-Length": str(length), **headers}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def patch_head(
    path: str, length: int, start: int = 0, headers: Mapping[str, str] | None = None
) -> bytes:
    """The head of a PATCH at an offset."""
    fields = {**PATCH, "Upload-Offset": str(start), **(headers or {})}
    return head_of("PATCH", path, length, fields)


def assert_stored(server: Server, path: str, content: bytes = CONTENT) -> None:
    """Assert that the published file has exactly those bytes."""
    digest = stored_sha256(server, path.rsplit("/", 1)[-1])
    assert digest == hashlib.sha256(content).hexdigest()


def is_closed(connection: socket.socket) -> bool:
    """Whether the server has closed the connection."""
    with suppress(ConnectionError):
        return connection.recv(1) == b""
    return True


def reset(connection: socket.socket) -> None:
    """Reset a connection, as a failing network does."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    socket.socket.close(connection)


# ---- bytes ---------------------------------------------------------------------------------------


def test_chunks_in_forms(server: Server) -> None:
    file = ChunkedFile(CONTENT, STEP_BYTES)
    answers = [send_chunk(server, file, index) for index in (2, 0, 3, 1)]
    assert [answer.status_code for answer in answers] == [200] * 4, answers[-1].text
    assert_stored(server, answers[-1].json()["media"])


def test_raw_chunks(server: Server) -> None:
    file = ChunkedFile(CONTENT, 2 * STEP_BYTES)
    for index in range(file.count):
        query = urlencode({**file.fields(index), "filename": "raw.mp4"})
        response = server.post(f"/upload?{query}", data=file.chunk(index))
        assert response.status_code == 200, response.text
    assert_stored(server, response.json()["media"])


def test_a_whole_form(server: Server) -> None:
    body = form_body({}, [("whole.mp4", CONTENT)])
    response = server.post("/upload", data=body, headers=form_headers())
    assert response.status_code == 200, response.text
    assert_stored(server, response.json()["media"])


def test_a_batch_of_fifty_files(server: Server) -> None:
    files = [(f"{number}.mp4", random_bytes(number * 4001, number)) for number in range(50)]
    answer = server.post("/batch", data=form_body({}, files), headers=form_headers()).json()
    assert (answer["stored"], answer["refused"]) == (50, 0)
    for (_, content), receipt in zip(files, answer["files"], strict=True):
        assert receipt["sha256"] == hashlib.sha256(content).hexdigest()
    assert_stored(server, answer["files"][49]["media"], files[49][1])


def test_bytes_at_an_offset(server: Server) -> None:
    path, cut = create(server), STEP_BYTES + 1
    assert patch(server, path, CONTENT[:cut]) == 204
    assert offset(server, path) == cut
    assert patch(server, path, CONTENT[cut:], cut) == 204
    assert_stored(server, path)


def test_a_body_in_the_chunked_coding(server: Server) -> None:
    path = create(server)
    pieces = [CONTENT[start : start + 70_001] for start in range(0, len(CONTENT), 70_001)]
    assert patch(server, path, iter(pieces)) == 204
    assert_stored(server, path)


def test_a_matching_and_a_wrong_checksum(server: Server) -> None:
    path = create(server)
    wrong = base64.b64encode(hashlib.sha1(b"other").digest()).decode()
    right = base64.b64encode(hashlib.sha1(CONTENT).digest()).decode()
    assert patch(server, path, CONTENT, checksum=f"sha1 {wrong}") == 460
    assert offset(server, path) == 0
    assert patch(server, path, CONTENT, checksum=f"sha1 {right}") == 204
    assert_stored(server, path)


def test_concurrent_slow_uploads_do_not_mix(server: Server) -> None:
    def send(number: int) -> None:
        content = random_bytes(400_000 + number, number)
        path = create(server, len(content))
        with closing(server.connect()) as connection:
            # The checksum keeps the bytes in the program's buffers.
            digest = base64.b64encode(hashlib.md5(content).digest()).decode()
            checksum = {"Upload-Checksum": f"md5 {digest}"}
            connection.sendall(patch_head(path, len(content), headers=checksum))
            for start in range(0, len(content), 40_000):
                connection.sendall(content[start : start + 40_000])
                time.sleep(0.02)
            assert read_response(connection)[0] == 204
        assert_stored(server, path, content)

    with ThreadPoolExecutor(12) as clients:
        list(clients.map(send, range(12)))


# ---- broken and wrong bodies ---------------------------------------------------------------------


def test_bytes_from_before_the_client_hung_up_are_kept(server: Server) -> None:
    path, sent = create(server), 2 * STEP_BYTES + 1000
    with closing(server.connect()) as connection:
        connection.sendall(patch_head(path, len(CONTENT)) + CONTENT[:sent])
        connection.shutdown(socket.SHUT_WR)
        wait_until(lambda: received(server, path) == sent, "everything that was sent is recorded")
    assert offset(server, path) == sent
    assert patch(server, path, CONTENT[sent:], sent) == 204
    assert_stored(server, path)


def test_bytes_from_before_a_reset_are_kept_as_far_as_the_server_delivers_them(
    server: Server, kind: Kind
) -> None:
    path, sent = create(server), 2 * STEP_BYTES + 1000
    connection = server.connect()
    connection.sendall(patch_head(path, len(CONTENT)) + CONTENT[:sent])
    wait_until_read(connection)
    reset(connection)
    least = sent if kind.takes_over else sent - STEP_BYTES
    wait_until(lambda: received(server, path) >= least, "what the server got is recorded")
    kept = offset(server, path)
    assert least <= kept <= sent
    assert patch(server, path, CONTENT[kept:], kept) == 204
    assert_stored(server, path)


def test_a_chunked_body_that_breaks_off_keeps_what_arrived(server: Server, kind: Kind) -> None:
    path, piece = create(server), CONTENT[: 2 * STEP_BYTES]
    begun = CONTENT[len(piece) : len(piece) + 5]
    most = len(piece) + len(begun)
    least = most if kind.takes_over else most - STEP_BYTES
    head = patch_head(path, 0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    with closing(server.connect()) as connection:
        connection.sendall(head + b"%x\r\n%s\r\nffff\r\n%s" % (len(piece), piece, begun))
        connection.shutdown(socket.SHUT_WR)
        wait_until(lambda: received(server, path) >= least, "what the server got is recorded")
    kept = offset(server, path)
    assert least <= kept <= most
    assert patch(server, path, CONTENT[kept:], kept) == 204
    assert_stored(server, path)


@pytest.fixture
def impatient_server(kind: Kind, tmp_path: Path) -> Iterator[Server]:
    """A server of that kind that waits only IDLE_SECONDS for the next bytes of a body."""
    options = {"SLUICE_TEST_CONSTANTS": f"body_idle_seconds={IDLE_SECONDS}", **NO_FFMPEG}
    with running(kind, tmp_path, **options) as one:
        yield one


def test_a_silent_client_gets_408(impatient_server: Server, kind: Kind) -> None:
    server = impatient_server
    path, sent = create(server), STEP_BYTES + 1000
    with closing(server.connect()) as connection:
        connection.sendall(patch_head(path, len(CONTENT)) + CONTENT[:sent])
        if kind.waits_for_ever:
            connection.settimeout(2 * IDLE_SECONDS)
            with pytest.raises(TimeoutError):
                read_response(connection)
            return
        assert read_response(connection)[0] == 408
    least = sent if kind.takes_over else sent - STEP_BYTES
    kept = offset(server, path)
    assert least <= kept <= sent
    assert patch(server, path, CONTENT[kept:], kept) == 204
    assert_stored(server, path)


def test_a_body_longer_than_the_chunk_is_refused(server: Server) -> None:
    file = ChunkedFile(CONTENT, STEP_BYTES)
    query = urlencode({**file.fields(0), "filename": "raw.mp4"})
    response = server.post(f"/upload?{query}", data=CONTENT[: STEP_BYTES + 1])
    assert response.status_code == 400, response.text
    assert response.json()["code"] == "chunk_mismatch"


def test_a_chunked_body_longer_or_shorter_than_the_chunk_is_refused(server: Server) -> None:
    file = ChunkedFile(CONTENT, STEP_BYTES)
    query = urlencode({**file.fields(0), "filename": "raw.mp4"})
    for length in (STEP_BYTES + 1, STEP_BYTES - 1):
        response = server.post(f"/upload?{query}", data=iter([CONTENT[:length]]))
        assert response.status_code == 400, response.text


def test_an_upload_that_would_get_too_long_is_refused(server: Server) -> None:
    path = create(server, 1000)
    assert patch(server, path, CONTENT[:1001]) == 400
    assert offset(server, path) == 0


# ---- connections ---------------------------------------------------------------------------------


def test_three_requests_on_one_connection(server: Server, kind: Kind) -> None:
    path, cuts = create(server), [0, 1000, 2 * STEP_BYTES, len(CONTENT)]
    connection = server.connect()
    for start, end in pairwise(cuts):
        connection.sendall(patch_head(path, end - start, start) + CONTENT[start:end])
        status, headers, _ = read_response(connection)
        assert status == 204
        if not kind.keeps_alive:
            assert headers["connection"] == "close"
            assert is_closed(connection)
            connection.close()
            connection = server.connect()
    connection.close()
    assert_stored(server, path)


def test_a_pipelined_request_is_answered_next(server: Server, kind: Kind) -> None:
    path, cut = create(server), len(CONTENT) - 500
    pipelined = patch_head(path, 500, cut) + CONTENT[cut:]
    with closing(server.connect()) as connection:
        connection.sendall(patch_head(path, cut) + CONTENT[:cut] + pipelined)
        status, headers, _ = read_response(connection)
        assert status == 204
        if kind.serves_pipelined:
            assert read_response(connection)[0] == 204
            assert_stored(server, path)
        else:
            assert headers["connection"] == ("keep-alive" if kind.keeps_alive else "close")
            assert offset(server, path) == cut


def test_a_client_that_expects_100_gets_it(server: Server) -> None:
    path, expect = create(server), {"Expect": "100-continue"}
    with closing(server.connect()) as connection:
        connection.sendall(patch_head(path, len(CONTENT), headers=expect))
        assert read_response(connection)[0] == 100
        connection.sendall(CONTENT)
        while (status := read_response(connection)[0]) == 100:  # Werkzeug sends it twice.
            pass
        assert status == 204
    assert_stored(server, path)


@pytest.mark.parametrize("length", [10, 100_000, 2_000_000])
def test_after_an_error_the_connection_is_usable_or_closed(server: Server, length: int) -> None:
    unknown = f"/tus/{'0' * 32}"
    with closing(server.connect()) as connection:
        with suppress(ConnectionError):
            connection.sendall(patch_head(unknown, length) + CONTENT[:length])
        status, headers, body = read_response(connection)
        assert (status, json.loads(body)["status"]) == (404, 404)
        if headers.get("connection") == "close":
            assert is_closed(connection)
        else:
            connection.sendall(head_of("GET", "/healthz", 0, {}))
            assert read_response(connection)[0] == 200


def test_what_follows_a_refused_body_is_never_read_as_a_request(server: Server) -> None:
    smuggled = head_of("POST", "/tus/", 0, {**TUS, "Upload-Length": "77001"}) * 2000
    with closing(server.connect()) as connection:
        with suppress(ConnectionError):
            connection.sendall(patch_head(f"/tus/{'0' * 32}", len(smuggled)) + smuggled)
        assert read_response(connection)[0] == 404
    listed = server.get("/api/uploads").json()
    assert 77_001 not in [upload["length"] for upload in listed["uploads"]]
