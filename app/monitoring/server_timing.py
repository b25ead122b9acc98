"""Server-Timing (W3C): in the answer to a request that writes, where its time went."""

from __future__ import annotations

from typing import cast

from flask import Flask, Response, g, request

from app.request import stages
from app.request.stages import Stage, StageClock

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

TOTAL = "total"

RECEIVED_KEY = "sluice.received"
"""Where the access log finds how many bytes of the body have arrived."""


def init_app(app: Flask) -> None:
    """Time every request, from before anything else of the application sees it."""
    app.before_request(_start)
    app.after_request(_tell)
    app.teardown_request(_stop)


def current_clock() -> StageClock:
    """The clock of the request at hand."""
    return cast(StageClock, g.stage_clock)


def is_write() -> bool:
    """Whether the request at hand is one whose stages tell something."""
    return request.method not in SAFE_METHODS


def _start() -> None:
    g.stage_clock = StageClock()
    g.stage_clock_token = stages.start(g.stage_clock)


def _stop(_error: BaseException | None) -> None:
    token = g.pop("stage_clock_token", None)
    if token is not None:  # Else the request ended before it began.
        stages.stop(token)
        request.environ[RECEIVED_KEY] = current_clock().arrived


def _tell(response: Response) -> Response:
    if is_write():
        clock = current_clock()
        spent = {stage.value: clock.seconds[stage] for stage in Stage if stage in clock.seconds}
        response.headers["Server-Timing"] = print_timing({**spent, TOTAL: clock.elapsed})
        # A browser keeps the figures from a page of another site, unless told which may have them.
        allowed = response.headers.get("Access-Control-Allow-Origin")
        if allowed is not None:
            response.headers["Timing-Allow-Origin"] = allowed
    return response


def print_timing(seconds: dict[str, float]) -> str:
    """The value of the header; its durations are milliseconds."""
    return ", ".join(f"{name};dur={spent * 1000:.1f}" for name, spent in seconds.items())
