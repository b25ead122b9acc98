"""Accounts: made by the operator, changed by whose they are, blocked by administrators."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from datetime import datetime

from app.access.creators import Creation, RevocationCounts
from app.access.passwords import Passwords, require_good
from app.access.people import PeopleRecords, Person
from app.access.sessions import Sessions
from app.core.errors import InvalidField
from app.core.names import clean_name

MAX_EMAIL_CHARACTERS = 254
"""RFC 5321, section 4.5.3.1.3, as erratum 1690 has it."""

_EMAIL = re.compile(r"[^@\s\"<>(),:;\\\[\]]{1,64}@[^@\s\"<>(),:;\\\[\]]{1,189}")


class Accounts:
    """What happens to an account after it was made through an invitation, or instead of one."""

    def __init__(
        self,
        people: PeopleRecords,
        sessions: Sessions,
        passwords: Passwords,
        *,
        clock: Callable[[], datetime],
        new_id: Callable[[], str],
    ) -> None:
        self._people = people
        self._sessions = sessions
        self._passwords = passwords
        self._clock = clock
        self._new_id = new_id

    def add(
        self, email: str, *, name: str = "", password: str | None = None, is_admin: bool = False
    ) -> Person:
        """A new person; without a name, what is before the @. Raises `InvalidField`."""
        email = clean_email(email)
        name = clean_name(name or email.partition("@")[0])
        if password is not None:
            require_good(password, [email, name])
        person = Person(
            id=self._new_id(),
            email=email,
            name=name,
            created_at=self._clock(),
            password_hash=None if password is None else self._passwords.hash(password),
            is_admin=is_admin,
        )
        self._people.add(person)
        return person

    def rename(self, person: Person, name: str) -> Person:
        """The person with another name; raises `InvalidField`."""
        return self._change(person, name=clean_name(name), email=person.email)

    def change_email(self, person: Person, email: str) -> Person:
        """The person with another address; raises `InvalidField`.

        For administrators alone: whoever has an address is let into projects by it, and gets the
        account of whoever the OpenID provider says has it.
        """
        return self._change(person, name=person.name, email=clean_email(email))

    def change_password(self, person: Person, password: str, *, session_id: str) -> None:
        """Store another password and end all sessions but this one; raises `InvalidField`."""
        require_good(password, [person.email, person.name])
        if not self._people.set_password(person, self._passwords.hash(password)):
            raise InvalidField("Your password was changed in the meantime.", field="password")
        self._sessions.end_others(person.id, but=session_id)

    def block(self, person: Person) -> dict[str, RevocationCounts]:
        """Let a person in no more, nor the keys and links they have made: how many by project.

        Raises `LastAdministrator`.
        """
        ended = self._people.block(person.id, self._clock())
        self._sessions.forget()
        return ended

    def delete(self, person: Person) -> dict[str, RevocationCounts]:
        """Delete an account; the keys and links it has made end: how many by project.

        Videos stay with their projects. Raises `LastAdministrator`.
        """
        ended = self._people.remove(person.id, self._clock())
        self._sessions.forget()
        return ended

    def made_by(self, person: Person) -> list[Creation]:
        """The keys and links of a person that still work, the newest first."""
        return self._people.made_by(person.id, self._clock())

    def end_made(self, person: Person) -> dict[str, RevocationCounts]:
        """End all keys, links and invitations of a person: how many by project."""
        return self._people.end_made(person.id, self._clock())

    def unblock(self, person: Person) -> None:
        """Let a person sign in again; their keys and links stay revoked."""
        self._people.unblock(person.id)

    def make_admin(self, person: Person) -> None:
        """Let a person administer the server."""
        self._people.make_admin(person.id)
        self._sessions.forget()

    def end_admin(self, person: Person) -> dict[str, RevocationCounts]:
        """Let a person administer the server no more, nor what they have made as administrator.

        That are keys and links in projects they are not in: how many by project. Raises
        `LastAdministrator`.
        """
        ended = self._people.end_admin(person.id, self._clock())
        self._sessions.forget()
        return ended

    def _change(self, person: Person, *, name: str, email: str) -> Person:
        changed = self._people.rename(person, name=name, email=email)
        self._sessions.forget()
        return changed


def mixed_alphabets(email: str) -> str:
    """A warning about an address with letters of several alphabets; empty for any other.

    Some letters look the same in Latin, Greek and Cyrillic.
    """
    letters: dict[str, str] = {}
    for letter in filter(str.isalpha, email):
        letters.setdefault(unicodedata.name(letter, "?").partition(" ")[0].capitalize(), letter)
    if len(letters) < 2:
        return ""
    found = ", ".join(f"“{letter}” is {name}" for name, letter in letters.items())
    return f"The address {email} mixes alphabets: {found}. Make sure that it is the right one."


def clean_email(text: str) -> str:
    """The address in lower case; raises `InvalidField` for what cannot be one."""
    email = text.strip().lower()
    is_short = len(email) <= MAX_EMAIL_CHARACTERS
    if not (is_short and email.isprintable() and _EMAIL.fullmatch(email)):
        raise InvalidField("Enter an e-mail address, such as ann@example.org.", field="email")
    return email
