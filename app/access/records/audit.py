"""The records of the audit log: entries are added, read, and removed when they are old."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, delete, insert, or_, select

from app.core.audit import AuditAction, AuditEntry, AuditFilter
from app.db.engine import Database
from app.db.tables import audit


class AuditRecords:
    """Every call is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, entry: AuditEntry) -> None:
        """Store a new entry, and number it."""
        values = {
            "at": entry.at,
            "project_id": entry.project_id,
            "action": entry.action.value,
            "actor": entry.actor,
            "actor_name": entry.actor_name,
            "address": entry.address,
            "subject": entry.subject,
            "details": json.dumps(entry.details, separators=(",", ":")),
        }
        with self._database.write() as connection:
            connection.execute(insert(audit).values(values))

    def page(self, wanted: AuditFilter, *, limit: int, before: int | None) -> list[AuditEntry]:
        """The newest entries, of those with a lower number than `before`."""
        query = select(audit).order_by(audit.c.id.desc()).limit(limit)
        conditions: list[tuple[Any, Callable[[Any], ColumnElement[bool]]]] = [
            (wanted.project_id, audit.c.project_id.__eq__),
            (wanted.action, audit.c.action.__eq__),
            (wanted.actor, lambda who: or_(audit.c.actor == who, audit.c.actor_name == who)),
            (wanted.since, audit.c.at.__ge__),
            (wanted.until, audit.c.at.__lt__),
            (before, audit.c.id.__lt__),
        ]
        query = query.where(*(meets(value) for value, meets in conditions if value is not None))
        with self._database.read() as connection:
            return [_from_row(row) for row in connection.execute(query)]

    def remove_before(self, cutoff: datetime, limit: int) -> int:
        """Remove the oldest entries, at most `limit`, that are older than `cutoff`; how many."""
        oldest = select(audit.c.id, audit.c.at).order_by(audit.c.id).limit(limit)
        with self._database.read() as connection:
            old = [row.id for row in connection.execute(oldest) if row.at < cutoff]
        if old:
            with self._database.write() as connection:
                connection.execute(delete(audit).where(audit.c.id.in_(old)))
        return len(old)


def _from_row(row: Row[Any]) -> AuditEntry:
    return AuditEntry(
        number=row.id,
        at=row.at,
        action=AuditAction(row.action),
        actor=row.actor,
        actor_name=row.actor_name,
        address=row.address,
        subject=row.subject,
        project_id=row.project_id,
        details=json.loads(row.details),
    )
