"""Which nodes share the records. Each renews a lease; a lease that ends means a lost node.

Only on a database server, since a SQLite file has one machine. All times come from the database's
clock, so the clocks of the nodes need not agree.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import BigInteger, Row, delete, func, select, type_coerce

from app.core.nodes import Node, NodeReport, NodeState
from app.db.clock import SECOND, SERVER_NOW
from app.db.engine import Database
from app.db.tables import nodes

LEASE_SECONDS = 10.0
"""A node that has not reported for this long is gone."""

SHOWN_SECONDS = 600.0
"""How long the status page goes on showing a node that is gone."""

_LEASE_UNTIL = type_coerce(nodes.c.lease_until, BigInteger)
_STARTED_AT = type_coerce(nodes.c.started_at, BigInteger)

_NODES = select(
    nodes,
    (_LEASE_UNTIL > SERVER_NOW).label("is_alive"),
    (func.least(SERVER_NOW, _LEASE_UNTIL) - _STARTED_AT).label("uptime"),
).order_by(nodes.c.started_at, nodes.c.name)

_LIVE = select(func.count()).where(_LEASE_UNTIL > SERVER_NOW)


class NodeRecords:
    """The nodes of a fleet. Each call is one statement."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def tell(self, report: NodeReport, *, lease_seconds: float = LEASE_SECONDS) -> None:
        """Store a node's report and renew its lease; the first report inserts its row."""
        from sqlalchemy.dialects.postgresql import insert  # noqa: PLC0415 - only with PostgreSQL

        values = {
            "name": report.name,
            "address": report.address,
            "version": report.version,
            "is_leaving": report.is_leaving,
            "counts": json.dumps(report.counts),
            "traffic": json.dumps(report.traffic),
            "lease_until": SERVER_NOW + round(lease_seconds * SECOND),
        }
        statement = insert(nodes).values(**values, started_at=SERVER_NOW)
        changed = {name: statement.excluded[name] for name in values if name != "name"}
        renewed = statement.on_conflict_do_update(index_elements=["name"], set_=changed)
        with self._database.one_statement() as connection:
            connection.execute(renewed)

    def all(self) -> list[Node]:
        """Every node, oldest first, including those that vanished a short while ago."""
        with self._database.read() as connection:
            return [_from_row(row) for row in connection.execute(_NODES)]

    def count_live(self) -> int:
        """How many nodes hold a lease."""
        with self._database.read() as connection:
            return connection.execute(_LIVE).scalar_one()

    def remove(self, name: str) -> None:
        """Delete the row of a node that has ended."""
        with self._database.one_statement() as connection:
            connection.execute(delete(nodes).where(nodes.c.name == name))

    def forget_gone(self, shown_seconds: float = SHOWN_SECONDS) -> None:
        """Delete the rows of nodes that vanished longer ago than this."""
        vanished = SERVER_NOW - round(shown_seconds * SECOND) > _LEASE_UNTIL
        with self._database.one_statement() as connection:
            connection.execute(delete(nodes).where(vanished))


def _from_row(row: Row[Any]) -> Node:
    report = NodeReport(
        name=row.name,
        address=row.address,
        version=row.version,
        is_leaving=row.is_leaving,
        counts=json.loads(row.counts),
        traffic=json.loads(row.traffic),
    )
    return Node(
        report=report,
        state=_state(row),
        started_at=row.started_at,
        uptime_seconds=row.uptime / SECOND,
    )


def _state(row: Row[Any]) -> NodeState:
    if not row.is_alive:
        return NodeState.GONE
    return NodeState.LEAVING if row.is_leaving else NodeState.READY
