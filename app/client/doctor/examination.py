"""All checks, in the order in which one would look."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from app.client.doctor.body_checks import check_body_size, check_streaming
from app.client.doctor.connection_checks import check_idle_connection, check_way
from app.client.doctor.findings import Finding, Level
from app.client.errors import SluiceError
from app.client.transport import Transport

PAUSE_SECONDS = 10.0


def examine(transport: Transport, pause_seconds: float = PAUSE_SECONDS) -> Iterator[Finding]:
    """Findings one by one; raises `ConnectionFailed` if there is no server at all.

    Sends some megabytes to an upload of its own, which is cancelled at the end, and waits twice
    for `pause_seconds`.
    """
    server = transport.base_url
    yield from check_way(server)
    chunk_bytes = int(transport.json("GET", "/api/server")["chunk_bytes"])
    checks: tuple[tuple[str, Callable[[], Iterator[Finding]]], ...] = (
        ("request buffering", lambda: check_streaming(transport, pause_seconds)),
        ("body size", lambda: iter([check_body_size(server, chunk_bytes)])),
        ("idle connection", lambda: iter([check_idle_connection(server, pause_seconds)])),
    )
    for name, check in checks:
        try:
            yield from check()
        except SluiceError as error:
            yield Finding(name, Level.CHANGE, f"the check itself failed: {error}")
