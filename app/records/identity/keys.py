"""The records of API keys."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, insert, or_, select, true, update

from app.domain.access import Role
from app.records.engine import Database
from app.records.identity.tables import api_keys

USE_NOTED_EVERY = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key of a project; the key itself is not kept, only its SHA-256."""

    id: str
    project_id: str
    digest: str
    hint: str
    name: str
    role: Role
    created_by: str
    created_at: datetime
    expires_at: datetime | None = None
    used_at: datetime | None = None
    revoked_at: datetime | None = None

    def works(self, now: datetime) -> bool:
        """Whether it was neither revoked nor has expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class KeyRecords:
    """Every call is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, key: ApiKey) -> None:
        """Store a new key."""
        values = {column.name: getattr(key, column.name) for column in api_keys.columns}
        with self._database.write() as connection:
            connection.execute(insert(api_keys).values(values))

    def find(self, digest: str) -> ApiKey | None:
        """The key with that digest, whether or not it still works."""
        with self._database.read() as connection:
            row = connection.execute(select(api_keys).where(api_keys.c.digest == digest)).first()
        return None if row is None else _from_row(row)

    def of_project(self, project_id: str) -> list[ApiKey]:
        """All keys of a project, the newest first."""
        query = (
            select(api_keys)
            .where(api_keys.c.project_id == project_id)
            .order_by(api_keys.c.created_at.desc(), api_keys.c.id)
        )
        with self._database.read() as connection:
            return [_from_row(row) for row in connection.execute(query)]

    def revoke(self, project_id: str, key_id: str, now: datetime) -> bool:
        """Note that a key works no longer; whether the project has such a key that did."""
        change = update(api_keys).where(
            api_keys.c.id == key_id,
            api_keys.c.project_id == project_id,
            api_keys.c.revoked_at.is_(None),
        )
        with self._database.write() as connection:
            return connection.execute(change.values(revoked_at=now)).rowcount == 1

    def note_use(self, key_id: str, now: datetime) -> None:
        """Note that the key was used, unless that was noted a moment ago."""
        used_at = api_keys.c.used_at
        is_old = or_(used_at.is_(None), used_at < now - USE_NOTED_EVERY)
        change = update(api_keys).where(api_keys.c.id == key_id, is_old).values(used_at=now)
        with self._database.write() as connection:
            connection.execute(change)


def revoke_made_by(
    connection: Connection, maker: str, now: datetime, *, project_id: str | None = None
) -> None:
    """Revoke the keys that `maker` ("person:ID") has made, and those made with these keys.

    All of them, or those of one project.
    """
    is_meant = true() if project_id is None else api_keys.c.project_id == project_id
    makers = [maker]
    while makers:
        condition = is_meant & api_keys.c.created_by.in_(makers)
        found = connection.execute(select(api_keys.c.id).where(condition)).scalars()
        makers = [f"key:{key_id}" for key_id in found]
        change = update(api_keys).where(condition, api_keys.c.revoked_at.is_(None))
        connection.execute(change.values(revoked_at=now))


def _from_row(row: Row[Any]) -> ApiKey:
    return ApiKey(**{**row._mapping, "role": Role(row.role)})
