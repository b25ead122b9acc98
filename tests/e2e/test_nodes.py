"""Servers that share their records on PostgreSQL: joining, leaving, and limits."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from itertools import count

import pytest
import requests

from app.core.access import FIRST_PROJECT, LOCAL, Role
from app.http.services import Services
from app.run.build import build_services
from app.settings import from_env
from tests.access.accounts import bearer
from tests.acting import acting
from tests.live_server import NO_FFMPEG, Server, running_server
from tests.postgresql import Postgresql
from tests.s3_servers import S3Server, new_prefix
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

MOST_UPLOADS = 5
MOST_NEW_UPLOADS = 20
"""Of one sender, at once and per minute."""

_numbers = count()


@pytest.fixture
def start_node(
    start_server: Callable[..., Server], postgresql_server: Postgresql, versitygw: S3Server
) -> Callable[..., Server]:
    """Starts a node of a fleet, for one test."""
    url = postgresql_server.create(f"fleet{next(_numbers)}", like="empty")
    shared = {"SLUICE_DATABASE_URL": url, **versitygw.access.settings(new_prefix())}

    def start(**options: str) -> Server:
        return start_server(**shared, **options)

    return start


def states_of(server: Server) -> dict[str, str]:
    """The states of all nodes, by the ports of their addresses."""
    shown = server.get("/api/status").json()["nodes"]
    return {node["address"].rpartition(":")[2]: node["state"] for node in shown}


def wait_until_ready(server: Server, expected: Collection[Server]) -> None:
    """Until it shows these nodes, all ready."""
    ready = {str(node.port): "ready" for node in expected}
    wait_until(lambda: states_of(server) == ready, "all are ready")


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
    assert "sluice_nodes 1.0" in one.get("/metrics").text


def test_where_records_are_in_a_file_there_are_no_nodes(server: Server) -> None:
    status = server.get("/api/status").json()
    assert status["nodes"] == []
    assert status["fleet"]["ready"] == 0
    assert "sluice_nodes 1.0" in server.get("/metrics").text


# ---- limits --------------------------------------------------------------------------------------


@dataclass
class Fleet:
    """Two nodes with limits, and what a test needs of their records."""

    nodes: list[Server]
    services: Services
    _numbers: Iterator[int] = field(default_factory=count)

    def key(self, project: str = FIRST_PROJECT) -> dict[str, str]:
        """Headers of a new sender."""
        _, secret = self.services.identity.keys.make(
            acting(self.services.context, project),
            name=f"key {next(self._numbers)}",
            role=Role.UPLOADER,
        )
        return bearer(secret)

    def create(self, number: int, key: dict[str, str], size: int = 100) -> requests.Response:
        """Ask a node for a new upload."""
        new = {"name": "film.mp4", "size": size}
        return self.nodes[number].post("/api/uploads", json=new, headers=key)

    def create_at_once(self, key: dict[str, str], size: int) -> list[int]:
        """Ask both nodes at the same time; the statuses, sorted."""
        with ThreadPoolExecutor(10) as pool:
            asked = [pool.submit(self.create, number % 2, key, size) for number in range(10)]
            return sorted(answer.result().status_code for answer in asked)


@pytest.fixture(scope="module")
def fleet(
    postgresql_server: Postgresql, versitygw: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    options = {
        "SLUICE_DATABASE_URL": postgresql_server.create("limits", like="empty"),
        **versitygw.access.settings(new_prefix()),
        **NO_FFMPEG,
        "SLUICE_ACCESS": "accounts",
        "SLUICE_MAX_UPLOADS_PER_SENDER": str(MOST_UPLOADS),
        "SLUICE_REQUESTS_PER_MINUTE": str(5 * MOST_NEW_UPLOADS),
        "SLUICE_WORKERS": "1",
    }
    with ExitStack() as stack:
        servers = [
            stack.enter_context(running_server(tmp_path_factory.mktemp(name), **options))
            for name in ("one", "two")
        ]
        services = build_services(from_env(servers[0].environment))
        stack.enter_context(closing(services.database))
        yield Fleet(servers, services)


def test_each_node_counts_the_uploads_per_minute_by_itself(fleet: Fleet) -> None:
    is_one_minute = False
    while not is_one_minute:
        minute, key = time.time() // 60, fleet.key()
        one = [_begin_and_cancel(fleet, 0, key) for _ in range(MOST_NEW_UPLOADS + 1)]
        two = [_begin_and_cancel(fleet, 1, key) for _ in range(MOST_NEW_UPLOADS + 1)]
        is_one_minute = time.time() // 60 == minute
    assert one == two == [201] * MOST_NEW_UPLOADS + [429]


def _begin_and_cancel(fleet: Fleet, number: int, key: dict[str, str]) -> int:
    created = fleet.create(number, key)
    if created.status_code == 201:
        fleet.nodes[number].delete(f"/api/uploads/{created.json()['id']}", headers=key)
    return created.status_code


def test_the_uploads_of_a_sender_are_counted_over_all_nodes(fleet: Fleet) -> None:
    statuses = fleet.create_at_once(fleet.key(), 100)
    assert statuses == [201] * MOST_UPLOADS + [429] * (10 - MOST_UPLOADS)


def test_a_quota_holds_over_all_nodes(fleet: Fleet) -> None:
    projects = fleet.services.identity.projects
    ctx = fleet.services.context.acting(LOCAL)
    project = projects.make(ctx, "Narrow", manager=None).id
    projects.change(ctx, project, limits={"quota_bytes": 350})
    statuses = fleet.create_at_once(fleet.key(project), 100)
    assert statuses == [201] * 3 + [507] * 7
