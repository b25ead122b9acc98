"""Builds what is in this package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from app.identity.audit import AuditLog
from app.identity.callers import Callers
from app.identity.keys import ApiKeys
from app.identity.sessions import Sessions
from app.identity.signing import Signing
from app.records.engine import Database
from app.records.identity.audit import AuditRecords
from app.records.identity.keys import KeyRecords
from app.records.identity.people import PeopleRecords
from app.records.identity.sessions import SessionRecords

SECRET = "link-secret"
"""The file in the data folder with what the cookies and tickets of links are signed with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityServices:
    """What the web layer asks of identity."""

    callers: Callers
    keys: ApiKeys
    people: PeopleRecords
    sessions: Sessions
    signing: Signing
    audit: AuditLog

    @classmethod
    def build(
        cls,
        database: Database,
        data_dir: Path,
        *,
        is_open: bool,
        clock: Callable[[], datetime],
        new_id: Callable[[], str],
        audit_kept: timedelta,
    ) -> IdentityServices:
        """All of it over one database."""
        keys = ApiKeys(KeyRecords(database), clock=clock, new_id=new_id)
        sessions = Sessions(SessionRecords(database), clock=clock, new_id=new_id)
        return cls(
            callers=Callers(keys, sessions, is_open=is_open),
            keys=keys,
            people=PeopleRecords(database),
            sessions=sessions,
            signing=Signing(data_dir / SECRET),
            audit=AuditLog(AuditRecords(database), clock=clock, kept=audit_kept),
        )
