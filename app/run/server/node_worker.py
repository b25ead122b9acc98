"""The node worker: reports this server to those that share its records, and reads their reports.

python -m app.run.server.node_worker

A separate process, because the background worker hashes files at the lowest priority and would miss
the end of a lease on a busy machine.
"""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import replace
from threading import Event, Thread
from typing import Any

from app import __version__
from app.core.nodes import Node, NodeReport, NodeState
from app.db.minute_counts import MinuteReport
from app.db.nodes import LEASE_SECONDS, NodeRecords
from app.db.this_node import new_name
from app.http.services import Services
from app.ingest.bandwidth import SenderReport
from app.run.build import build_services
from app.run.monitoring.instruments import Instruments
from app.run.monitoring.reading import NodeCounts
from app.run.server.child_processes import END_SIGNALS
from app.run.server.worker_process import attempt, run_worker
from app.settings import Settings

BEAT_SECONDS = 1.0
"""How often a node renews its lease and reads the others' reports. A report reaches all nodes
within two beats."""

END_SECONDS = 5.0
"""How long a database that does not respond may delay the end of this process."""


class NodeWorker:
    """Maintains this node's row in the database."""

    def __init__(self, services: Services, records: NodeRecords, counts: NodeCounts) -> None:
        self._services = services
        self._records = records
        self._counts = counts
        self._name = services.node.name or new_name()
        self._is_alone = False  # The files may still have the last reports of other nodes.

    def run(self, stop: Event) -> None:
        """Keep the lease until `stop`, then leave."""
        while not stop.is_set():
            attempt(self.beat)
            stop.wait(BEAT_SECONDS)
        attempt(self.end)

    def beat(self) -> None:
        """Renew the lease, and read the others' reports."""
        self._records.tell(self._report(is_leaving=self._services.node.is_leaving))
        nodes = self._records.all()
        self._learn([node for node in nodes if node.report.name != self._name])
        if any(node.state is NodeState.GONE for node in nodes):
            self._records.forget_gone()

    def end(self) -> None:
        """Leave: the web workers finish their requests, then the supervisor removes the row.

        Without a supervisor the row is deleted now. The last report has no senders: it would never
        be updated, and the other nodes would reserve their shares until the lease ends.
        """
        if not self._services.node.name:
            self._records.remove(self._name)
            return
        lease_seconds = LEASE_SECONDS + self._services.settings.graceful_seconds
        report = self._report(is_leaving=True)
        report = replace(report, traffic={**report.traffic, "senders": []})
        self._records.tell(report, lease_seconds=lease_seconds)

    def _report(self, *, is_leaving: bool) -> NodeReport:
        return NodeReport(
            name=self._name,
            address=f"{socket.gethostname()}:{self._services.settings.port}",
            version=__version__,
            is_leaving=is_leaving,
            counts=self._counts.read(),
            traffic=self._traffic(),
        )

    def _traffic(self) -> dict[str, Any]:
        """Rates of this node's senders, keyed by digests of their names."""
        line, (minute, counts) = self._services.line, self._services.counts.report()
        senders = [] if line is None else line.report()
        return {
            "senders": [(slot, round(rate), is_waiting) for slot, rate, is_waiting in senders],
            "minute": minute,
            "counts": counts,
        }

    def _learn(self, others: list[Node]) -> None:
        """Pass the other nodes' traffic to this node's limits, which apply to the whole fleet."""
        traffics = [node.report.traffic for node in others if node.state is not NodeState.GONE]
        if not traffics and self._is_alone:
            return
        self._is_alone = not traffics
        self._services.counts.learn(_minute_report(traffic) for traffic in traffics)
        line = self._services.line
        if line is not None and line.others is not None:
            line.others.learn(_sender_reports(traffic) for traffic in traffics)


def _sender_reports(traffic: Mapping[str, Any]) -> list[SenderReport]:
    return [SenderReport(*sender) for sender in traffic.get("senders", ())]


def _minute_report(traffic: Mapping[str, Any]) -> MinuteReport:
    counts = {int(digest): count for digest, count in traffic.get("counts", {}).items()}
    return MinuteReport(traffic.get("minute", 0), counts)


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
