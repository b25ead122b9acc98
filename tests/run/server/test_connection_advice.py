"""How many connections the server asks senders to use."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from app.ingest.connection import MOST_CONNECTIONS, advised_connections
from tests.live_server import running_server
from tests.waiting import wait_until


@pytest.mark.parametrize(
    ("open_now", "advice"), [(0, None), (50, None), (51, 23), (75, 12), (99, 1), (100, 1), (130, 1)]
)
def test_advice_falls_as_connections_fill_the_server(open_now: int, advice: int | None) -> None:
    assert advised_connections(open_now, 100) == advice


def test_senders_that_obey_find_room_for_all() -> None:
    senders, most, used = 200, 4000, MOST_CONNECTIONS
    for _ in range(50):
        used = (used + (advised_connections(senders * used, most) or MOST_CONNECTIONS)) // 2
    assert 0.5 < senders * used / most < 0.9


def test_an_address_with_many_connections_is_asked_to_use_fewer(tmp_path: Path) -> None:
    options = {"SLUICE_CONNECTIONS_PER_ADDRESS": "20", "SLUICE_WORKERS": "1"}
    options["SLUICE_TRUSTED_PROXIES"] = "10.0.0.1"  # Proxies have no limit.
    with running_server(tmp_path, **options) as server, ExitStack() as stack:
        assert server.get("/api/server").json()["connections"] is None
        for _ in range(15):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        wait_until(lambda: server.get("/api/server").json()["connections"] is not None, "advice")
        assert 1 <= server.get("/api/server").json()["connections"] <= 12
