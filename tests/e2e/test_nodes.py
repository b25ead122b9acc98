"""Servers that share their records on PostgreSQL: joining, leaving, and what all of them know."""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Iterator
from itertools import count

import pytest

from tests.live_server import Server
from tests.postgresql import Postgresql, postgresql
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

_numbers = count()


@pytest.fixture(scope="module")
def database_server() -> Iterator[Postgresql]:
    with postgresql() as server:
        yield server


@pytest.fixture
def start_node(
    start_server: Callable[..., Server], database_server: Postgresql
) -> Callable[..., Server]:
    """Starts a node of a fleet, for one test."""
    url = database_server.create(f"fleet{next(_numbers)}")

    def start(**options: str) -> Server:
        return start_server(SLUICE_DATABASE_URL=url, **options)

    return start


def states_of(server: Server) -> dict[str, str]:
    """The states of all nodes, by the ports of their addresses."""
    nodes = server.get("/api/status").json()["nodes"]
    return {node["address"].rpartition(":")[2]: node["state"] for node in nodes}


def wait_until_ready(server: Server, nodes: Collection[Server]) -> None:
    """Until it shows these nodes, all ready."""
    expected = {str(node.port): "ready" for node in nodes}
    wait_until(lambda: states_of(server) == expected, "all are ready")


def test_every_node_shows_all_of_them_until_they_end(start_node: Callable[..., Server]) -> None:
    one, two = start_node(), start_node(SLUICE_DRAIN_SECONDS="600")
    for server in (one, two):
        wait_until_ready(server, [one, two])
        status = server.get("/api/status").json()
        (this,) = [node for node in status["nodes"] if node["is_this"]]
        assert this["address"].rpartition(":")[2] == str(server.port)
        assert this["free_bytes"] > 0
        assert this["problems"] == []
        assert status["fleet"]["ready"] == 2
        assert "sluice_nodes 2.0" in server.get("/metrics").text

    assert two.process is not None
    two.process.terminate()
    leaving = {str(one.port): "ready", str(two.port): "leaving"}
    wait_until(lambda: states_of(one) == leaving, "it says that it leaves")
    two.stop()
    assert states_of(one) == {str(one.port): "ready"}

    two.start()
    wait_until(lambda: len(states_of(one)) == 2, "it joins again")
    two.stop(signal.SIGKILL)
    killed = {str(one.port): "ready", str(two.port): "gone"}
    wait_until(lambda: states_of(one) == killed, "its lease ends")
    assert "sluice_nodes 1.0" in one.get("/metrics").text


def test_where_records_are_in_a_file_there_are_no_nodes(server: Server) -> None:
    status = server.get("/api/status").json()
    assert status["nodes"] == []
    assert status["fleet"]["ready"] == 0
    assert "sluice_nodes 1.0" in server.get("/metrics").text
