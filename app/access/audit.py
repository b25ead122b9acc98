"""The audit log: who did what, when, from where."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from app.access.records.audit import AuditRecords
from app.access.records.made_by import Ended
from app.access.records.people import Person
from app.core.access import Caller
from app.core.audit import AuditAction, AuditEntry, AuditFilter, Detail, kept_details, printable
from app.core.errors import InvalidRequest, UploadError
from app.core.numbers import parse_bounded

MAX_PAGE = 500
"""More entries are never read at once."""

SUBJECT_CHARACTERS = 100
ADDRESS_CHARACTERS = 64

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Some entries, the newest first, and the cursor of the page after them."""

    entries: list[AuditEntry]
    next_cursor: str | None


class AuditLog:
    """Notes what happens and tells it again, for as long as `kept`."""

    def __init__(
        self, records: AuditRecords, *, clock: Callable[[], datetime], kept: timedelta
    ) -> None:
        self._records = records
        self._clock = clock
        self._kept = kept

    def note(
        self,
        action: AuditAction,
        subject: str = "",
        *,
        caller: Caller,
        address: str = "",
        project: str | None = None,
        details: Mapping[str, Detail] | None = None,
    ) -> None:
        """Add an entry for what has been done. Never fails: what was done is not undone.

        An entry for which there is no room goes to the server's log. `details` hold no secrets.
        """
        entry = AuditEntry(
            at=self._clock(),
            action=action,
            actor=printable(caller.actor, SUBJECT_CHARACTERS),
            actor_name=printable(caller.name, SUBJECT_CHARACTERS),
            address=printable(address, ADDRESS_CHARACTERS),
            subject=printable(subject, SUBJECT_CHARACTERS),
            project_id=project,
            details=kept_details(dict(details or {})),
        )
        try:
            self._records.add(entry)
        except UploadError as error:
            log.error("the audit log has no room for %s: %s", entry, error)

    def note_ended(
        self,
        person: Person,
        ended: Mapping[str, Ended],
        *,
        change: str,
        caller: Caller,
        address: str = "",
    ) -> None:
        """Note in each project what has ended because of a change to a person, such as "block"."""
        for project, counts in ended.items():
            self.note(
                AuditAction.MEMBER_CHANGED,
                f"person:{person.id}",
                caller=caller,
                address=address,
                project=project,
                details={"email": person.email, "change": change, **asdict(counts)},
            )

    def page(self, wanted: AuditFilter, *, limit: int, cursor: str | None) -> AuditPage:
        """The newest entries, or those after a cursor; raises `InvalidRequest`."""
        before = None if cursor is None else parse_bounded(cursor)
        if cursor is not None and before is None:
            raise InvalidRequest("The cursor is not one of this server's.")
        if not 0 < limit <= MAX_PAGE:
            raise InvalidRequest(f"The limit must be 1 to {MAX_PAGE}.")
        entries = self._records.page(wanted, limit=limit + 1, before=before)
        has_more = len(entries) > limit
        return AuditPage(entries[:limit], str(entries[limit - 1].number) if has_more else None)

    def all(self, wanted: AuditFilter) -> Iterator[AuditEntry]:
        """Every entry, the newest first; a page at a time is in memory."""
        cursor: str | None = None
        while True:
            page = self.page(wanted, limit=MAX_PAGE, cursor=cursor)
            yield from page.entries
            if (cursor := page.next_cursor) is None:
                return

    def remove_old(self) -> None:
        """Remove the entries that are too old, in small transactions."""
        cutoff = self._clock() - self._kept
        while self._records.remove_before(cutoff, MAX_PAGE) == MAX_PAGE:
            pass
