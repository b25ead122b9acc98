"""The nodes that share the records. Each renews a lease; a lease that expires means a lost node.

Only with a database server, since a SQLite file belongs to one machine. All times come from the
database's clock, so the nodes' clocks need not agree.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from app.core.errors import UploadError
from app.core.nodes import Node, NodeReport, NodeState
from app.db.engine import Database
from app.db.sql import insert_unless_known, upsert_into
from app.db.tables import nodes, shared_values

# ---- clock ---------------------------------------------------------------------------------------

# A clock shared by all nodes of a database.


Clock = Callable[[], datetime]

SECOND = 1_000_000
"""One second in microseconds, the unit of `Instant`."""

SERVER_NOW: sa.ColumnElement[int] = sa.cast(
    sa.func.extract("epoch", sa.func.clock_timestamp()) * SECOND, sa.BigInteger
)
"""The database server's time, in the unit of its columns, since the nodes' clocks may differ."""

ASKED_SECONDS = 60.0
"""How often the server's clock is read; a machine's own clock drifts by some ms in between."""


def utc_now() -> datetime:
    """Returns the time of this machine's own clock."""
    return datetime.now(UTC)


def _elapsed() -> float:
    """Seconds since boot, including time that the machine was asleep."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ServerClock:
    """The database server's clock, so that leases hold even if the nodes' clocks differ.

    While the server is unreachable, continues from the last reading. Raises `UploadError` before
    the first reading, since a wrong time could delete videos.
    """

    def __init__(self, database: Database, elapsed: Callable[[], float] = _elapsed) -> None:
        self._database = database
        self._elapsed = elapsed
        # The time this machine booted; a single value, since other threads may replace it any time.
        self._booted: datetime | None = None
        self._ask_at = float("-inf")

    def __call__(self) -> datetime:
        """Returns the current time on the server."""
        booted = self._booted
        began = self._elapsed()
        if booted is None or began >= self._ask_at:
            self._ask_at = began + ASKED_SECONDS  # Set first, so that only one thread queries it.
            try:
                with self._database.read() as connection:
                    found: datetime = connection.execute(
                        sa.select(sa.func.clock_timestamp())
                    ).scalar_one()
            except UploadError:
                if booted is None:
                    raise
            else:
                middle = timedelta(seconds=(began + self._elapsed()) / 2)
                booted = self._booted = found.astimezone(UTC) - middle
        return booted + timedelta(seconds=self._elapsed())


def shared_clock(database: Database, own: Clock) -> Clock:
    """Returns the clock shared by all nodes: the server's, or for SQLite this machine's `own`."""
    return ServerClock(database) if database.is_remote else own


# ---- nodes ---------------------------------------------------------------------------------------


LEASE_SECONDS = 10.0
"""A node that has not reported for this long counts as lost."""

SHOWN_SECONDS = 600.0
"""How long the status page keeps showing a lost node."""

_LEASE_UNTIL = sa.type_coerce(nodes.c.lease_until, sa.BigInteger)
_STARTED_AT = sa.type_coerce(nodes.c.started_at, sa.BigInteger)

_NODES = sa.select(
    nodes,
    (_LEASE_UNTIL > SERVER_NOW).label("is_alive"),
    (sa.func.least(SERVER_NOW, _LEASE_UNTIL) - _STARTED_AT).label("uptime"),
).order_by(nodes.c.started_at, nodes.c.name)

_LIVE = sa.select(sa.func.count()).where(_LEASE_UNTIL > SERVER_NOW)


class NodeRecords:
    """The nodes of a fleet. Each call is one statement."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def tell(self, report: NodeReport, *, lease_seconds: float = LEASE_SECONDS) -> None:
        """Store a node's report and renew its lease; the first report inserts its row."""
        values = {
            "name": report.name,
            "address": report.address,
            "version": report.version,
            "is_leaving": report.is_leaving,
            "counts": json.dumps(report.counts),
            "lease_until": SERVER_NOW + round(lease_seconds * SECOND),
        }
        statement = upsert_into(nodes, "postgresql").values(**values, started_at=SERVER_NOW)
        changed = {name: statement.excluded[name] for name in values if name != "name"}
        renewed = statement.on_conflict_do_update(index_elements=["name"], set_=changed)
        with self._database.one_statement() as connection:
            connection.execute(renewed)

    def all(self) -> list[Node]:
        """Every node, oldest first, including recently lost ones."""
        with self._database.read() as connection:
            rows = connection.execute(_NODES).all()
        return [
            Node(
                report=NodeReport(
                    name=row.name,
                    address=row.address,
                    version=row.version,
                    is_leaving=row.is_leaving,
                    counts=json.loads(row.counts),
                ),
                state=_state(row),
                started_at=row.started_at,
                uptime_seconds=row.uptime / SECOND,
            )
            for row in rows
        ]

    def count_live(self) -> int:
        """Number of nodes that hold a lease."""
        with self._database.read() as connection:
            return connection.execute(_LIVE).scalar_one()

    def remove(self, name: str) -> None:
        """Delete the row of a node that has shut down."""
        with self._database.one_statement() as connection:
            connection.execute(sa.delete(nodes).where(nodes.c.name == name))

    def forget_gone(self, shown_seconds: float = SHOWN_SECONDS) -> None:
        """Delete the rows of nodes lost longer ago than this."""
        vanished = SERVER_NOW - round(shown_seconds * SECOND) > _LEASE_UNTIL
        with self._database.one_statement() as connection:
            connection.execute(sa.delete(nodes).where(vanished))


def _state(row: sa.Row[Any]) -> NodeState:
    if not row.is_alive:
        return NodeState.GONE
    return NodeState.LEAVING if row.is_leaving else NodeState.READY


# ---- shared values -------------------------------------------------------------------------------

# Values that all nodes must agree on: a few short texts by name.


class SharedValues:
    """Every call is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def are_shared(self) -> bool:
        """Whether other nodes may use the same records."""
        return self._database.is_remote

    def get(self, name: str) -> str | None:
        """Returns the text with this name; None if there is none."""
        with self._database.read() as connection:
            query = sa.select(shared_values.c.value).where(shared_values.c.name == name)
            return connection.execute(query).scalar()

    def agree(self, name: str, propose: Callable[[], str]) -> str:
        """Returns the text with this name; if there is none, stores the first proposal."""
        known = self.get(name)
        if known is not None:
            return known
        row = {"name": name, "value": propose()}
        with self._database.one_statement() as connection:
            insert_unless_known(connection, shared_values, row)
        found = self.get(name)
        return row["value"] if found is None else found

    def put(self, name: str, value: str) -> None:
        """Replace the text with this name; of several first texts at the same time, one stays."""
        with self._database.write() as connection:
            change = (
                sa.update(shared_values).where(shared_values.c.name == name).values(value=value)
            )
            if not connection.execute(change).rowcount:
                insert_unless_known(connection, shared_values, {"name": name, "value": value})


class SharedNote:
    """A shared value that outlives the process."""

    def __init__(self, values: SharedValues, name: str) -> None:
        self._values = values
        self._name = name

    def read(self) -> str | None:
        """Returns the text."""
        return self._values.get(self._name)

    def write(self, text: str) -> None:
        """Replace the text."""
        self._values.put(self._name, text)
