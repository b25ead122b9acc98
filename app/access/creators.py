"""Who made what in projects, and what ends when they lose their place."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Result, Table, literal, select, true, update

from app.core.access import Role
from app.core.errors import NotAllowed
from app.db.tables import (
    api_keys,
    invitations,
    members,
    people,
    projects,
    share_links,
    upload_links,
    webhooks,
)

# ---- creators ------------------------------------------------------------------------------------

# Who answers for what is made in projects: a person, also for what is made with their keys.


BY_PERSON, BY_KEY = "person:", "key:"
"""How makers begin; see `Caller.sender`. All others stand for the operator of the server."""


def role_now(
    connection: Connection, maker: str, project_id: str | None, *, is_kept: bool = False
) -> Role | None:
    """The role now of the person who answers for `maker`; None if they have none in the project.

    Administrators and the operator manage every project, and they alone the server, which is no
    project. A key that was revoked may do nothing. With `is_kept`, the answer holds until the
    transaction ends.
    """
    if is_kept and not _keep(connection, maker, project_id):
        return None
    person = _person_behind(connection, maker)
    if person is None or not person.startswith(BY_PERSON):
        return None if person is None else Role.MANAGER
    person_id = person.removeprefix(BY_PERSON)
    query = select(people.c.is_admin, people.c.is_blocked).where(people.c.id == person_id)
    found = connection.execute(query).first()
    if found is None or found.is_blocked:
        return None
    if found.is_admin:
        return Role.MANAGER
    role = select(members.c.role).where(_is_membership(person_id, project_id))
    value = connection.execute(role).scalar()
    return None if value is None else Role(value)


def require_role(connection: Connection, maker: str, project_id: str) -> None:
    """Raise `NotAllowed` unless the person who answers for `maker` has a role in the project.

    It stays so until the transaction ends. A request is let in before it writes: in between, all
    that its sender has made may have ended.
    """
    if role_now(connection, maker, project_id, is_kept=True) is None:
        raise NotAllowed("You are no longer a member of this project.")


def _person_behind(connection: Connection, maker: str) -> str | None:
    """The person behind a maker, which may be a key; None if the key was revoked."""
    if not maker.startswith(BY_KEY):
        return maker
    is_valid = (api_keys.c.id == maker.removeprefix(BY_KEY)) & api_keys.c.revoked_at.is_(None)
    return connection.execute(select(api_keys.c.created_by).where(is_valid)).scalar()


def _is_membership(person_id: str, project_id: str | None) -> ColumnElement[bool]:
    return (members.c.person_id == person_id) & (members.c.project_id == project_id)


def _keep(connection: Connection, maker: str, project_id: str | None) -> bool:
    """Lock the rows that a maker's role depends on; whether the project still exists.

    In the lock order of `app.db.sql`. Later statements see the latest changes.
    """
    person_id = (_person_behind(connection, maker) or "").removeprefix(BY_PERSON)
    project = select(projects.c.id).where(projects.c.id == project_id)
    found = connection.execute(project.with_for_update(read=True, key_share=True)).first()
    for column, is_meant in (
        (people.c.id, people.c.id == person_id),
        (members.c.person_id, _is_membership(person_id, project_id)),
        (api_keys.c.id, api_keys.c.id == maker.removeprefix(BY_KEY)),
    ):
        connection.execute(select(column).where(is_meant).with_for_update(read=True))
    return project_id is None or found is not None


# ---- what ends with them -------------------------------------------------------------------------

# What people have made in projects, and what becomes of it when they lose their place there.
#
# Keys, links and invitations are known to their makers, so they end. Webhooks only tell an
# address what happens in the project, whose managers see them: they stay.


_ENDED = (
    ("keys_revoked", api_keys.c.revoked_at),
    ("links_closed", share_links.c.revoked_at),
    ("links_closed", upload_links.c.closed_at),
    ("invitations_withdrawn", invitations.c.used_at),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RevocationCounts:
    """How much of one project has ended with its maker or a key, and how many webhooks stay."""

    keys_revoked: int = 0
    links_closed: int = 0
    invitations_withdrawn: int = 0
    webhooks_kept: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    """A key or link that works; `kind` is what people call it."""

    kind: str
    name: str
    project: str
    created_at: datetime


_KINDS = (
    ("API key", api_keys, api_keys.c.name, api_keys.c.revoked_at),
    ("share link", share_links, share_links.c.name, share_links.c.revoked_at),
    ("upload link", upload_links, upload_links.c.name, upload_links.c.closed_at),
)


def made_by(connection: Connection, maker: str, now: datetime) -> list[Creation]:
    """The keys and links of `maker` ("person:ID") that work, and those made with these keys."""
    found = []
    for kind, table, name, ended_at in _KINDS:
        expires_at = table.c.expires_at
        works = ended_at.is_(None) & (expires_at.is_(None) | (expires_at > now))
        query = (
            select(name.label("name"), projects.c.name.label("project"), table.c.created_at)
            .join(projects, projects.c.id == table.c.project_id)
            .where(works, _made_by(table, maker))
        )
        found += [Creation(kind=kind, **row._mapping) for row in connection.execute(query)]
    return sorted(found, key=lambda one: one.created_at, reverse=True)


def end_made_by(
    connection: Connection, maker: str, now: datetime, *, project_id: str | None = None
) -> dict[str, RevocationCounts]:
    """End the keys, links and invitations of `maker` ("person:ID"), and those made with these keys.

    All of them, or those of one project; returns what has ended by project. Links for new passwords
    and invitations to no project end too, and are not counted.
    """

    def is_theirs(table: Table) -> ColumnElement[bool]:
        is_there = true() if project_id is None else table.c.project_id == project_id
        return _made_by(table, maker) & is_there

    return _end(connection, is_theirs, now)


def end_made_elsewhere(
    connection: Connection, person_id: str, now: datetime
) -> dict[str, RevocationCounts]:
    """As `end_made_by`, of what a person has made in projects that they are no member of."""
    maker = f"{BY_PERSON}{person_id}"
    own = select(members.c.project_id).where(members.c.person_id == person_id)

    def is_elsewhere(table: Table) -> ColumnElement[bool]:
        project = table.c.project_id
        return _made_by(table, maker) & (project.is_(None) | project.not_in(own))

    return _end(connection, is_elsewhere, now)


def end_made_with(connection: Connection, key_id: str, now: datetime) -> RevocationCounts:
    """End the keys that were made with a key, or with such keys, and what was made with any."""
    key, child = api_keys.alias(), api_keys.alias()
    keys = select(key.c.id).where(key.c.id == key_id).cte(recursive=True)
    keys = keys.union(select(child.c.id).where(child.c.made_with == keys.c.id))

    def is_made_with(table: Table) -> ColumnElement[bool]:
        if table is api_keys:
            return api_keys.c.made_with.in_(select(keys.c.id))
        return table.c.created_by.in_(select(literal(BY_KEY).concat(keys.c.id)))

    (ended,) = _end(connection, is_made_with, now).values() or (RevocationCounts(),)
    return ended


def _end(
    connection: Connection, is_meant: Callable[[Table], ColumnElement[bool]], now: datetime
) -> dict[str, RevocationCounts]:
    """End what is meant and still works; returns how much by project."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for kind, ended_at in _ENDED:
        table = ended_at.table
        expires_at = table.c.expires_at
        works = ended_at.is_(None) & (expires_at.is_(None) | (expires_at > now))
        change = update(table).where(works, is_meant(table)).values({ended_at.name: now})
        _count(connection.execute(change.returning(table.c.project_id)), kind, into=counts)
    kept = select(webhooks.c.project_id).where(is_meant(webhooks))
    _count(connection.execute(kept), "webhooks_kept", into=counts)
    return {project: RevocationCounts(**found) for project, found in counts.items()}


def _made_by(table: Table, maker: str) -> ColumnElement[bool]:
    keys = api_keys.alias()
    their_keys = select(literal(BY_KEY).concat(keys.c.id)).where(keys.c.created_by == maker)
    return (table.c.created_by == maker) | table.c.created_by.in_(their_keys)


def _count(projects: Result[Any], kind: str, *, into: dict[str, Counter[str]]) -> None:
    for project in projects.scalars():
        if project is not None:
            into[project][kind] += 1
