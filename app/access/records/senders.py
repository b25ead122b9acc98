"""Who has sent uploads, by the names that people know."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from app.core.access import CallerKind
from app.core.upload import Upload
from app.db.engine import Database
from app.db.tables import api_keys, link_senders, people, upload_links


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """Who sent an upload: `id` is that of the person, key or upload link.

    `name` is the person's or the key's; of a link the name that the visitor has given, if any.
    `link` is the title of the link.
    """

    kind: CallerKind
    id: str
    name: str = ""
    link: str = ""


class SenderRecords:
    """Reads names; every call is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, uploads: Iterable[Upload]) -> Mapping[str, Sender]:
        """The senders of these uploads by `Upload.sender`, in at most four queries.

        Without accounts, uploads have no sender, and nothing is asked.
        """
        ids: dict[str, set[str]] = defaultdict(set)
        found = {upload.sender for upload in uploads} - {""}
        if not found:
            return {}
        for sender in found:
            kind, thing, visitor = _parts(sender)
            ids[kind].add(thing)
            ids["visitor"].add(visitor)
        with self._database.read() as connection:
            names = {
                CallerKind.PERSON: _names(connection, people, ids[CallerKind.PERSON]),
                CallerKind.KEY: _names(connection, api_keys, ids[CallerKind.KEY]),
                CallerKind.UPLOAD_LINK: _names(
                    connection, upload_links, ids[CallerKind.UPLOAD_LINK]
                ),
            }
            visitors = _visitors(connection, ids[CallerKind.UPLOAD_LINK], ids["visitor"])
        return {
            sender: _sender(sender, names, visitors)
            for sender in found
            if _parts(sender)[0] in names
        }


def _parts(sender: str) -> tuple[str, str, str]:
    kind, _, rest = sender.partition(":")
    thing, _, visitor = rest.partition(":")
    return kind, thing, visitor


def _names(connection: Connection, table: Any, ids: set[str]) -> dict[str, str]:
    if not ids:
        return {}
    rows = connection.execute(select(table.c.id, table.c.name).where(table.c.id.in_(ids)))
    return {row.id: row.name for row in rows}


def _visitors(
    connection: Connection, links: set[str], visitors: set[str]
) -> dict[tuple[str, str], str]:
    if not links:
        return {}
    of_link = link_senders.c
    query = select(of_link.link_id, of_link.visitor, of_link.name).where(
        of_link.link_id.in_(links), of_link.visitor.in_(visitors)
    )
    return {(row.link_id, row.visitor): row.name for row in connection.execute(query)}


def _sender(
    sender: str,
    names: Mapping[CallerKind, Mapping[str, str]],
    visitors: Mapping[tuple[str, str], str],
) -> Sender:
    kind, thing, visitor = _parts(sender)
    name = names[CallerKind(kind)].get(thing, "")
    if kind == CallerKind.UPLOAD_LINK:
        given = visitors.get((thing, visitor), "")
        return Sender(kind=CallerKind.UPLOAD_LINK, id=thing, name=given, link=name)
    return Sender(kind=CallerKind(kind), id=thing, name=name)
