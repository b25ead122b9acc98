"""Metrics of requests, and Server-Timing (W3C) in responses to writes."""

from __future__ import annotations

from contextvars import Token
from typing import NamedTuple

from flask import Request, Response

from app.http.context import PROBLEM_KEY, SENDING_KEY
from app.ingest import stages
from app.ingest.slots import SAFE_METHODS
from app.ingest.stages import Stage, StageClock
from app.run.monitoring.instruments import OTHER, Instruments, known_method

STATIC = "static"

TOTAL = "total"

RECEIVED_KEY = "sluice.received"
"""Environment key from which the access log reads how many bytes of the body have arrived."""

_RUNNING_KEY = "sluice.running"


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
        """Start counting and timing; call this before the rest of the application."""
        is_static = request.endpoint == STATIC
        protocol = STATIC if is_static else request.blueprint or OTHER
        clock = StageClock()
        clock.on_arrival = lambda count: self._instruments.received_bytes(protocol).inc(count)
        request.environ[_RUNNING_KEY] = _Running(protocol, clock, stages.start(clock))
        request.environ[SENDING_KEY] = self
        self._instruments.requests_in_progress(protocol).inc()

    def count(self, request: Request, response: Response) -> None:
        """Count the response, and add Server-Timing to that of a write."""
        running: _Running = request.environ[_RUNNING_KEY]
        status = f"{response.status_code // 100}xx"
        self._instruments.requests(running.protocol, known_method(request.method), status).inc()
        # Codes are ours or Werkzeug's, never text from a client.
        if PROBLEM_KEY in request.environ:
            self._instruments.errors(request.environ[PROBLEM_KEY]).inc()
        if request.method in SAFE_METHODS:
            return
        seconds, total = running.clock.seconds, running.clock.elapsed
        spent = {stage.value: seconds[stage] for stage in Stage if stage in seconds}
        response.headers["Server-Timing"] = print_timing({**spent, TOTAL: total})
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
        self._instruments.request_seconds(running.protocol).observe(clock.elapsed)
        if request.method not in SAFE_METHODS:
            self._instruments.count_stages(clock.seconds)
        stages.stop(running.token)
        request.environ[RECEIVED_KEY] = clock.arrived

    def began(self) -> None:
        """See `Sending.began`."""
        self._instruments.downloads_in_progress.inc()

    def ended(self, count: int) -> None:
        """See `Sending.ended`."""
        self._instruments.downloads_in_progress.dec()
        self._instruments.sent_bytes.inc(count)


def print_timing(seconds: dict[str, float]) -> str:
    """The value of the header; its durations are milliseconds."""
    return ", ".join(f"{name};dur={spent * 1000:.1f}" for name, spent in seconds.items())
