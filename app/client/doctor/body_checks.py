"""What shows only with a body: whether it streams, how large it may be, how long it may pause."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlencode

from app.client.doctor.bare_http import BareConnection
from app.client.doctor.findings import Finding, Level
from app.client.errors import ConnectionFailed
from app.client.spans import Spans
from app.client.transport import Transport

PROBE_NAME = "sluice-doctor"
PROBE_BYTES = 8 * 1024 * 1024
SENT_AT_ONCE = 3 * 1024 * 1024
"""The server records what has arrived once a second, in blocks of 1 MiB; a proxy's memory buffers
(nginx: 16 KiB) must not be what swallows it."""

LOOK_SECONDS = 0.25
SEEN_WITHIN_SECONDS = 8.0
"""Well beyond the second after which the server records what it has."""

SIZES = tuple(
    size * 1024 * 1024 for size in (1, 2, 8, 16, 32, 64, 100, 128, 256, 512, 1024, 2048, 4096)
)
BISECTIONS = 5
ENOUGH_BYTES = 100 * 1000 * 1000
"""The client sends no larger body than this."""

NGINX_STREAMING = ("proxy_request_buffering off;", "proxy_http_version 1.1;")
NGINX_SIZE = ("client_max_body_size 0;",)


def check_streaming(transport: Transport, pause_seconds: float) -> Iterator[Finding]:
    """Send a slow body and look from beside whether the server sees it; then let it pause."""
    with _probe_upload(transport) as upload_id, BareConnection(transport.base_url) as slow:
        slow.send_head(
            "POST",
            f"/upload?{_fields(upload_id)}",
            Content_Type="application/octet-stream",
            Content_Length=str(PROBE_BYTES),
        )
        began = time.monotonic()
        slow.send(bytes(SENT_AT_ONCE))
        yield _streaming(_wait_until_seen(transport, upload_id, slow), began)
        yield _pause(slow, pause_seconds)


@contextmanager
def _probe_upload(transport: Transport) -> Iterator[str]:
    wish = {"name": PROBE_NAME, "size": PROBE_BYTES}
    upload_id = str(transport.json("POST", "/api/uploads", json=wish)["id"])
    try:
        yield upload_id
    finally:
        transport.patiently(lambda: transport.request("DELETE", f"/api/uploads/{upload_id}"))


def _fields(upload_id: str) -> str:
    return urlencode(
        {
            "dzuuid": upload_id,
            "dzchunkindex": 0,
            "dztotalfilesize": PROBE_BYTES,
            "dzchunksize": PROBE_BYTES,
            "dztotalchunkcount": 1,
            "dzchunkbyteoffset": 0,
        }
    )


def _wait_until_seen(transport: Transport, upload_id: str, slow: BareConnection) -> bool:
    deadline = time.monotonic() + SEEN_WITHIN_SECONDS
    while time.monotonic() < deadline:
        upload = transport.json("GET", f"/api/uploads/{upload_id}")
        if Spans(upload["received"]).total > 0:
            return True
        if slow.has_news(LOOK_SECONDS):
            answer = slow.answer()
            status = "no answer" if answer is None else f"status {answer.status}"
            raise ConnectionFailed(f"The probe was ended in mid-body: {status}.")
    return False


def _streaming(is_seen: bool, began: float) -> Finding:
    if is_seen:
        seconds = time.monotonic() - began
        text = f"bodies stream: the server had the first bytes after {seconds:.1f} s"
        return Finding("request buffering", Level.OK, text)
    return Finding(
        "request buffering",
        Level.CHANGE,
        f"a proxy holds bodies back: after {SEEN_WITHIN_SECONDS:g} s the server had seen nothing",
        (
            "What is held back is lost with the connection, and the progress shown is not true.",
            "In the location block of nginx:",
            *(f"    {line}" for line in NGINX_STREAMING),
        ),
    )


def _pause(slow: BareConnection, seconds: float) -> Finding:
    """A body that stops for a while, as on a train."""
    began = time.monotonic()
    if not slow.has_news(seconds):
        return Finding("pause in a body", Level.OK, f"{seconds:g} s of silence are endured")
    answer = slow.answer()
    how = "without an answer" if answer is None else f"with status {answer.status}"
    text = f"after {time.monotonic() - began:.0f} s of silence the request is ended {how}"
    advice = ("Short pauses cost a chunk. In nginx: client_body_timeout 120s;",)
    return Finding("pause in a body", Level.CHANGE, text, advice)


def check_body_size(server: str, chunk_bytes: int) -> Finding:
    """The largest body that something on the way lets through, found without sending any."""
    passed, refused = 0, None
    for size in sorted({*SIZES, chunk_bytes}):
        if not _lets_through(server, size):
            refused = size
            break
        passed = size
    if refused is None:
        return Finding("body size", Level.OK, f"bodies of {_mebibytes(passed)} pass")
    for _ in range(BISECTIONS):
        middle = (passed + refused) // 2
        passed, refused = (middle, refused) if _lets_through(server, middle) else (passed, middle)
    return _size_finding(passed, refused, chunk_bytes)


def _size_finding(passed: int, refused: int, chunk_bytes: int) -> Finding:
    text = f"bodies above about {_mebibytes(passed)} are refused with 413"
    if passed >= ENOUGH_BYTES:
        return Finding("body size", Level.OK, f"{text}; this client sends none so large")
    hurts = "the chunks of the page and of other clients" if refused <= chunk_bytes else "bundles"
    advice = (
        f"This client adapts, but {hurts} may not fit. In nginx:",
        *(f"    {line}" for line in NGINX_SIZE),
    )
    return Finding("body size", Level.CHANGE, text, advice)


def _lets_through(server: str, size: int) -> bool:
    """Whether a body of that size is asked for, or refused by the server itself.

    `Expect: 100-continue` makes proxies judge by the headers alone. The request has none of the
    fields a chunk needs, so that the server, if it is asked, makes nothing of it.
    """
    with BareConnection(server) as connection:
        connection.send_head(
            "POST",
            "/upload",
            Content_Type="application/octet-stream",
            Content_Length=str(size),
            Expect="100-continue",
        )
        answer = connection.answer()
    return answer is None or answer.status != 413


def _mebibytes(size: int) -> str:
    return f"{size / 1024 / 1024:.1f} MiB"
