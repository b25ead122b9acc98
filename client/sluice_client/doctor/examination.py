"""Runs all checks in order, and has those without a body: connection, clock, idle time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from sluice_client.doctor import Finding, Level
from sluice_client.doctor.bare_http import Answer, BareConnection
from sluice_client.doctor.body_checks import body_size_finding, check_streaming, find_body_limit
from sluice_client.errors import ConnectionFailed, Refused
from sluice_client.options import Options
from sluice_client.transport import Transport

PAUSE_SECONDS = 10.0

SKEW_SECONDS = 30.0
"""Beyond it, dates in logs and on pages mislead. Transfers do not depend on it."""

PROXY_HEADERS = ("via", "cf-ray", "x-cache", "x-amz-cf-id", "x-served-by")


def examine(transport: Transport, pause_seconds: float = PAUSE_SECONDS) -> Iterator[Finding]:
    """Findings one by one; raises `ConnectionFailed` if no server answers at all.

    Sends some megabytes to an upload of its own, which is cancelled at the end, and waits twice
    for `pause_seconds`.
    """
    options = transport.options
    yield from check_way(options)
    chunk_bytes = int(transport.json("GET", "/api/server")["chunk_bytes"])
    limit = find_body_limit(options, chunk_bytes)
    yield body_size_finding(limit, chunk_bytes)
    try:
        yield from check_streaming(transport, pause_seconds, limit.passes)
        yield check_idle_connection(options, pause_seconds)
    except (ConnectionFailed, Refused) as error:
        yield Finding("examination", Level.CHANGE, f"ended early: {error}")


def check_way(options: Options) -> Iterator[Finding]:
    """Encryption, HTTP version, and what answers. Raises `ConnectionFailed` if nothing does."""
    with BareConnection(options) as connection:
        asked_at, began = time.time(), time.monotonic()
        answer = _ask(connection)
        took = time.monotonic() - began
        yield _encryption(options.server, connection.tls)
    yield _version(answer)
    yield _who(answer)
    yield Finding("round trip", Level.OK, f"{took * 1000:.0f} ms for a small request")
    yield _clock(answer, asked_at + took / 2)


def _ask(connection: BareConnection) -> Answer:
    connection.send_head("GET", "/api/server", Accept="application/json")
    answer = connection.answer()
    if answer is None:
        raise ConnectionFailed("The server closed the connection without an answer.")
    if answer.status != 200 or b"chunk_bytes" not in answer.body:
        raise ConnectionFailed(f"What answered (status {answer.status}) is not a Sluice server.")
    return answer


def _encryption(server: str, tls: str | None) -> Finding:
    if tls:
        return Finding("encryption", Level.OK, f"TLS: {tls}; the certificate is valid")
    host = urlsplit(server).hostname or ""
    if host in {"localhost", "::1"} or host.startswith("127."):
        return Finding("encryption", Level.OK, "none, and none is needed within one machine")
    advice = ("Use https: with plain http, anyone in between can read and change what is sent.",)
    return Finding("encryption", Level.CHANGE, "none", advice)


def _version(answer: Answer) -> Finding:
    if answer.version == "HTTP/1.1":
        return Finding("HTTP version", Level.OK, "HTTP/1.1, with connections that stay open")
    advice = ("Every request opens a new connection. In nginx: proxy_http_version 1.1;",)
    return Finding("HTTP version", Level.CHANGE, answer.version, advice)


def _who(answer: Answer) -> Finding:
    signs = [f"{name}: {answer.headers[name]}" for name in PROXY_HEADERS if name in answer.headers]
    name = answer.headers.get("server", "a server that does not give its name")
    return Finding("who answers", Level.OK, "; ".join([name, *signs]))


def _clock(answer: Answer, here: float) -> Finding:
    there = _server_time(answer)
    if there is None:
        return Finding("clock", Level.NOTE, "the server does not report its time")
    skew = there.timestamp() - here
    if abs(skew) <= SKEW_SECONDS:
        return Finding("clock", Level.OK, f"{abs(skew):.1f} s apart")
    where = "ahead of" if skew > 0 else "behind"
    advice = ("Synchronize both clocks with NTP: dates are off by this much.",)
    text = f"the server is {abs(skew):.0f} s {where} this machine"
    return Finding("clock", Level.CHANGE, text, advice)


def _server_time(answer: Answer) -> datetime | None:
    """Sluice's own time to the millisecond, or the Date header of whatever answers."""
    try:
        return datetime.fromisoformat(json.loads(answer.body)["time"]).astimezone(UTC)
    except (ValueError, KeyError, TypeError):
        pass
    try:
        return parsedate_to_datetime(answer.headers.get("date", "")).astimezone(UTC)
    except ValueError:
        return None


def check_idle_connection(options: Options, seconds: float) -> Finding:
    """Whether a connection without requests stays open for `seconds`."""
    with BareConnection(options) as connection:
        _ask(connection)
        began = time.monotonic()
        if not connection.has_news(seconds):
            text = f"still open after {seconds:g} s"
            return Finding("idle connection", Level.OK, text)
        waited = time.monotonic() - began
    text = f"closed after {waited:.0f} s"
    advice = ("Every pause costs a new connection. In nginx: keepalive_timeout 300s;",)
    return Finding("idle connection", Level.NOTE, text, advice)
