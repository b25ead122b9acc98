"""What happens to a fleet: sequences of kills, pauses and cuts, which run side by side."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from random import Random
from threading import Event

import psutil

from tests.fleet.shaken import Fleet
from tests.waiting import wait_until

Disturbance = Callable[[Fleet, Random], None]

LONGEST_PAUSE_SECONDS = 3.0
REST_SECONDS = 1.0
"""Between two disturbances of a sequence, at most, if clients get answers meanwhile."""

REST_ANSWERS = 20
"""What clients get between two disturbances of a sequence, at least, however slow the fleet is."""

STUCK_SECONDS = 300
"""A fleet that answers so few requests in this time has failed."""


class NothingDisturbed(Exception):
    """What was to be disturbed is not there at the moment; this does not count."""


# ---- nodes ---------------------------------------------------------------------------------------


def kill_worker(fleet: Fleet, rng: Random) -> None:
    """gunicorn starts another."""
    with fleet.some_node(rng) as node:
        try:
            rng.choice(node.server.web_workers()).kill()
        except (psutil.NoSuchProcess, IndexError) as error:
            raise NothingDisturbed from error


def kill_node(fleet: Fleet, rng: Random) -> None:
    """All processes of a node; it starts again with what it finds."""
    with fleet.some_node(rng) as node:
        node.restart(signal.SIGKILL)


def stop_node(fleet: Fleet, rng: Random) -> None:
    """As a deployment does it."""
    with fleet.some_node(rng) as node:
        node.restart(signal.SIGTERM)


def pause_node(fleet: Fleet, rng: Random) -> None:
    """It wakes up after its leases have ended: others may have taken them."""
    with fleet.some_node(rng) as node, node.paused():
        time.sleep(rng.uniform(0, LONGEST_PAUSE_SECONDS / 3))
        end_leases(fleet)
        time.sleep(rng.uniform(0, LONGEST_PAUSE_SECONDS * 2 / 3))


# ---- what they share -----------------------------------------------------------------------------


def crash_postgresql(fleet: Fleet, rng: Random) -> None:
    """It recovers from its log."""
    fleet.postgresql.stop(signal.SIGQUIT)
    time.sleep(rng.uniform(0, 1))
    fleet.postgresql.start()


def pause_postgresql(fleet: Fleet, rng: Random) -> None:
    """Statements are neither refused nor answered, and then they all are."""
    with paused(fleet.postgresql.pid):
        time.sleep(rng.uniform(0, LONGEST_PAUSE_SECONDS))


def kill_pooler(fleet: Fleet, rng: Random) -> None:
    """Its clients lose their transactions; it starts again at once, or a second later."""
    if fleet.pooler is None:
        raise NothingDisturbed
    fleet.pooler.program.stop(signal.SIGKILL)
    time.sleep(rng.uniform(0, 1))
    fleet.pooler.program.start()


def kill_store(fleet: Fleet, rng: Random) -> None:
    """It starts again at once, or a second later."""
    fleet.store.program.stop(signal.SIGKILL)
    time.sleep(rng.uniform(0, 1))
    fleet.store.program.start()


def pause_store(fleet: Fleet, rng: Random) -> None:
    """Requests are neither refused nor answered, and then they all are."""
    with paused(fleet.store.program.pid):
        time.sleep(rng.uniform(0, LONGEST_PAUSE_SECONDS))


@contextmanager
def paused(pid: int) -> Iterator[None]:
    """A process and its children stand still; PostgreSQL's are no group."""
    top = psutil.Process(pid)
    family = [top, *top.children(recursive=True)]
    _signal(family, signal.SIGSTOP)
    try:
        yield
    finally:
        _signal(family, signal.SIGCONT)


def _signal(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def fill_spool(fleet: Fleet, rng: Random) -> None:
    """A node has no room on its disk for bytes on their way to the bucket."""
    disk = rng.choice(fleet.nodes).spool
    if disk is None:
        raise NothingDisturbed
    try:
        disk.fill()
        time.sleep(rng.uniform(0, LONGEST_PAUSE_SECONDS))
    finally:
        disk.empty()


# ---- lines ---------------------------------------------------------------------------------------


def cut_off(fleet: Fleet, rng: Random) -> None:
    """A node reaches the database or the bucket no longer, and does not hear of it."""
    proxy = rng.choice(rng.choice(fleet.nodes).proxies)
    proxy.hold()
    time.sleep(rng.uniform(0, LONGEST_PAUSE_SECONDS))
    proxy.release()


def drop_connections(fleet: Fleet, rng: Random) -> None:
    """All of a node to the database, or to the bucket."""
    rng.choice(rng.choice(fleet.nodes).proxies).drop_connections()


# ---- all of them ---------------------------------------------------------------------------------

SEQUENCES: Sequence[dict[Disturbance, int]] = (
    {kill_worker: 6, pause_node: 3},
    {kill_node: 2, stop_node: 1},
    {crash_postgresql: 2, kill_store: 2, kill_pooler: 1, pause_postgresql: 1, pause_store: 1},
    {drop_connections: 5, cut_off: 3, fill_spool: 2},
)
"""Disturbances by how often each happens, compared with all others.

Disturbances of one sequence happen one after the other. Two sequences take nodes; a third node is
left.
"""


class Shaking:
    """A number of disturbances, drawn by a seed; counts those that have happened.

    `answers` tells how many answers clients have got so far.
    """

    def __init__(self, fleet: Fleet, answers: Callable[[], int], *, seed: int, times: int) -> None:
        self.times = times
        self.happened = Counter[str]()
        self._fleet = fleet
        self._answers = answers
        self._seed = seed

    def run(self, tick: Callable[[], bool]) -> None:
        """Until all have happened, or `tick`, which is called every second, says that it is enough.

        Whatever a disturbance raises is raised here.
        """
        kinds = {kind: weight for sequence in SEQUENCES for kind, weight in sequence.items()}
        drawn = Random(self._seed).choices([*kinds], [*kinds.values()], k=self.times)
        stop = Event()
        with ThreadPoolExecutor(len(SEQUENCES)) as pool:
            running = [
                pool.submit(self._work, number, [each for each in drawn if each in sequence], stop)
                for number, sequence in enumerate(SEQUENCES)
            ]
            try:
                while not all(each.done() for each in running):
                    time.sleep(1)
                    if not tick() or any(each.done() and each.exception() for each in running):
                        break
            finally:
                stop.set()
            for each in running:
                each.result()

    def _work(self, number: int, kinds: Sequence[Disturbance], stop: Event) -> None:
        rng = Random(f"{self._seed} {number}")
        for disturb in kinds:
            if self._rest(rng, stop):
                return
            with suppress(NothingDisturbed):
                disturb(self._fleet, rng)
                self.happened[disturb.__name__] += 1

    def _rest(self, rng: Random, stop: Event) -> bool:
        """Let the fleet do something; whether it is time to stop."""
        wanted = self._answers() + REST_ANSWERS
        is_over = stop.wait(rng.uniform(0, REST_SECONDS))
        what = "clients get answers"
        wait_until(lambda: stop.is_set() or self._answers() >= wanted, what, STUCK_SECONDS)
        return is_over or stop.is_set()


def end_leases(fleet: Fleet) -> None:
    """Let the leases of files end now, except in rows that a transaction has locked.

    A paused node may hold such a lock for 10 s, until the server ends its session.
    """
    held = "SELECT key FROM stored_files WHERE leased_by IS NOT NULL FOR UPDATE SKIP LOCKED"
    fleet.ask(f"UPDATE stored_files SET leased_until = 0 WHERE key IN ({held})")
