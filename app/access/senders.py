"""Who has sent uploads, by the names that people know."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, select

from app.core.access import Caller, CallerKind, counted_as
from app.core.errors import TooManyUploads, too_many
from app.core.lifecycle import UploadState
from app.core.upload import Upload
from app.db.engine import Database
from app.db.minute_counts import MinuteCounts
from app.db.sql import lock_name
from app.db.tables import HAS_SENDER, api_keys, link_senders, people, upload_links, uploads

LINK = CallerKind.UPLOAD_LINK

# ---- names ---------------------------------------------------------------------------------------


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
        parts: dict[str, tuple[str, str, str]] = {}
        ids: dict[str, set[str]] = defaultdict(set)
        for sender in {upload.sender for upload in uploads} - {""}:
            kind, _, rest = sender.partition(":")
            thing, _, visitor = rest.partition(":")
            parts[sender] = kind, thing, visitor
            ids[kind].add(thing)
            ids["visitor"].add(visitor)
        if not parts:
            return {}
        tables = ((CallerKind.PERSON, people), (CallerKind.KEY, api_keys), (LINK, upload_links))
        with self._database.read() as connection:
            names = {kind: _names(connection, table, ids[kind]) for kind, table in tables}
            visitors = _visitors(connection, ids[LINK], ids["visitor"])
        senders = {}
        for sender, (kind, thing, visitor) in parts.items():
            if kind == LINK:
                name, link = visitors.get((thing, visitor), ""), names[LINK].get(thing, "")
                senders[sender] = Sender(kind=LINK, id=thing, name=name, link=link)
            elif kind in names:
                known = CallerKind(kind)
                senders[sender] = Sender(kind=known, id=thing, name=names[known].get(thing, ""))
        return senders


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


# ---- limits --------------------------------------------------------------------------------------

# What one sender may have on its way: so many uploads, and so many new ones a minute.
#
# Uploads without a sender have no such limits: without accounts, all clients are one. Of those
# who use an upload link each visitor is a sender.


class SenderLimits:
    """Refuses uploads beyond the limits, in their creating transaction; 0 stands for no limit.

    SQLite has one writer at a time, so the count is exact. PostgreSQL needs a lock on the sender,
    whose uploads may be to different projects.
    """

    def __init__(self, counts: MinuteCounts, *, per_minute: int, max_uploads: int) -> None:
        self._counts = counts
        self._per_minute = per_minute
        self._max_uploads = max_uploads

    def observe(self, connection: Connection, before: Upload | None, after: Upload | None) -> None:
        """Raise `TooManyRequests` or `TooManyUploads` for one new upload too many."""
        is_new = before is None and after is not None and after.state is UploadState.RECEIVING
        if after is None or not is_new or not after.sender:
            return
        # A name of its own: requests of the sender are counted under the sender's.
        if self._per_minute and self._counts.add(f"new {after.sender}") > self._per_minute:
            raise too_many("new uploads", self._per_minute, wait_seconds=self._counts.seconds_left)
        if not self._max_uploads:
            return
        lock_name(connection, after.sender)
        is_unfinished = uploads.c.state == UploadState.RECEIVING
        of_sender = (uploads.c.sender == after.sender) & HAS_SENDER & is_unfinished
        count = connection.execute(select(func.count()).where(of_sender)).scalar_one()
        if count > self._max_uploads:
            raise TooManyUploads(
                f"{self._max_uploads} uploads are on their way, which is the most at once: finish "
                "or cancel some first."
            )


# ---- requests a minute ---------------------------------------------------------------------------

# How many requests a caller may send in a minute.


class RequestRate:
    """Counts requests by who sends them; 0 a minute stands for any number."""

    def __init__(self, counts: MinuteCounts, *, per_minute: int) -> None:
        self._counts = counts
        self._per_minute = per_minute

    def check(self, caller: Caller | None, address: str) -> None:
        """Count a request; raises `TooManyRequests` beyond the limit."""
        if not self._per_minute:
            return
        if self._counts.add(counted_as(caller, address)) > self._per_minute:
            raise too_many("requests", self._per_minute, wait_seconds=self._counts.seconds_left)
