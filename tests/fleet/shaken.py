"""A fleet whose parts can be killed, paused and cut off from each other."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import psutil

from scripts.fleet.postgresql import SOCKET
from tests.fleet.faulty_proxy import Fault, MakeProxy, Plan, Proxy, proxies, talk_bytes, talk_http
from tests.live_server import Server
from tests.postgresql import Postgresql, postgresql
from tests.s3_servers import S3Server, find_garage, running

SETTINGS = {
    "SLUICE_RENDITIONS": "off",
    "SLUICE_SWEEP_SECONDS": "2",
}


@dataclass(frozen=True, slots=True)
class Node:
    """A node, and the proxies through which it reaches what it shares with the others."""

    server: Server
    database: Proxy
    bucket: Proxy

    @property
    def proxies(self) -> tuple[Proxy, Proxy]:
        """Both."""
        return self.database, self.bucket

    @contextmanager
    def paused(self) -> Iterator[None]:
        """All its processes stand still, and wake up in the middle of what they did."""
        assert self.server.process is not None
        group = self.server.process.pid
        os.killpg(group, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(group, signal.SIGCONT)


@dataclass(frozen=True, slots=True)
class Fleet:
    """Nodes, with one database and one bucket."""

    postgresql: Postgresql
    store: S3Server
    nodes: list[Node]

    def heal(self) -> None:
        """From now on nothing breaks."""
        for node in self.nodes:
            for proxy in node.proxies:
                proxy.plan.shares = {}
                proxy.release()

    @property
    def faults(self) -> int:
        """How many requests to the database and the bucket were hit by one."""
        plans = [proxy.plan for node in self.nodes for proxy in node.proxies]
        return sum(plan.happened.total() for plan in plans)


@contextmanager
def shaken_fleet(
    folder: Path,
    *,
    nodes: int,
    seed: int,
    database_faults: Mapping[Fault, float],
    bucket_faults: Mapping[Fault, float],
) -> Iterator[Fleet]:
    """A fleet that serves; these shares of its own requests meet a fault."""
    with ExitStack() as stack:
        database = stack.enter_context(postgresql())
        store = stack.enter_context(running(find_garage()))
        make = stack.enter_context(proxies())
        database.create("sluice")
        fleet = Fleet(database, store, [])
        for number in range(nodes):
            plans = (
                Plan(seed * nodes + number, database_faults),
                Plan(-seed * nodes - number, bucket_faults),
            )
            fleet.nodes.append(_node(folder / f"node{number}", fleet, make, plans))
        stack.callback(_stop, fleet)
        # Whichever comes first migrates; the others wait for it.
        with ThreadPoolExecutor(nodes) as pool:
            list(pool.map(start, fleet.nodes))
        yield fleet


def _node(folder: Path, fleet: Fleet, make: MakeProxy, plans: tuple[Plan, Plan]) -> Node:
    folder.mkdir()
    database = make(fleet.postgresql.folder / SOCKET, talk_bytes, plans[0])
    bucket = make(fleet.store.port, talk_http, plans[1])
    url = f"postgresql+psycopg://sluice@127.0.0.1:{database.port}/sluice"
    endpoint = f"http://127.0.0.1:{bucket.port}"
    options = {**SETTINGS, **fleet.store.access.settings(endpoint=endpoint)}
    return Node(Server(folder, {"SLUICE_DATABASE_URL": url, **options}), database, bucket)


def _stop(fleet: Fleet) -> None:
    for node in fleet.nodes:
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            node.server.stop(signal.SIGKILL)


# ---- what can happen -----------------------------------------------------------------------------


def kill_worker(fleet: Fleet, rng: Random) -> None:
    """gunicorn starts another."""
    with suppress(psutil.NoSuchProcess, IndexError):
        rng.choice(rng.choice(fleet.nodes).server.web_workers()).kill()


def kill_node(fleet: Fleet, rng: Random) -> None:
    """All processes of a node; it starts again with what it finds."""
    restart(rng.choice(fleet.nodes), signal.SIGKILL)


def stop_node(fleet: Fleet, rng: Random) -> None:
    """As a deployment does it."""
    restart(rng.choice(fleet.nodes), signal.SIGTERM)


def pause_node(fleet: Fleet, rng: Random) -> None:
    """It wakes up after its claims have ended: others may have taken them."""
    with rng.choice(fleet.nodes).paused():
        time.sleep(rng.uniform(0, 1))
        end_leases(fleet, "stored_cells")
        time.sleep(rng.uniform(0, 2))


def crash_postgresql(fleet: Fleet, rng: Random) -> None:
    """It recovers from its log."""
    fleet.postgresql.stop(signal.SIGQUIT)
    time.sleep(rng.uniform(0, 1))
    fleet.postgresql.start()


def kill_store(fleet: Fleet, rng: Random) -> None:
    """Garage starts again at once, or a second later."""
    fleet.store.program.stop(signal.SIGKILL)
    time.sleep(rng.uniform(0, 1))
    fleet.store.program.start()


def cut_off(fleet: Fleet, rng: Random) -> None:
    """A node reaches the database or the bucket no longer, and does not hear of it."""
    proxy = rng.choice(rng.choice(fleet.nodes).proxies)
    proxy.hold()
    time.sleep(rng.uniform(0, 3))
    proxy.release()


def drop_connections(fleet: Fleet, rng: Random) -> None:
    """All of a node to the database, or to the bucket."""
    rng.choice(rng.choice(fleet.nodes).proxies).drop_connections()


DISTURBANCES = {
    kill_worker: 6,
    drop_connections: 5,
    cut_off: 3,
    pause_node: 3,
    kill_store: 2,
    crash_postgresql: 2,
    kill_node: 2,
    stop_node: 1,
}
"""By how often each happens, compared with the others."""


def restart(node: Node, how: signal.Signals) -> None:
    """Stop and start."""
    node.server.stop(how)
    start(node)


def start(node: Node) -> None:
    """Until it serves: a node that finds no database does not start, as an operator would see."""
    while True:
        with suppress(RuntimeError):
            node.server.start()
            return


def end_leases(fleet: Fleet, table: str) -> None:
    """Make every lease one that ended long ago."""
    fleet.postgresql.ask(f"UPDATE {table} SET leased_until = 0", database="sluice")
