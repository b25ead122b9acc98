"""GET /metrics, and what is counted of each request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from flask import Blueprint, Flask, Response, current_app, g, request
from prometheus_client import CONTENT_TYPE_LATEST, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily

from app.http.context import PROBLEM_KEY, SENDING_KEY, current_services
from app.monitoring.instruments import OTHER, Instruments, known_method
from app.monitoring.reading import Snapshot, all_counts, start_time
from app.monitoring.server_timing import current_clock, is_write
from app.storage.room import free_bytes

blueprint = Blueprint("metrics", __name__)

_EXTENSION = "sluice.instruments"

STATIC = "static"


@blueprint.get("/metrics")
def metrics() -> Response:
    """The text that Prometheus reads: what all processes have counted, and how things stand."""
    return Response(generate_latest(_Everything()), content_type=CONTENT_TYPE_LATEST)


def init_app(app: Flask, instruments: Instruments) -> None:
    """Count every request; `server_timing` must have been set up before."""
    app.extensions[_EXTENSION] = instruments
    app.before_request(_begin)
    app.after_request(_count)
    app.teardown_request(_end)


def snapshot() -> Snapshot:
    """All of it as numbers."""
    return Snapshot(_Everything().collect())


class _Everything:
    def collect(self) -> Iterable[Metric]:
        yield from all_counts(_instruments()).collect()
        yield GaugeMetricFamily(
            "sluice_start_time_seconds",
            "When the server started, in seconds since 1970.",
            value=start_time(_instruments()),
        )
        services = current_services()
        under_way = GaugeMetricFamily(
            "sluice_uploads_under_way", "Uploads that are not complete.", labels=["state"]
        )
        for state, count in services.uploads.count_active().items():
            under_way.add_metric([state.value], count)
        yield under_way
        free = GaugeMetricFamily(
            "sluice_free_bytes", "Free space that uploads may use.", labels=["folder"]
        )
        free.add_metric(["staging"], free_bytes(services.settings.staging_dir))
        free.add_metric(["library"], free_bytes(services.settings.library_dir))
        yield free


class _Downloads:
    """A `Sending` that counts."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments

    def began(self) -> None:
        self._instruments.downloads_in_progress.inc()

    def ended(self, count: int) -> None:
        self._instruments.downloads_in_progress.dec()
        self._instruments.sent_bytes.inc(count)


def _instruments() -> Instruments:
    return cast(Instruments, current_app.extensions[_EXTENSION])


def _protocol() -> str:
    """The blueprint, which is the protocol; `other` for addresses that none has."""
    if request.endpoint == STATIC:
        return STATIC
    return request.blueprint or OTHER


def _begin() -> None:
    instruments, protocol = _instruments(), _protocol()
    g.in_progress = instruments.requests_in_progress.labels(protocol)
    g.in_progress.inc()
    request.environ[SENDING_KEY] = _Downloads(instruments)
    current_clock().on_arrival = lambda count: instruments.received_bytes.labels(protocol).inc(
        count
    )


def _count(response: Response) -> Response:
    instruments = _instruments()
    status = f"{response.status_code // 100}xx"
    instruments.requests.labels(_protocol(), known_method(request.method), status).inc()
    # Codes are ours or Werkzeug's, never a client's words.
    if PROBLEM_KEY in request.environ:
        instruments.errors.labels(request.environ[PROBLEM_KEY]).inc()
    return response


def _end(_error: BaseException | None) -> None:
    if "in_progress" not in g:
        return
    g.in_progress.dec()
    instruments, clock = _instruments(), current_clock()
    clock.tell()
    instruments.request_seconds.labels(_protocol()).observe(clock.elapsed)
    if is_write():
        instruments.count_stages(clock.seconds)
