"""What the visitors of upload links say they are called."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, delete, exists, literal, not_, select, update

from app.core.access import CallerKind
from app.db.sql import insert_unless_known
from app.db.tables import HAS_SENDER, link_senders, uploads

MAX_IDLE_NAMES = 1000
"""Names of a link's visitors who have sent nothing; the oldest beyond them are forgotten."""


def keep_name(
    connection: Connection,
    link_id: str,
    visitor: str,
    *,
    name: str,
    now: datetime,
    max_idle: int = MAX_IDLE_NAMES,
) -> None:
    """Note what a visitor is called; the latest name counts.

    Of the visitors who have sent nothing, the link keeps the latest `max_idle` names.
    """
    same = (link_senders.c.link_id == link_id) & (link_senders.c.visitor == visitor)
    row = {"link_id": link_id, "visitor": visitor, "name": name, "created_at": now}
    if insert_unless_known(connection, link_senders, row):
        _forget_idle(connection, link_id, max_idle)
    else:
        connection.execute(update(link_senders).where(same).values(name=name))


def name_of(connection: Connection, link_id: str, visitor: str) -> str | None:
    """What the visitor has said to be called."""
    query = select(link_senders.c.name).where(
        link_senders.c.link_id == link_id, link_senders.c.visitor == visitor
    )
    return connection.execute(query).scalar()


def _forget_idle(connection: Connection, link_id: str, kept: int) -> None:
    of_link = link_senders.c.link_id == link_id
    sender = literal(f"{CallerKind.UPLOAD_LINK}:{link_id}:").concat(link_senders.c.visitor)
    has_sent = exists().where(uploads.c.sender == sender, HAS_SENDER)
    idle = select(link_senders.c.visitor).where(of_link, not_(has_sent))
    beyond = idle.order_by(link_senders.c.created_at.desc(), link_senders.c.visitor).offset(kept)
    connection.execute(delete(link_senders).where(of_link, link_senders.c.visitor.in_(beyond)))
