"""Servers that share their records on PostgreSQL: joining, leaving, and limits over all of them."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from itertools import count
from threading import Event, Thread

import pytest
import requests
from sqlalchemy import select

from app.core.access import FIRST_PROJECT, LOCAL, Role
from app.core.nodes import NodeState
from app.db.tables import nodes
from app.http.services import Services
from app.run.build import build_services
from app.settings import from_env
from tests.access.accounts import bearer
from tests.acting import acting
from tests.live_server import NO_FFMPEG, Server, running_server
from tests.postgresql import Postgresql
from tests.run.monitoring.scrape import scrape
from tests.s3_servers import S3Server, new_prefix
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

BUDGET = 1_000_000
"""Bytes a second of the fleet: so few that the clients' bytes wait in the kernel, however busy the
machine is. A sender that does not wait leaves some of its share to others."""

RATE_SECONDS = 2.0
"""How long at least bytes are counted for a rate."""

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


# ---- limits over all nodes -----------------------------------------------------------------------


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

    def states(self) -> list[NodeState]:
        """Of all nodes."""
        assert self.services.nodes is not None
        return [node.state for node in self.services.nodes.all()]

    def wait_for_beats(self, beats: int) -> None:
        """Until each node has renewed its lease so often, and so has read what the other said."""
        for _ in range(beats):
            self._wait_for_beat(self._leases())

    def _wait_for_beat(self, before: dict[str, object]) -> None:
        wait_until(lambda: not before.items() & self._leases().items(), "leases are renewed")

    def create(self, number: int, key: dict[str, str], size: int = 100) -> requests.Response:
        """Ask a node for a new upload."""
        new = {"name": "film.mp4", "size": size}
        return self.nodes[number].post("/api/uploads", json=new, headers=key)

    def create_at_once(self, key: dict[str, str], size: int) -> list[int]:
        """Ask both nodes at the same time; the statuses, sorted."""
        with ThreadPoolExecutor(10) as pool:
            asked = [pool.submit(self.create, number % 2, key, size) for number in range(10)]
            return sorted(answer.result().status_code for answer in asked)

    def _leases(self) -> dict[str, object]:
        with self.services.database.read() as connection:
            rows = connection.execute(select(nodes.c.name, nodes.c.lease_until))
            return {row.name: row.lease_until for row in rows}

    def received(self) -> list[float]:
        """Bytes that each node has received so far; 0 for one that does not run."""
        return [
            0.0 if node.process is None else scrape(node).total("sluice_received_bytes_total")
            for node in self.nodes
        ]

    def has_rates(self, *shares: float) -> bool:
        """Whether each node receives this share of the bytes per second, or nearly.

        Measured once: a sender that a busy machine holds up leaves its share to others.
        """
        before, began = self.received(), time.monotonic()
        time.sleep(RATE_SECONDS)
        wait_until(lambda: self.received()[0] >= before[0] + BUDGET, "bytes arrive")
        after, elapsed = self.received(), time.monotonic() - began
        rates = [(last - first) / elapsed for first, last in zip(before, after, strict=True)]
        return rates == pytest.approx([share * BUDGET for share in shares], abs=0.15 * BUDGET)


@pytest.fixture(scope="module")
def fleet(
    postgresql_server: Postgresql, versitygw: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    options = {
        "SLUICE_DATABASE_URL": postgresql_server.create("limits", like="empty"),
        **versitygw.access.settings(new_prefix()),
        **NO_FFMPEG,
        "SLUICE_ACCESS": "accounts",
        "SLUICE_BYTES_PER_SECOND": str(BUDGET),
        "SLUICE_MAX_UPLOADS_PER_SENDER": str(MOST_UPLOADS),
        "SLUICE_REQUESTS_PER_MINUTE": str(5 * MOST_NEW_UPLOADS),
        "SLUICE_WORKERS": "1",
        "SLUICE_GRACEFUL_SECONDS": "2",  # Much is still in the kernel when a client leaves.
    }
    with ExitStack() as stack:
        servers = [
            stack.enter_context(running_server(tmp_path_factory.mktemp(name), **options))
            for name in ("one", "two")
        ]
        services = build_services(from_env(servers[0].environment))
        stack.enter_context(closing(services.database))
        yield Fleet(servers, services)


class Sending:
    """An upload to one node that sends as fast as it may, until the end of the context."""

    def __init__(self, node: Server, key: dict[str, str]) -> None:
        new = {"name": "film.mp4", "size": 10**9}
        created = node.post("/api/uploads", json=new, headers=key)
        created.raise_for_status()
        self._url = f"{node.url}/tus/{created.json()['id']}"
        self._headers = {**key, "Tus-Resumable": "1.0.0", "Upload-Offset": "0"}
        self._headers["Content-Type"] = "application/offset+octet-stream"
        self._stop = Event()
        self._thread = Thread(target=self._send)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _send(self) -> None:
        with suppress(requests.ConnectionError):
            requests.patch(self._url, data=self._body(), headers=self._headers, timeout=60)

    def _body(self) -> Iterator[bytes]:
        while not self._stop.is_set():
            yield bytes(64 * 1024)
        raise requests.ConnectionError("the client goes away")


def test_senders_on_different_nodes_share_the_bytes_per_second(fleet: Fleet) -> None:
    one, two = fleet.nodes
    with Sending(one, fleet.key()), Sending(two, fleet.key()):
        wait_until(lambda: fleet.has_rates(0.5, 0.5), "each has half")


def test_a_sender_on_two_nodes_gets_no_second_share(fleet: Fleet) -> None:
    one, two = fleet.nodes
    on_both = fleet.key()
    with Sending(one, on_both), Sending(two, on_both), Sending(one, fleet.key()):
        wait_until(lambda: fleet.has_rates(0.75, 0.25), "both senders have half")


def test_uploads_per_minute_are_counted_over_all_nodes(fleet: Fleet) -> None:
    is_one_minute = False
    while not is_one_minute:
        minute, key = time.time() // 60, fleet.key()
        statuses = [_begin_and_cancel(fleet, 0, key) for _ in range(MOST_NEW_UPLOADS // 2)]
        fleet.wait_for_beats(2)
        statuses += [_begin_and_cancel(fleet, 1, key) for _ in range(MOST_NEW_UPLOADS)]
        is_one_minute = time.time() // 60 == minute
    assert statuses.count(201) == MOST_NEW_UPLOADS
    assert statuses.count(429) == MOST_NEW_UPLOADS // 2


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


def test_a_node_that_dies_frees_its_share(fleet: Fleet) -> None:
    """The last test: it ends a node."""
    one, two = fleet.nodes
    with Sending(one, fleet.key()):
        with Sending(two, fleet.key()):
            wait_until(lambda: fleet.has_rates(0.5, 0.5), "each has half")
            two.stop(signal.SIGKILL)
        wait_until(lambda: NodeState.GONE in fleet.states(), "its lease ends")
        wait_until(lambda: fleet.has_rates(1, 0), "the other has all")
