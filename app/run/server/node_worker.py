"""The node worker: reports this server to those that share its records.

python -m app.run.server.node_worker

A separate process, because the background worker hashes files at the lowest priority and would miss
the end of a lease on a busy machine.
"""

from __future__ import annotations

import signal
import socket
import sys
from threading import Event, Thread

from app import __version__
from app.core.nodes import NodeReport
from app.db.nodes import LEASE_SECONDS, NodeRecords
from app.db.this_node import new_name
from app.http.services import Services
from app.run.build import build_services
from app.run.monitoring.instruments import Instruments, NodeCounts
from app.run.server.child_processes import END_SIGNALS, attempt, run_worker
from app.settings import Settings

BEAT_SECONDS = 1.0
"""How often a node renews its lease."""

END_SECONDS = 5.0
"""How long a database that does not respond may delay the end of this process."""


class NodeWorker:
    """Maintains this node's row in the database."""

    def __init__(self, services: Services, records: NodeRecords, counts: NodeCounts) -> None:
        self._services = services
        self._records = records
        self._counts = counts
        self._name = services.node.name or new_name()

    def run(self, stop: Event) -> None:
        """Keep the lease until `stop`, then leave."""
        while not stop.is_set():
            attempt(self.beat)
            stop.wait(BEAT_SECONDS)
        attempt(self.end)

    def beat(self) -> None:
        """Renew the lease, and delete the rows of nodes that were lost long ago."""
        self._records.tell(self._report(is_leaving=self._services.node.is_leaving))
        self._records.forget_gone()

    def end(self) -> None:
        """Leave: the web workers finish their requests, then the supervisor removes the row.

        Without a supervisor the row is deleted now.
        """
        if not self._services.node.name:
            self._records.remove(self._name)
            return
        lease_seconds = LEASE_SECONDS + self._services.settings.graceful_seconds
        self._records.tell(self._report(is_leaving=True), lease_seconds=lease_seconds)

    def _report(self, *, is_leaving: bool) -> NodeReport:
        return NodeReport(
            name=self._name,
            address=f"{socket.gethostname()}:{self._services.settings.port}",
            version=__version__,
            is_leaving=is_leaving,
            counts=self._counts.read(),
        )


def run(settings: Settings) -> None:
    """Work until one of `END_SIGNALS` arrives; all of them must be blocked."""
    services = build_services(settings)
    if services.nodes is None:  # SQLite: there are no other nodes.
        return
    services.prepare()
    worker = NodeWorker(services, services.nodes, NodeCounts(services, Instruments()))
    stop = Event()
    working = Thread(target=worker.run, args=(stop,), daemon=True)
    working.start()
    signal.sigwait(END_SIGNALS)
    stop.set()
    working.join(END_SECONDS)


def main() -> int:
    """Work until a signal arrives; returns the exit status."""
    return run_worker(run, name="node", niceness=0)


if __name__ == "__main__":
    sys.exit(main())
