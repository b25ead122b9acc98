"""One request gets one answer, wherever a forged length says its body ends."""

from __future__ import annotations

import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from random import Random

import pytest

from tests.dropzone_client import ChunkedFile, form_headers
from tests.hostile.conftest import Scaled
from tests.hostile.framing import HEADER_FAULTS, Malformed, end_of_body, random_shape
from tests.live_server import Server

pytestmark = pytest.mark.e2e

SECONDS = 30
AT_ONCE = 24
MARK = "a-second-request"
HIDDEN = f"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Request-ID: {MARK}\r\n\r\n".encode()
STATUS = re.compile(rb"HTTP/1\.[01] ([2-5][0-9][0-9]) ")

TUS = "Tus-Resumable: 1.0.0\r\nUpload-Offset: 0\r\nContent-Type: application/offset+octet-stream"
FORM = f"Content-Type: {form_headers()['Content-Type']}"
PAYLOAD = ChunkedFile(b"0123456789", 10, key="framing").body(0)


@dataclass(frozen=True)
class Route:
    """A request that may have a body, whether it is read there or not."""

    method: str
    path: str
    headers: str = "Accept: */*"

    def head(self, framing: bytes) -> bytes:
        """Everything in front of the body."""
        line = (
            f"{self.method} {self.path} HTTP/1.1\r\nHost: localhost\r\n{self.headers}\r\n".encode()
        )
        return line + framing + b"\r\n\r\n"


ROUTES = [
    Route("POST", "/upload", FORM),
    Route("POST", "/upload?dzuuid=x&dzchunkindex=0&dztotalfilesize=9&dzchunksize=9&filename=a"),
    Route("POST", "/batch", FORM),
    Route("POST", "/flow", FORM),
    Route("POST", "/resumablejs", FORM),
    Route("POST", "/filepond", FORM),
    Route("POST", "/fineuploader", FORM),
    Route("POST", "/api/uploads", "Content-Type: application/json"),
    Route("POST", "/tus/", "Tus-Resumable: 1.0.0\r\nUpload-Length: 9"),
    Route("PATCH", "/tus/{id}", TUS),
    Route("POST", "/resumable/", "Upload-Complete: ?1\r\nUpload-Draft-Interop-Version: 8"),
    Route("PUT", "/healthz"),
    Route("GET", "/healthz"),
    Route("GET", "/"),
    Route("GET", "/nothing"),
    Route("HEAD", "/healthz"),
    Route("HEAD", "/tus/{id}", "Tus-Resumable: 1.0.0"),
    Route("OPTIONS", "/tus/", "Tus-Resumable: 1.0.0"),
    Route("DELETE", "/api/uploads/nothing"),
    Route("DELETE", "/tus/nothing", "Tus-Resumable: 1.0.0"),
]


def route(server: Server, template: Route) -> Route:
    """The route, with an upload of its own if it needs one."""
    if "{id}" not in template.path:
        return template
    headers = {"Tus-Resumable": "1.0.0", "Upload-Length": str(len(PAYLOAD))}
    location = server.post("/tus/", headers=headers).headers["Location"]
    upload_id = location.rpartition("/")[2]
    return Route(template.method, template.path.format(id=upload_id), template.headers)


def converse(server: Server, pieces: list[bytes], *, ends: bool, pause: float) -> bytes | None:
    """Everything the server sends; None if it keeps the connection open in the end."""
    received = b""
    with server.connect() as connection, suppress(ConnectionError):
        connection.settimeout(SECONDS)
        with suppress(ConnectionError):
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(pause)
            if ends:
                connection.shutdown(socket.SHUT_WR)
        try:
            while data := connection.recv(65536):
                received += data
        except TimeoutError:
            return None
    return received


def attack(server: Server, random: Random, number: int) -> str:
    """Send one body followed by a request; what is wrong with the answers, if anything."""
    template = route(server, ROUTES[number % len(ROUTES)])
    shape = random_shape(random, PAYLOAD, faults=random.choice([0, 1, 1, 1, 2]))
    sent = [template.head(b"Transfer-Encoding: chunked"), *shape.tokens, HIDDEN]
    joint = random.randrange(1, len(sent))
    pieces = [b"".join(sent[:joint]), b"".join(sent[joint:])]
    has_end, is_malformed = False, False
    try:
        has_end = end_of_body(shape.body + HIDDEN) is not None
    except Malformed:
        is_malformed = True  # The server must close the connection even if its client does not.
    received = converse(server, pieces, ends=not is_malformed, pause=random.choice([0, 0.05]))
    return judge(received, has_end=has_end, told=f"{pieces!r}")


def judge(received: bytes | None, *, has_end: bool, told: str) -> str:
    if received is None:
        return f"the connection stayed open after {told}"
    answers = STATUS.findall(received)
    if len(answers) > 1 + has_end:
        return f"{len(answers)} answers to {told}: {received!r}"
    if MARK.encode() in received and not has_end:
        return f"the hidden request was answered after {told}: {received!r}"
    if not answers:
        return f"no answer to {told}"
    return ""


def run(server: Server, count: int, seed: int) -> list[str]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        done = pool.map(lambda n: attack(server, Random(seed + n), n), range(count))
        return [complaint for complaint in done if complaint]


def test_malformed_bodies_get_one_answer_and_no_second_request(
    server: Server, scaled: Scaled
) -> None:
    assert run(server, scaled(short=250, long=6000), seed=1) == []


def test_headers_of_ambiguous_length_close_the_connection(server: Server) -> None:
    complaints = []
    for number, fault in enumerate(HEADER_FAULTS):
        template = route(server, ROUTES[number % len(ROUTES)])
        framing = re.sub(rb"%[dx]", lambda found: found[0] % len(PAYLOAD), fault)
        pieces = [template.head(framing), b"0\r\n\r\n" + HIDDEN]
        received = converse(server, pieces, ends=False, pause=0.02)
        complaints.append(judge(received, has_end=False, told=f"{pieces!r}"))
    assert [complaint for complaint in complaints if complaint] == []


@pytest.mark.parametrize("template", ROUTES, ids=lambda r: f"{r.method} {r.path[:14]}")
def test_an_invalid_chunk_size_hides_no_request(server: Server, template: Route) -> None:
    """Catches a parser that skips the line and reads the next one as a size: `0`, the end."""
    head = route(server, template).head(b"Transfer-Encoding: chunked")
    received = converse(server, [head + b"40 \r\n0\r\n", b"\r\n" + HIDDEN], ends=False, pause=0.1)
    assert judge(received, has_end=False, told=template.path) == ""


@pytest.mark.parametrize("template", ROUTES, ids=lambda r: f"{r.method} {r.path[:14]}")
def test_invalid_trailers_get_one_answer(server: Server, template: Route) -> None:
    head = route(server, template).head(b"Transfer-Encoding: chunked")
    received = converse(server, [head + b"0\r\nno colon\r\n\r\n" + HIDDEN], ends=False, pause=0)
    assert judge(received, has_end=False, told=template.path) == ""
