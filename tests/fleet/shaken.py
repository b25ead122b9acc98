"""A fleet whose parts can be killed, paused and cut off from each other."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from subprocess import CalledProcessError
from threading import Lock

import psutil
import pytest

from scripts.fleet.postgresql import SOCKET
from tests.fleet.faulty_proxy import Fault, Plan, Proxy, proxies, talk_bytes, talk_http
from tests.hostile.disks import Disk, small_disks
from tests.live_server import NO_FFMPEG, Server
from tests.postgresql import PgBouncer, Postgresql, pgbouncer, postgresql, set_limits
from tests.s3_servers import MakeServer, S3Server, running

SETTINGS = {
    **NO_FFMPEG,
    "SLUICE_DIRECT_UPLOADS": "1",
    "SLUICE_RENDITIONS": "off",
    "SLUICE_TEST_CONSTANTS": "sweep_seconds=2",
}

POOLED_SESSIONS = 10
"""Fewer than the connections of a node, so that these share them."""

STAGING = "staging"
"""Name of the folder of a server for bytes on their way."""

SPOOL_MEGABYTES = 512
"""Of a node's disk for bytes on their way: more than all its requests have at a time."""

LONGEST_QUESTION_SECONDS = 120
"""How long to wait for the database's answer: it may break several times before."""

START_TRIES = 50
"""A node starts by then, however often its database breaks meanwhile."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node, and the proxies through which it reaches what it shares with the others."""

    server: Server
    database: Proxy
    bucket: Proxy
    spool: Disk | None
    """The disk for bytes on their way to the bucket; None where no disk can be mounted."""
    taken: Lock = field(default_factory=Lock)
    """Held by whoever stops or pauses it."""

    @property
    def proxies(self) -> tuple[Proxy, Proxy]:
        """Both."""
        return self.database, self.bucket

    def start(self) -> None:
        """Until it serves: one that finds no database does not start, as an operator would see."""
        for _ in range(START_TRIES):
            with suppress(RuntimeError):
                self.server.start()
                return
            self.kill()
        raise RuntimeError(f"the node does not start:\n{self.server.log}")

    def kill(self) -> None:
        """End what is left of it."""
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            self.server.stop(signal.SIGKILL)
        self.server.process = None

    def restart(self, how: signal.Signals) -> None:
        """Stop and start."""
        self.server.stop(how)
        self.start()

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
    """Nodes, with one database and one bucket; some reach the database through the pooler."""

    postgresql: Postgresql
    pooler: PgBouncer | None
    store: S3Server
    nodes: list[Node]

    @contextmanager
    def some_node(self, rng: Random) -> Iterator[Node]:
        """A node that nobody else stops or pauses meanwhile; there are more nodes than takers."""
        nodes = rng.sample(self.nodes, len(self.nodes))
        node = next(node for node in nodes if node.taken.acquire(blocking=False))
        try:
            yield node
        finally:
            node.taken.release()

    def ask(self, statement: str) -> str:
        """What the nodes' database returns, once it is there: it may be starting."""
        until = time.monotonic() + LONGEST_QUESTION_SECONDS
        while True:
            try:
                return self.postgresql.ask(statement, database="sluice")
            except CalledProcessError as error:
                if time.monotonic() > until:
                    raise RuntimeError(f"{statement}: {error.stderr.decode()}") from error
            time.sleep(0.1)

    def heal(self) -> None:
        """From now on nothing breaks."""
        for node in self.nodes:
            for proxy in node.proxies:
                proxy.plan.shares = {}
                proxy.release()

    @property
    def database_faults(self) -> Counter[Fault]:
        """How many requests of the nodes to the database each fault has hit."""
        return sum((node.database.plan.happened for node in self.nodes), Counter())

    @property
    def bucket_faults(self) -> Counter[Fault]:
        """Likewise to the bucket, among them those of clients."""
        return sum((node.bucket.plan.happened for node in self.nodes), Counter())


@contextmanager
def shaken_fleet(
    folder: Path,
    make_store: MakeServer,
    *,
    nodes: int = 3,
    pooled_nodes: int = 0,
    seed: int,
    database_faults: Mapping[Fault, float],
    bucket_faults: Mapping[Fault, float],
) -> Iterator[Fleet]:
    """A fleet that serves; these shares of its own requests meet a fault."""
    with ExitStack() as stack:
        database = stack.enter_context(postgresql())
        store = stack.enter_context(running(make_store))
        make = stack.enter_context(proxies())
        database.create("sluice")
        pooler = None
        if pooled_nodes:
            set_limits(database)
            pooler = stack.enter_context(pgbouncer(database, sessions=POOLED_SESSIONS))
        fleet = Fleet(database, pooler, store, [])
        for number in range(nodes):
            plans = (
                Plan(seed * nodes + number, database_faults),
                Plan(-seed * nodes - number, bucket_faults),
            )
            server = pooler if pooler is not None and number < pooled_nodes else database
            proxy = make(server.folder / SOCKET, talk_bytes, plans[0])
            bucket = make(store.port, talk_http, plans[1])
            spool = stack.enter_context(spool_disk(folder / f"node{number}"))
            fleet.nodes.append(_node(folder / f"node{number}", store, proxy, bucket, spool))
        stack.callback(_stop, fleet)
        # Whichever comes first migrates; the others wait for it.
        with ThreadPoolExecutor(nodes) as pool:
            list(pool.map(Node.start, fleet.nodes))
        yield fleet


@contextmanager
def spool_disk(folder: Path) -> Iterator[Disk | None]:
    """A small disk of a node; None without the right to mount one."""
    with ExitStack() as stack:
        try:
            disks = stack.enter_context(small_disks(folder, STAGING, megabytes=SPOOL_MEGABYTES))
        except pytest.skip.Exception:
            yield None
            return
        yield disks[STAGING]


def _node(
    folder: Path, store: S3Server, database: Proxy, bucket: Proxy, spool: Disk | None
) -> Node:
    url = f"postgresql+psycopg://sluice@127.0.0.1:{database.port}/sluice"
    endpoint = f"http://127.0.0.1:{bucket.port}"
    options = {**SETTINGS, **store.access.settings(endpoint=endpoint)}
    return Node(Server(folder, {"SLUICE_DATABASE_URL": url, **options}), database, bucket, spool)


def _stop(fleet: Fleet) -> None:
    for node in fleet.nodes:
        node.kill()
