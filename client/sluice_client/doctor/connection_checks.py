"""What shows without sending a body: the way there, clocks, idle connections."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from sluice_client.doctor.bare_http import Answer, BareConnection
from sluice_client.doctor.findings import Finding, Level
from sluice_client.errors import ConnectionFailed
from sluice_client.options import Options

SKEW_SECONDS = 30.0
"""Beyond it dates in logs and on pages mislead; nothing of the transfer itself depends on it."""

PROXY_HEADERS = ("via", "cf-ray", "x-cache", "x-amz-cf-id", "x-served-by")


def check_way(options: Options) -> Iterator[Finding]:
    """Encryption, HTTP version, and who answers. Raises `ConnectionFailed` if nobody does."""
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
        raise ConnectionFailed(
            f"What answers there (status {answer.status}) is not a Sluice server."
        )
    return answer


def _encryption(server: str, tls: str | None) -> Finding:
    if tls:
        return Finding("encryption", Level.OK, f"TLS: {tls}; the certificate is valid")
    host = urlsplit(server).hostname or ""
    if host in {"localhost", "::1"} or host.startswith("127."):
        return Finding("encryption", Level.OK, "none, and none is needed within one machine")
    advice = ("Use https: on plain http anyone on the way can read and change what is sent.",)
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
        return Finding("clock", Level.NOTE, "the server does not say what time it has")
    skew = there.timestamp() - here
    if abs(skew) <= SKEW_SECONDS:
        return Finding("clock", Level.OK, f"{abs(skew):.1f} s apart")
    where = "ahead of" if skew > 0 else "behind"
    advice = ("Synchronize both clocks by NTP: dates shown are wrong by this much.",)
    text = f"the server is {abs(skew):.0f} s {where} this machine"
    return Finding("clock", Level.CHANGE, text, advice)


def _server_time(answer: Answer) -> datetime | None:
    """Sluice's own time to the millisecond, else the Date header of whoever answers."""
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
