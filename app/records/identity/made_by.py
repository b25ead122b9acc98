"""What somebody has made in projects, and what becomes of it when they are blocked or leave.

Keys, links and invitations are known to whoever made them, so they end. Webhooks only tell an
address what happens in the project, whose managers see them: they stay.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Result, Table, literal, select, true, update

from app.records.identity.makers import BY_KEY
from app.records.identity.tables import (
    api_keys,
    invitations,
    share_links,
    upload_links,
    webhooks,
)

_ENDED = (
    ("keys_revoked", api_keys.c.revoked_at),
    ("links_closed", share_links.c.revoked_at),
    ("links_closed", upload_links.c.closed_at),
    ("invitations_withdrawn", invitations.c.used_at),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How much of one project has ended with its maker, and how many webhooks stay."""

    keys_revoked: int = 0
    links_closed: int = 0
    invitations_withdrawn: int = 0
    webhooks_kept: int = 0


def end_made_by(
    connection: Connection, maker: str, now: datetime, *, project_id: str | None = None
) -> dict[str, Ended]:
    """End the keys, links and invitations of `maker` ("person:ID"), and those made with these keys.

    All of them, or those of one project; returns what has ended by project. Links for new passwords
    and invitations to no project end too, and are not counted.
    """
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for kind, ended_at in _ENDED:
        table = ended_at.table
        expires_at = table.c.expires_at
        works = ended_at.is_(None) & (expires_at.is_(None) | (expires_at > now))
        works &= _made_by(table, maker, project_id)
        change = update(table).where(works).values({ended_at.name: now})
        _count(connection.execute(change.returning(table.c.project_id)), kind, into=counts)
    kept = select(webhooks.c.project_id).where(_made_by(webhooks, maker, project_id))
    _count(connection.execute(kept), "webhooks_kept", into=counts)
    return {project: Ended(**found) for project, found in counts.items()}


def _made_by(table: Table, maker: str, project_id: str | None) -> ColumnElement[bool]:
    keys = api_keys.alias()
    their_keys = select(literal(BY_KEY).concat(keys.c.id)).where(keys.c.created_by == maker)
    is_theirs = (table.c.created_by == maker) | table.c.created_by.in_(their_keys)
    return is_theirs & (true() if project_id is None else table.c.project_id == project_id)


def _count(projects: Result[Any], kind: str, *, into: dict[str, Counter[str]]) -> None:
    for project in projects.scalars():
        if project is not None:
            into[project][kind] += 1
