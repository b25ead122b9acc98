"""Checks that need a body: whether it streams, how large it may be, how long it may pause."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlencode

from sluice_client.doctor import Finding, Level
from sluice_client.doctor.bare_http import BareConnection
from sluice_client.options import Options
from sluice_client.spans import Spans
from sluice_client.transport import Transport

PROBE_NAME = "sluice-doctor"
PROBE_BYTES = 8 * 1024 * 1024
SENT_AT_ONCE = 3 * 1024 * 1024
"""The server records what has arrived once a second, in blocks of 1 MiB; a proxy's memory buffers
(nginx: 16 KiB) must not be what swallows it."""

LOOK_SECONDS = 0.25
SEEN_WITHIN_SECONDS = 6.0
"""Well beyond the second after which the server records what it has."""

SIZES = tuple(
    size * 1024 * 1024 for size in (1, 2, 8, 16, 32, 64, 100, 128, 256, 512, 1024, 2048, 4096)
)
BISECTIONS = 5
ENOUGH_BYTES = 100 * 1000 * 1000
"""The client sends no larger body than this."""

NGINX_STREAMING = ("proxy_request_buffering off;", "proxy_http_version 1.1;")
NGINX_SIZE = ("client_max_body_size 0;",)


def check_streaming(
    transport: Transport, pause_seconds: float, largest_body: int
) -> Iterator[Finding]:
    """Send a slow body, ask on another connection whether the server sees it, then let it pause."""
    if largest_body < PROBE_BYTES:
        text = f"unknown, as bodies above {_mebibytes(largest_body)} are refused"
        yield Finding("request buffering", Level.NOTE, text)
        return
    with _probe_upload(transport) as upload_id, BareConnection(transport.options) as slow:
        slow.send_head(
            "POST",
            f"/upload?{_fields(upload_id)}",
            Content_Type="application/octet-stream",
            Content_Length=str(PROBE_BYTES),
        )
        began = time.monotonic()
        slow.send(bytes(SENT_AT_ONCE))
        is_seen = _wait_until_seen(transport, upload_id, slow)
        yield _streaming(is_seen, time.monotonic() - began)
        yield _pause(slow, began, pause_seconds)


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
    """Whether the server records bytes while the body is being sent, or soon after it is cut."""
    deadline = time.monotonic() + SEEN_WITHIN_SECONDS
    while time.monotonic() < deadline:
        upload = transport.json("GET", f"/api/uploads/{upload_id}")
        if Spans(upload["received"]).total > 0:
            return True
        if slow.has_news(LOOK_SECONDS):
            # The request was ended for its silence. What got through is recorded now.
            deadline = min(deadline, time.monotonic() + 2.0)
            time.sleep(LOOK_SECONDS)
    return False


def _streaming(is_seen: bool, seconds: float) -> Finding:
    if is_seen:
        text = f"bodies stream: the server had the first bytes after {seconds:.1f} s"
        return Finding("request buffering", Level.OK, text)
    return Finding(
        "request buffering",
        Level.CHANGE,
        f"a proxy buffers request bodies: the server had nothing after {SEEN_WITHIN_SECONDS:g} s",
        (
            "Buffered bytes are lost with the connection, and the progress shown is wrong.",
            "In the location block of nginx:",
            *(f"    {line}" for line in NGINX_STREAMING),
        ),
    )


def _pause(slow: BareConnection, silent_since: float, seconds: float) -> Finding:
    """A body that pauses for a while, as on a train."""
    left = max(0.0, silent_since + seconds - time.monotonic())
    if not slow.has_news(left):
        return Finding("pause in a body", Level.OK, f"{seconds:g} s without data are accepted")
    waited = time.monotonic() - silent_since
    answer = slow.answer()
    how = "without an answer" if answer is None else f"with status {answer.status}"
    text = f"the request ends {how} after {waited:.0f} s without data"
    advice = ("A short pause costs the chunk in flight. In nginx: client_body_timeout 120s;",)
    return Finding("pause in a body", Level.CHANGE, text, advice)


@dataclass(frozen=True, slots=True)
class BodyLimit:
    """The largest body known to pass, and the smallest known not to, in bytes."""

    passes: int
    refused: int | None


def find_body_limit(options: Options, chunk_bytes: int) -> BodyLimit:
    """The limit of the strictest proxy in between, found without sending any body."""
    passes, refused = 0, None
    for size in sorted({*SIZES, chunk_bytes}):
        if not _lets_through(options, size):
            refused = size
            break
        passes = size
    if refused is not None:
        for _ in range(BISECTIONS):
            middle = (passes + refused) // 2
            if _lets_through(options, middle):
                passes = middle
            else:
                refused = middle
    return BodyLimit(passes, refused)


def body_size_finding(limit: BodyLimit, chunk_bytes: int) -> Finding:
    """What a limit means for clients."""
    if limit.refused is None:
        return Finding("body size", Level.OK, f"bodies of {_mebibytes(limit.passes)} are accepted")
    text = f"bodies above about {_mebibytes(limit.passes)} are refused with 413"
    if limit.passes >= ENOUGH_BYTES:
        return Finding("body size", Level.OK, f"{text}; this client sends none that large")
    if limit.refused > chunk_bytes:
        hurts = "whole files from forms or other clients are refused"
    else:
        hurts = f"the chunks of the page ({_mebibytes(chunk_bytes)}) are refused"
    advice = (
        f"This client makes its chunks smaller, but {hurts}. In nginx:",
        *(f"    {line}" for line in NGINX_SIZE),
    )
    return Finding("body size", Level.CHANGE, text, advice)


def _lets_through(options: Options, size: int) -> bool:
    """Whether a body of that size gets past the proxies, even if the server itself refuses it.

    `Expect: 100-continue` makes proxies judge by the headers alone. The request has none of the
    fields a chunk needs, so the server, if it is reached, does nothing with it.
    """
    with BareConnection(options) as connection:
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
