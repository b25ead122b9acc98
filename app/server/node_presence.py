"""Keeps a server known to the others that share its records."""

from __future__ import annotations

import socket

from app import __version__
from app.domain.nodes import NodeReport
from app.monitoring.node_counts import NodeCounts
from app.records.nodes import LEASE_SECONDS, NodeRecords
from app.request.this_node import ThisNode, new_name
from app.settings import Settings

BEAT_SECONDS = 1.0
"""How often a node renews its lease, and reads what the others say."""


class NodePresence:
    """One node's row among those of the others."""

    def __init__(
        self, settings: Settings, records: NodeRecords, node: ThisNode, counts: NodeCounts
    ) -> None:
        self._settings = settings
        self._records = records
        self._node = node
        self._counts = counts
        self._name = node.name or new_name()

    def beat(self) -> None:
        """Renew the lease, and remove the rows of those that vanished long ago."""
        self._records.tell(self._report(is_leaving=self._node.is_leaving))
        self._records.forget_gone()

    def end(self) -> None:
        """Leave: the web workers finish their requests, and the supervisor removes the row then.

        Without a supervisor the row goes now.
        """
        if not self._node.name:
            self._records.remove(self._name)
            return
        lease_seconds = LEASE_SECONDS + self._settings.graceful_seconds
        self._records.tell(self._report(is_leaving=True), lease_seconds=lease_seconds)

    def _report(self, *, is_leaving: bool) -> NodeReport:
        return NodeReport(
            name=self._name,
            address=f"{socket.gethostname()}:{self._settings.port}",
            version=__version__,
            is_leaving=is_leaving,
            counts=self._counts.read(),
            traffic={},
        )
