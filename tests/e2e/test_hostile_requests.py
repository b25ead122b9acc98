"""Requests that no honest client sends get a 4xx or a closed connection, and affect no one else."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.dropzone_client import BOUNDARY, ChunkedFile, form_headers
from tests.live_server import Server, running_server

pytestmark = pytest.mark.e2e

BODY = b"0123456789"
FORM = form_headers()["Content-Type"]
CHUNK = ChunkedFile(BODY, len(BODY), key="hostile").body(0)
FOREVER = "9" * 30

INTEROP = "Upload-Draft-Interop-Version"
POSTED = ["/upload", "/batch", "/api/uploads", "/tus/", "/resumable/"]

WITH_IDS = [
    "/api/uploads/{}",
    "/api/videos/{}",
    "/media/{}",
    "/watch/{}",
    "/tus/{}",
    "/resumable/{}",
]

BAD_IDS = {
    "nul": "a%00b",
    "controls": "%01%0d%0a%1b",
    "not utf-8": "%ff%fe",
    "surrogates": "%ed%a0%80",
    "up": "..%2f..%2fetc%2fpasswd",
    "backslashes": "..%5c..%5c",
    "newline after an id": "0" * 32 + "%0a",
    "nul after an id": "0" * 32 + "%00",
    "other digits": "%d9%a3" * 32,
    "long": "a" * 3000,
    "percent": "%%%",
    "line end in the path": "%0d%0aSet-Cookie:%20a=b",
}

BAD_NUMBERS = {
    "huge": FOREVER,
    "longer than any": "9" * 5000,
    "negative": "-1",
    "signed": "+5",
    "hexadecimal": "0x10",
    "fraction": "1.5",
    "exponent": "1e3",
    "underscore": "1_0",
    "other digits": "\u0663",
    "empty": "",
    "several": "5, 5",
    "nul": "5\x00",
}

BAD_FRAMING = {
    "two lengths": ["Content-Length: 10", "Content-Length: 11"],
    "length and chunked": ["Content-Length: 10", "Transfer-Encoding: chunked"],
    "chunked and length": ["Transfer-Encoding: chunked", "Content-Length: 10"],
    "negative length": ["Content-Length: -10"],
    "signed length": ["Content-Length: +10"],
    "hexadecimal length": ["Content-Length: 0xa"],
    "length of other digits": ["Content-Length: \u0661\u0660"],
    "list of lengths": ["Content-Length: 10, 10"],
    "endless length": [f"Content-Length: {'9' * 5000}"],
    "unknown coding": ["Transfer-Encoding: gzip"],
    "chunked twice": ["Transfer-Encoding: chunked, chunked"],
    "hidden coding": ["Transfer-Encoding: \x0bchunked"],
    "space before the colon": ["Content-Length : 10"],
    "folded header": ["X-Folded: a", " b", "Content-Length: 10"],
    "nul in a header": ["X-Nul: a\x00b", "Content-Length: 10"],
    "header without a name": [": a", "Content-Length: 10"],
}

BAD_CHUNKS = {
    "size of no digits": b"zz\r\n0123456789\r\n0\r\n\r\n",
    "negative size": b"-a\r\n0123456789\r\n0\r\n\r\n",
    "prefixed size": b"0xa\r\n0123456789\r\n0\r\n\r\n",
    "size with underscore": b"1_0\r\n0123456789012345\r\n0\r\n\r\n",
    "endless size": b"f" * 100_000,
    "endless extension": b"a;" + b"x" * 1_000_000,
    "huge size": b"f" * 16 + b"\r\n0123456789",
    "no line end after the data": b"a\r\n0123456789XX0\r\n\r\n",
    "end in the middle": b"a\r\n01234",
    "endless trailers": b"0\r\n" + b"X-Trailer: a\r\n" * 20_000,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The module's own server: its log shows what these requests did."""
    with running_server(tmp_path_factory.mktemp("hostile")) as running:
        yield running


def request(method: str, target: str, lines: list[str], body: bytes = b"") -> bytes:
    """A raw request; header values are sent as UTF-8, whatever they are."""
    head = "\r\n".join([f"{method} {target} HTTP/1.1", "Host: localhost", *lines])
    return head.encode() + b"\r\n\r\n" + body


def statuses(server: Server, sent: bytes) -> list[int]:
    """The status of each answer until the server closes or falls silent."""
    with server.connect() as connection:
        connection.settimeout(60)
        try:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            answered = b"".join(iter(lambda: connection.recv(65536), b""))
        except TimeoutError:
            raise
        except OSError:
            return []  # Closed while we were sending.
    heads = answered.split(b"HTTP/1.1 ")[1:]
    return [int(head[:3]) for head in heads]


def assert_refused(server: Server, sent: bytes) -> None:
    """Assert a 4xx or a closed connection, and that the server still answers."""
    found = statuses(server, sent)
    assert [status for status in found if not 400 <= status < 500] == [], found
    assert server.get("/healthz").status_code == 200


def described(path: str) -> list[str]:
    """The headers that make a body an ordinary request to `path`."""
    special = {
        "/tus/": ["Tus-Resumable: 1.0.0", "Upload-Length: 10"],
        "/resumable/": ["Upload-Complete: ?1"],
        "/api/uploads": ["Content-Type: application/json"],
    }
    return special.get(path, [f"Content-Type: {FORM}"])


def test_the_same_request_without_the_attack_is_served(server: Server) -> None:
    lines = [*described("/upload"), f"Content-Length: {len(CHUNK)}"]
    chunked = [*described("/upload"), "Transfer-Encoding: chunked"]
    in_chunks = f"{len(CHUNK):x}\r\n".encode() + CHUNK + b"\r\n0\r\n\r\n"
    assert statuses(server, request("POST", "/upload", lines, CHUNK)) == [200]
    assert statuses(server, request("POST", "/upload", chunked, in_chunks)) == [200]


@pytest.mark.parametrize("name", BAD_IDS)
@pytest.mark.parametrize("path", WITH_IDS)
def test_an_invalid_id_is_refused(server: Server, path: str, name: str) -> None:
    for method in ("HEAD", "DELETE", "PATCH"):
        lines = ["Tus-Resumable: 1.0.0", "Upload-Offset: 0", "Content-Length: 0"]
        assert_refused(server, request(method, path.format(BAD_IDS[name]), lines))


@pytest.mark.parametrize("raw", [b"/media/\x00", b"/media/\xff\xfe", b"/media/a b", b"/media/\x7f"])
def test_an_invalid_request_target_is_refused(server: Server, raw: bytes) -> None:
    assert_refused(server, b"GET " + raw + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")


@pytest.mark.parametrize("name", BAD_FRAMING)
@pytest.mark.parametrize("path", POSTED)
def test_a_body_of_ambiguous_length_is_refused(server: Server, path: str, name: str) -> None:
    assert_refused(server, request("POST", path, [*described(path), *BAD_FRAMING[name]], BODY))


@pytest.mark.parametrize("name", BAD_CHUNKS)
@pytest.mark.parametrize("path", POSTED)
def test_a_malformed_chunked_body_is_refused(server: Server, path: str, name: str) -> None:
    lines = [*described(path), "Transfer-Encoding: chunked"]
    assert_refused(server, request("POST", path, lines, BAD_CHUNKS[name]))


@pytest.mark.parametrize("name", BAD_NUMBERS)
@pytest.mark.parametrize(
    ("path", "others", "header"),
    [
        ("/tus/", ["Tus-Resumable: 1.0.0"], "Upload-Length"),
        # From version 8 on such a length is ignored instead (draft -12, section 4.1.3).
        ("/resumable/", ["Upload-Complete: ?0", f"{INTEROP}: 7"], "Upload-Length"),
        ("/resumable/", ["Upload-Complete: ?0"], "Upload-Offset"),
    ],
)
def test_a_header_that_is_not_a_byte_count_is_refused(
    server: Server, path: str, others: list[str], header: str, name: str
) -> None:
    lines = [*others, f"{header}: {BAD_NUMBERS[name]}", "Content-Length: 0"]
    assert_refused(server, request("POST", path, lines))


@pytest.mark.parametrize("name", BAD_NUMBERS)
@pytest.mark.parametrize("field", ["dzchunkindex", "dztotalfilesize", "dzchunkbyteoffset"])
def test_a_field_that_is_not_a_byte_count_is_refused(server: Server, field: str, name: str) -> None:
    file = ChunkedFile(BODY, len(BODY), key="hostile")
    body = file.body(0, **{field: BAD_NUMBERS[name]})
    lines = [f"Content-Type: {FORM}", f"Content-Length: {len(body)}"]
    assert_refused(server, request("POST", "/upload", lines, body))


@pytest.mark.parametrize("size", [FOREVER, "9" * 5000, "-1", "1e400", "NaN", '"5"', "0x10", "+5"])
def test_a_size_that_is_not_a_byte_count_is_refused(server: Server, size: str) -> None:
    body = f'{{"name": "a.mp4", "size": {size}}}'.encode()
    lines = ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    assert_refused(server, request("POST", "/api/uploads", lines, body))


@pytest.mark.parametrize("path", [*POSTED, "/media/" + "0" * 32])
def test_a_flood_of_headers_is_refused(server: Server, path: str) -> None:
    for flood in (
        [f"X-Header-{number}: a" for number in range(5000)],
        ["X-Long: " + "a" * 100_000],
        ["X-" + "a" * 100_000 + ": a"],
        ["Range: bytes=" + "0-0," * 20_000],
    ):
        assert_refused(server, request("POST", path, [*flood, "Content-Length: 0"]))


@pytest.mark.parametrize("origin", ["http://[", "http://[x]", "null", "://", "\x7f", "http://\xff"])
def test_an_invalid_origin_is_refused(server: Server, origin: str) -> None:
    lines = [f"Origin: {origin}", "Content-Type: application/json", "Content-Length: 2"]
    assert_refused(server, request("POST", "/api/uploads", lines, b"{}"))


@pytest.mark.parametrize("boundary", ["", '""', "a" * 71, "\xff", '"a', "a\x00b", "a; boundary=b"])
def test_an_invalid_boundary_is_refused(server: Server, boundary: str) -> None:
    for path in ("/upload", "/batch"):
        kind = f"Content-Type: multipart/form-data; boundary={boundary}"
        lines = [kind, f"Content-Length: {len(CHUNK)}"]
        assert_refused(server, request("POST", path, lines, CHUNK))


@pytest.mark.parametrize("path", ["/upload", "/batch"])
@pytest.mark.parametrize(
    "body",
    [
        b"\r" * 500_000,
        f"--{BOUNDARY}\r\n".encode() * 20_000,
        f"--{BOUNDARY}\r\nContent-Disposition: form-data; name=".encode() + b'"' * 100_000,
        f"--{BOUNDARY}\r\n".encode() + b"X: a\r\n" * 100_000,
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="a"\r\n\r\n'.encode() * 20_000,
    ],
    ids=["line ends", "boundaries", "quotes", "part headers", "fields"],
)
def test_a_body_of_nothing_but_syntax_is_refused(server: Server, path: str, body: bytes) -> None:
    lines = [f"Content-Type: {FORM}", f"Content-Length: {len(body)}"]
    assert_refused(server, request("POST", path, lines, body))


def test_none_of_it_caused_an_error_in_the_server(server: Server) -> None:
    assert "unexpected error" not in server.log
