"""Node's keep-alive agent, which reuses a connection unless told `Connection: close`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.live_server import Server
from tests.long_tests import long
from tests.nodejs import run_script

SCRIPT = Path(__file__).with_name("keep_alive.mjs")
LARGE = 40_000_000
"""More than the server reads of a refused body."""

TUS = {
    "Tus-Resumable": "1.0.0",
    "Upload-Offset": "5",
    "Content-Type": "application/offset+octet-stream",
}
FORM = {"Content-Type": "multipart/form-data; boundary=x"}
JSON = {"Content-Type": "application/json"}
CREATED = {
    "method": "POST",
    "path": "/tus/",
    "headers": {"Tus-Resumable": "1.0.0", "Upload-Length": "9"},
}

pytestmark = pytest.mark.e2e


def failing_requests(upload_id: str) -> list[tuple[int, dict[str, Any]]]:
    """Requests that fail, each with its status."""
    patch: dict[str, Any] = {"method": "PATCH", "path": f"/tus/{upload_id}", "headers": TUS}
    at_start = {**patch, "headers": {**TUS, "Upload-Offset": "0"}}
    return [
        (408, {**at_start, "length": 2000, "at_first": 0}),
        (408, {"method": "POST", "path": "/upload", "headers": FORM, "length": 99, "at_first": 9}),
        (409, {**patch, "length": 2000}),
        (409, {**patch, "length": LARGE}),
        (409, {**patch, "length": 2000, "at_first": 20}),
        (413, {"method": "POST", "path": "/api/uploads", "headers": JSON, "length": 100_000}),
        (413, {"method": "POST", "path": "/api/uploads", "headers": JSON, "length": LARGE}),
        (400, {"method": "POST", "path": "/upload", "headers": FORM, "length": 200_000}),
        (400, {"method": "POST", "path": "/batch", "headers": FORM, "length": LARGE}),
        (404, {"method": "POST", "path": "/nothing", "length": 200_000}),
        (404, {**patch, "path": "/tus/nothing", "length": LARGE}),
        (405, {"method": "PUT", "path": "/healthz", "length": LARGE}),
        (
            403,
            {"method": "POST", "path": "/upload", "headers": {"Origin": "http://b"}, "length": 9},
        ),
        (200, {"method": "GET", "path": "/healthz", "length": 200_000}),
        (200, {"method": "GET", "path": "/healthz", "length": LARGE, "at_first": 10}),
    ]


@pytest.mark.parametrize("rounds", [1, *long([3])])
def test_the_next_request_never_fails(start_server: Callable[..., Server], rounds: int) -> None:
    server = start_server(SLUICE_TEST_CONSTANTS="body_idle_seconds=1 min_bytes_per_second=0")
    headers = {"Tus-Resumable": "1.0.0", "Upload-Length": str(LARGE)}
    location = server.post("/tus/", headers=headers).headers["Location"]
    expected = failing_requests(location.rpartition("/")[2])
    task = {
        "url": server.url,
        "rounds": rounds,
        "failing": [request for _, request in expected],
        "posted": CREATED,
    }
    outcome = run_script(SCRIPT, task)
    assert outcome["failures"] == []
    assert outcome["statuses"] == [status for status, _ in expected] * rounds
    assert outcome["reused"] >= rounds, "a short rest is read, and the connection kept"
