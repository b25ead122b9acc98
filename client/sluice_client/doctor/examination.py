"""All checks, in the order in which a person would make them."""

from __future__ import annotations

from collections.abc import Iterator

from sluice_client.doctor.body_checks import body_size_finding, check_streaming, find_body_limit
from sluice_client.doctor.connection_checks import check_idle_connection, check_way
from sluice_client.doctor.findings import Finding, Level
from sluice_client.errors import ConnectionFailed, Refused
from sluice_client.transport import Transport

PAUSE_SECONDS = 10.0


def examine(transport: Transport, pause_seconds: float = PAUSE_SECONDS) -> Iterator[Finding]:
    """Findings one by one; raises `ConnectionFailed` if there is no server at all.

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
