"""The id and the metrics of requests, and Server-Timing (W3C) in responses to writes."""

from __future__ import annotations

import re
import secrets
from contextvars import Token
from typing import Any, NamedTuple

from flask import Request, Response

from app.http.context import PROBLEM_KEY, SENDING_KEY
from app.ingest import stages
from app.ingest.slots import SAFE_METHODS
from app.ingest.stages import Stage, StageClock
from app.run.monitoring.instruments import METHODS, OTHER, Instruments

STATIC = "static"

REQUEST_ID_KEY = "sluice.request_id"
RECEIVED_KEY = "sluice.received"
"""Keys of the WSGI environment from which the access log reads the request's id, and how many bytes
of the body have arrived."""

_RUNNING_KEY = "sluice.running"

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class _Running(NamedTuple):
    """A request that is being counted."""

    protocol: str
    clock: StageClock
    token: Token[StageClock | None]


class RequestMonitor:
    """Counts every request of an application, and the stored bytes it sends (a `Sending`)."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments

    def begin(self, request: Request) -> None:
        """Set the request's id, and start counting and timing; call this first."""
        is_static = request.endpoint == STATIC
        protocol = STATIC if is_static else request.blueprint or OTHER
        name_request(request.environ)
        clock = StageClock()
        clock.on_arrival = lambda count: self._instruments.received_bytes(protocol).inc(count)
        request.environ[_RUNNING_KEY] = _Running(protocol, clock, stages.start(clock))
        request.environ[SENDING_KEY] = self
        self._instruments.requests_in_progress(protocol).inc()

    def count(self, request: Request, response: Response) -> None:
        """Count the response; add the request's id, and Server-Timing if it is a write."""
        running: _Running = request.environ[_RUNNING_KEY]
        response.headers["X-Request-ID"] = request.environ[REQUEST_ID_KEY]
        method = request.method if request.method in METHODS else OTHER
        status = f"{response.status_code // 100}xx"
        self._instruments.requests(running.protocol, method, status).inc()
        # Codes are ours or Werkzeug's, never text from a client.
        if PROBLEM_KEY in request.environ:
            self._instruments.errors(request.environ[PROBLEM_KEY]).inc()
        if request.method in SAFE_METHODS:
            return
        seconds, total = running.clock.seconds, running.clock.elapsed
        timing = [f"{stage};dur={seconds[stage] * 1000:.1f}" for stage in Stage if stage in seconds]
        response.headers["Server-Timing"] = ", ".join([*timing, f"total;dur={total * 1000:.1f}"])
        # Browsers hide the figures from pages of other sites that are not listed here.
        allowed = response.headers.get("Access-Control-Allow-Origin")
        if allowed is not None:
            response.headers["Timing-Allow-Origin"] = allowed

    def end(self, request: Request) -> None:
        """Call this when the application is done; the response, if any, is sent afterwards."""
        running: _Running | None = request.environ.get(_RUNNING_KEY)
        if running is None:  # The request ended before `begin`.
            return
        clock = running.clock
        self._instruments.requests_in_progress(running.protocol).dec()
        clock.tell()
        if request.method not in SAFE_METHODS:
            self._instruments.count_stages(clock.seconds)
        self._instruments.request_seconds(running.protocol).observe(clock.elapsed)
        stages.stop(running.token)
        request.environ[RECEIVED_KEY] = clock.arrived

    def began(self) -> None:
        """See `Sending.began`."""
        self._instruments.downloads_in_progress.inc()

    def ended(self, count: int) -> None:
        """See `Sending.ended`."""
        self._instruments.downloads_in_progress.dec()
        self._instruments.sent_bytes.inc(count)


def name_request(environ: dict[str, Any]) -> str:
    """Set the request's id: the proxy's if it sends a valid one, otherwise a random one.

    It is in the response and in the log, so that a client's report can be found there.
    """
    given = environ.get("HTTP_X_REQUEST_ID", "")
    name = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
    environ[REQUEST_ID_KEY] = name
    return name
