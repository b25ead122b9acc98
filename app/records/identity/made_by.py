"""What somebody has made in projects, and what becomes of it when they are blocked or leave.

Keys and links are known to whoever made them, so they end. Webhooks only tell an address what
happens in the project, whose managers see them: they stay.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, Table, func, literal, select, true, update

from app.records.identity.keys import BY_KEY
from app.records.identity.tables import api_keys, share_links, upload_links, webhooks

_ENDED = (
    ("keys_revoked", api_keys.c.revoked_at),
    ("links_closed", share_links.c.revoked_at),
    ("links_closed", upload_links.c.closed_at),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How much of one project has ended with its maker, and how many webhooks stay."""

    keys_revoked: int = 0
    links_closed: int = 0
    webhooks_kept: int = 0


def end_made_by(
    connection: Connection, maker: str, now: datetime, *, project_id: str | None = None
) -> dict[str, Ended]:
    """End the keys and links that `maker` ("person:ID") has made, and those made with these keys.

    All of them, or those of one project; returns what has ended by project.
    """
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for kind, ended_at in _ENDED:
        table = ended_at.table
        expires_at = table.c.expires_at
        works = ended_at.is_(None) & (expires_at.is_(None) | (expires_at > now))
        works &= _made_by(table, maker, project_id)
        _count(connection, table, works, kind=kind, into=counts)
        connection.execute(update(table).where(works).values({ended_at.name: now}))
    theirs = _made_by(webhooks, maker, project_id)
    _count(connection, webhooks, theirs, kind="webhooks_kept", into=counts)
    return {project: Ended(**found) for project, found in counts.items()}


def _made_by(table: Table, maker: str, project_id: str | None) -> ColumnElement[bool]:
    keys = api_keys.alias()
    their_keys = select(literal(BY_KEY).concat(keys.c.id)).where(keys.c.created_by == maker)
    is_theirs = (table.c.created_by == maker) | table.c.created_by.in_(their_keys)
    return is_theirs & (true() if project_id is None else table.c.project_id == project_id)


def _count(
    connection: Connection,
    table: Table,
    condition: ColumnElement[bool],
    *,
    kind: str,
    into: dict[str, Counter[str]],
) -> None:
    query = select(table.c.project_id, func.count()).where(condition).group_by(table.c.project_id)
    for project, count in connection.execute(query):
        into[project][kind] += count
