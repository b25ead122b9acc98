"""The records of API keys."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, case, func, insert, null, or_, select, update

from app.access.records.made_by import Ended, end_made_with
from app.access.records.makers import BY_KEY, BY_PERSON, require_role
from app.core.access import Role, lower_of
from app.db.engine import Database
from app.db.tables import api_keys, members, people

USE_NOTED_EVERY = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key of a project; the key itself is not kept, only its SHA-256.

    `role` is the one it was given, or that of the person who made it where that is lower by now;
    None if they have none in the project any more. `created_by` is that person, also for
    a key that was made with another one, `made_with`.
    """

    id: str
    project_id: str
    digest: str
    hint: str
    name: str
    role: Role | None
    created_by: str
    created_at: datetime
    made_with: str | None = None
    expires_at: datetime | None = None
    used_at: datetime | None = None
    revoked_at: datetime | None = None

    def works(self, now: datetime) -> bool:
        """Whether it was neither revoked nor has expired, and its maker has a role."""
        is_valid = self.revoked_at is None and self.role is not None
        return is_valid and (self.expires_at is None or now < self.expires_at)


class KeyRecords:
    """Every call is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, key: ApiKey) -> ApiKey:
        """Store a new key of a person or of another key, which it does not outlive; as stored.

        Raises `NotAllowed` if its maker has no role in the project any more.
        """
        with self._database.write() as connection:
            require_role(connection, key.created_by, key.project_id)
            key = _with_maker(connection, key)
            values = {column.name: getattr(key, column.name) for column in api_keys.columns}
            connection.execute(insert(api_keys).values(values))
        return key

    def find(self, digest: str) -> ApiKey | None:
        """The key with that digest, whether or not it still works."""
        with self._database.read() as connection:
            row = connection.execute(_KEYS.where(api_keys.c.digest == digest)).first()
        return None if row is None else _from_row(row)

    def of_project(self, project_id: str) -> list[ApiKey]:
        """All keys of a project, the newest first."""
        query = _KEYS.where(api_keys.c.project_id == project_id).order_by(
            api_keys.c.created_at.desc(), api_keys.c.id
        )
        with self._database.read() as connection:
            return [_from_row(row) for row in connection.execute(query)]

    def revoke(self, project_id: str, key_id: str, now: datetime) -> Ended | None:
        """Note that a key works no longer, nor the keys, links and invitations made with it.

        Returns how many of them have ended; None if the project has no such key that worked.
        """
        change = update(api_keys).where(
            api_keys.c.id == key_id,
            api_keys.c.project_id == project_id,
            api_keys.c.revoked_at.is_(None),
        )
        with self._database.write() as connection:
            if connection.execute(change.values(revoked_at=now)).rowcount != 1:
                return None
            return end_made_with(connection, key_id, now)

    def note_use(self, key_id: str, now: datetime) -> None:
        """Note that the key was used, unless that was noted a moment ago."""
        used_at = api_keys.c.used_at
        is_old = or_(used_at.is_(None), used_at < now - USE_NOTED_EVERY)
        change = update(api_keys).where(api_keys.c.id == key_id, is_old).values(used_at=now)
        with self._database.write() as connection:
            connection.execute(change)


_MAKER_ROLE = case(
    (people.c.is_blocked, null()),
    (people.c.is_admin, Role.MANAGER.value),
    else_=members.c.role,
)
"""What the person who made a key may do in its project now; administrators manage every one."""

_KEYS = (
    select(api_keys, _MAKER_ROLE.label("maker_role"))
    .outerjoin(people, people.c.id == func.substr(api_keys.c.created_by, len(BY_PERSON) + 1))
    .outerjoin(
        members,
        (members.c.person_id == people.c.id) & (members.c.project_id == api_keys.c.project_id),
    )
)


def _with_maker(connection: Connection, key: ApiKey) -> ApiKey:
    """The key with the person behind it; it expires no later than the key it was made with."""
    if not key.created_by.startswith(BY_KEY):
        return key
    made_with = key.created_by.removeprefix(BY_KEY)
    query = select(api_keys.c.created_by, api_keys.c.expires_at).where(api_keys.c.id == made_with)
    found = connection.execute(query).one()
    ends = [each for each in (key.expires_at, found.expires_at) if each is not None]
    return replace(
        key, created_by=found.created_by, made_with=made_with, expires_at=min(ends, default=None)
    )


def _from_row(row: Row[Any]) -> ApiKey:
    values = dict(row._mapping)
    given, most = Role(values["role"]), values.pop("maker_role")
    if not row.created_by.startswith(BY_PERSON):
        return ApiKey(**{**values, "role": given})
    return ApiKey(**{**values, "role": None if most is None else lower_of(given, Role(most))})
