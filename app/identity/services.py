"""Builds what is in this package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from app.identity.accounts import Accounts
from app.identity.audit import AuditLog
from app.identity.callers import Callers
from app.identity.invitations import Invitations
from app.identity.keys import ApiKeys
from app.identity.link_passwords import LinkPasswords
from app.identity.mail import Mail
from app.identity.passwords import Passwords
from app.identity.projects import Projects
from app.identity.sessions import Sessions
from app.identity.share_links import ShareLinks
from app.identity.sign_in import SignIn
from app.identity.signing import Signing
from app.records.engine import Database
from app.records.identity.attempts import AttemptRecords
from app.records.identity.audit import AuditRecords
from app.records.identity.invitations import InvitationRecords
from app.records.identity.keys import KeyRecords
from app.records.identity.people import PeopleRecords
from app.records.identity.projects import ProjectRecords
from app.records.identity.sessions import SessionRecords
from app.records.identity.share_links import ShareLinkRecords

SECRET = "link-secret"
"""The file in the data folder with what the cookies and tickets of links are signed with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityOptions:
    """What the operator has set."""

    is_open: bool
    audit_kept: timedelta
    has_passwords: bool
    mail: Mail


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityServices:
    """What the web layer asks of identity."""

    callers: Callers
    keys: ApiKeys
    people: PeopleRecords
    accounts: Accounts
    invitations: Invitations
    passwords: Passwords
    projects: Projects
    sessions: Sessions
    sign_in: SignIn
    mail: Mail
    share_links: ShareLinks
    signing: Signing
    audit: AuditLog

    @classmethod
    def build(
        cls,
        database: Database,
        data_dir: Path,
        options: IdentityOptions,
        *,
        clock: Callable[[], datetime],
        new_id: Callable[[], str],
    ) -> IdentityServices:
        """All of it over one database."""
        keys = ApiKeys(KeyRecords(database), clock=clock, new_id=new_id)
        people, passwords = PeopleRecords(database), Passwords()
        sessions = Sessions(SessionRecords(database), clock=clock, new_id=new_id)
        signing = Signing(data_dir / SECRET)
        attempts = AttemptRecords(database)
        link_passwords = LinkPasswords(passwords, attempts, clock=clock)
        share_links = ShareLinks(
            ShareLinkRecords(database), signing, link_passwords, clock=clock, new_id=new_id
        )
        return cls(
            callers=Callers(keys, sessions, share_links, is_open=options.is_open),
            keys=keys,
            people=people,
            accounts=Accounts(people, sessions, passwords, clock=clock, new_id=new_id),
            invitations=Invitations(
                InvitationRecords(database), people, passwords, clock=clock, new_id=new_id
            ),
            passwords=passwords,
            projects=Projects(
                ProjectRecords(database), people, sessions=sessions, clock=clock, new_id=new_id
            ),
            sessions=sessions,
            sign_in=SignIn(
                people,
                attempts,
                passwords,
                signing=signing,
                clock=clock,
                has_passwords=options.has_passwords,
            ),
            mail=options.mail,
            share_links=share_links,
            signing=signing,
            audit=AuditLog(AuditRecords(database), clock=clock, kept=options.audit_kept),
        )
