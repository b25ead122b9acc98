"""Links that work once: to set up the server, to join it, to choose another password."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from app.access.accounts import clean_email
from app.access.key_format import digest_of
from app.access.passwords import Passwords, require_good
from app.access.records.invitations import Invitation, InvitationRecords, Purpose
from app.access.records.people import PeopleRecords, Person
from app.core.access import FIRST_PROJECT, Role
from app.core.errors import InvalidField, LinkClosed
from app.core.names import clean_name

LIFETIMES = {
    Purpose.SET_UP: timedelta(days=1),
    Purpose.JOIN: timedelta(days=7),
    Purpose.RESET: timedelta(days=1),
}

CODE_BYTES = 24
"""192 random bits."""


class Invitations:
    """Makes such links, and does what they are for.

    The codes are shown to whoever makes them; only their digests are stored.
    """

    def __init__(
        self,
        records: InvitationRecords,
        people: PeopleRecords,
        passwords: Passwords,
        *,
        clock: Callable[[], datetime],
        new_id: Callable[[], str],
        has_passwords: bool = True,
    ) -> None:
        self._records = records
        self._people = people
        self._passwords = passwords
        self._clock = clock
        self._new_id = new_id
        self._has_passwords = has_passwords

    def to_set_up(self) -> str | None:
        """The code of a new link that makes the first administrator; None if there is one."""
        return None if self._people.has_administrator() else self._make(Purpose.SET_UP)

    def to_join(
        self, email: str, *, by: str, project_id: str | None = None, role: Role | None = None
    ) -> str:
        """The code of a link that makes an account for that address, or lets its account in.

        It works as long as `by`, its maker as in `Caller.sender`, manages the project, or the
        server if it is to no project. Raises `InvalidField` if there is nothing to let it into.
        """
        email = clean_email(email)
        person = self._people.find_by_email(email)
        if person is not None and project_id is None:
            raise InvalidField("This person has an account already.", field="email")
        if person is not None and project_id in self._people.roles(person.id):
            raise InvalidField("This person is a member already.", field="email")
        return self._make(Purpose.JOIN, by, email=email, project_id=project_id, role=role)

    def to_reset(self, person: Person, *, by: str) -> str:
        """The code of a link by which that person chooses another password.

        It works as long as `by`, as in `to_join`, administers the server.
        """
        return self._make(Purpose.RESET, by, person_id=person.id)

    def to_reset_by_mail(self, person: Person) -> str:
        """The code of such a link for a person who has asked for it themselves, or a stranger has.

        Earlier ones of this kind stop working, those of administrators do not.
        """
        return self._make(Purpose.RESET, person_id=person.id, email=person.email)

    def find(self, code: str, purpose: Purpose) -> Invitation:
        """What a link is for; raises `LinkClosed` if it does not work (any more)."""
        found = self._records.find(digest_of(code))
        if found is None or found.purpose is not purpose or not found.works(self._clock()):
            raise LinkClosed("The link was used or has expired. Ask for a new one.")
        if purpose is Purpose.SET_UP and self._people.has_administrator():
            raise LinkClosed("This server is set up already.")
        if purpose is Purpose.JOIN and found.project_id is None and self.is_to_known(found):
            raise LinkClosed("You have an account already. Sign in.")
        return found

    def is_to_known(self, invitation: Invitation) -> bool:
        """Whether somebody has an account with the address that was invited."""
        return self._people.find_by_email(invitation.email or "") is not None

    def waiting(self, project_id: str | None = None) -> list[Invitation]:
        """Those to a project, or all, that nobody has accepted yet, the newest first."""
        return self._records.waiting(self._clock(), project_id=project_id)

    def waiting_for(self, person: Person) -> list[Invitation]:
        """Those to projects by the person's address, the newest first.

        Empty as long as the address may be somebody else's: see `Person.is_proven`.
        """
        if not person.is_proven:
            return []
        found = self._records.waiting(self._clock(), email=person.email)
        return [each for each in found if each.project_id is not None]

    def waiting_one(self, person: Person, digest: str) -> Invitation:
        """One of `waiting_for`; raises `LinkClosed` if it is none of them (any more)."""
        for each in self.waiting_for(person):
            if each.digest == digest:
                return each
        raise LinkClosed("The invitation was withdrawn, or has expired.")

    def accept_waiting(self, person: Person, digest: str) -> Invitation:
        """Let the person into the project; raises `LinkClosed`, `InvalidField`."""
        invitation = self.waiting_one(person, digest)
        self._records.accept(invitation, person.id, self._clock())
        return invitation

    def withdraw(self, digest: str, project_id: str | None = None) -> Invitation | None:
        """Let a link to join a project, or any, work no longer; what it was, if there was one."""
        return self._records.withdraw(digest, project_id=project_id)

    def remove_old(self) -> None:
        """Remove those that have expired."""
        self._records.remove_old(self._clock())

    def set_up(self, code: str, *, email: str, name: str, password: str) -> Person:
        """The first administrator, manager of the first project."""
        invitation = self.find(code, Purpose.SET_UP)
        return self._join(invitation, email=email, name=name, password=password)

    def join(self, code: str, *, name: str, password: str) -> Person:
        """The new person; raises `LinkClosed` or `InvalidField`."""
        invitation = self.find(code, Purpose.JOIN)
        return self._join(invitation, email=invitation.email or "", name=name, password=password)

    def accept(self, code: str, person_id: str) -> Invitation:
        """Let somebody who has an account into the project; raises `LinkClosed`, `InvalidField`.

        Whoever has the link may use it for any account, as for a new one.
        """
        invitation = self.find(code, Purpose.JOIN)
        if invitation.project_id is None:
            raise InvalidField("This link makes an account. You have one already.", field="email")
        self._records.accept(invitation, person_id, self._clock())
        return invitation

    def choose_password(self, code: str, password: str) -> Person:
        """Whose password it is now; their sessions have ended.

        Their passkeys are removed, unless the link was mailed: see `InvitationRecords.reset`.
        """
        invitation = self.find(code, Purpose.RESET)
        person = self._people.find(invitation.person_id or "")
        if person is None or person.is_blocked:
            raise LinkClosed("The account is blocked.")
        if invitation.is_mailed and invitation.email != person.email:
            raise LinkClosed("The address of the account was changed. Ask for a new link.")
        stored = self._hash(password, about=[person.email, person.name])
        self._records.reset(invitation, stored, self._clock())
        return replace(person, password_hash=stored, is_proven=True)

    def _join(self, invitation: Invitation, *, email: str, name: str, password: str) -> Person:
        email, name = clean_email(email), clean_name(name)
        stored = self._hash(password, about=[email, name])
        person = Person(
            id=self._new_id(),
            email=email,
            name=name,
            created_at=self._clock(),
            password_hash=stored,
            is_admin=invitation.purpose is Purpose.SET_UP,
        )
        self._records.join(invitation, person, self._clock())
        return person

    def _hash(self, password: str, *, about: Sequence[str]) -> str | None:
        """What is stored of a good password; nothing on a server without passwords."""
        if not self._has_passwords:
            return None
        require_good(password, about)
        return self._passwords.hash(password)

    def _make(
        self,
        purpose: Purpose,
        by: str = "",
        *,
        person_id: str | None = None,
        email: str | None = None,
        project_id: str | None = None,
        role: Role | None = None,
    ) -> str:
        code, now = secrets.token_urlsafe(CODE_BYTES), self._clock()
        is_first = purpose is Purpose.SET_UP
        invitation = Invitation(
            digest=digest_of(code),
            purpose=purpose,
            created_at=now,
            expires_at=now + LIFETIMES[purpose],
            person_id=person_id,
            project_id=FIRST_PROJECT if is_first else project_id,
            role=Role.MANAGER if is_first else role,
            email=email,
            created_by=by,
        )
        self._records.add(invitation)
        return code
