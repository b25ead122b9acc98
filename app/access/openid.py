"""What is agreed with an OpenID provider, and what it says about people."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection, insert, select
from sqlalchemy.exc import IntegrityError

from app.access.accounts import clean_email
from app.access.creators import BY_PERSON, RevocationCounts, end_made_by
from app.access.invitations import Invitation, InvitationRecords
from app.access.people import PeopleRecords, Person, add_person, give_to_owner, remove_second_factor
from app.core.access import FIRST_PROJECT, MEMBERS, Role
from app.core.errors import InvalidField, SignInRefused
from app.core.names import MAX_NAME_CHARACTERS
from app.db.engine import Database
from app.db.tables import members, people, provider_accounts


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIdClient:
    """What the operator has agreed with the provider; `name` is what people call it."""

    issuer: str
    client_id: str
    client_secret: str
    name: str = "single sign-on"
    asks_groups: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderIdentity:
    """A person as the provider knows them. `subject` stays; all else may change."""

    issuer: str
    subject: str
    email: str = ""
    is_email_verified: bool = False
    name: str = ""
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """Who may join without an invitation, and with which role."""

    roles: Mapping[str, Role] = field(default_factory=dict)
    """By group of the provider, or by domain of an e-mail address, as in `@example.org`."""

    def role_of(self, identity: ProviderIdentity) -> Role | None:
        """The highest role of a person, whose address is verified; None for an unknown one."""
        names = {f"@{identity.email.rpartition('@')[2]}", *identity.groups}
        found = [role for name, role in self.roles.items() if name in names]
        return max(found, key=MEMBERS.index, default=None)


# ---- openid accounts -----------------------------------------------------------------------------

# Which account belongs to a person who signed in at the provider, and who may join.


# ---- rows ----------------------------------------------------------------------------------------

# The records of accounts at an OpenID provider, and whose they are here.


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderAccount:
    """The account `subject` of the provider `issuer` belongs to a person."""

    issuer: str
    subject: str
    person_id: str
    created_at: datetime


class ProviderAccountRecords:
    """Every call is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def owner(self, issuer: str, subject: str) -> str | None:
        """The id of the person whose account it is."""
        found = provider_accounts.c
        condition = (found.issuer == issuer) & (found.subject == subject)
        with self._database.read() as connection:
            return connection.execute(select(found.person_id).where(condition)).scalar()

    def has_account(self, person_id: str, issuer: str) -> bool:
        """Whether the person has an account of this provider."""
        found = provider_accounts.c
        condition = (found.issuer == issuer) & (found.person_id == person_id)
        with self._database.read() as connection:
            return connection.execute(select(found.subject).where(condition)).first() is not None

    def has_any(self, person_id: str) -> bool:
        """Whether the person has an account of any provider."""
        query = select(provider_accounts.c.subject).where(
            provider_accounts.c.person_id == person_id
        )
        with self._database.read() as connection:
            return connection.execute(query.limit(1)).first() is not None

    def add(self, account: ProviderAccount) -> dict[str, RevocationCounts]:
        """Store whose it is; raises `SignInRefused` if it belongs to an account already.

        Where the address was not proven to be the person's, somebody else may have made the
        account: its password, passkeys, one-time codes and sessions end, and the keys and links
        that were made with it. Returns how many by project.
        """
        is_stranger = (people.c.id == account.person_id) & ~people.c.is_proven
        with self._database.write() as connection:
            _add(connection, account)
            if connection.execute(select(people.c.id).where(is_stranger)).first() is None:
                return {}
            give_to_owner(connection, account.person_id)
            remove_second_factor(connection, account.person_id)
            return end_made_by(connection, f"{BY_PERSON}{account.person_id}", account.created_at)

    def add_person(self, account: ProviderAccount, person: Person, role: Role) -> None:
        """Store a new person with their account, as a member of the first project.

        Raises as `add`, and `InvalidField` if the e-mail address is taken.
        """
        values = {"project_id": FIRST_PROJECT, "person_id": person.id, "role": role}
        with self._database.write() as connection:
            add_person(connection, person)
            connection.execute(insert(members).values(**values, added_at=person.created_at))
            _add(connection, account)


def _add(connection: Connection, account: ProviderAccount) -> None:
    values = {column.name: getattr(account, column.name) for column in provider_accounts.columns}
    try:
        connection.execute(insert(provider_accounts).values(values))
    except IntegrityError:  # Another request has just stored it.
        raise SignInRefused("Sign in once more.") from None


# ---- use cases -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProviderSignIn:
    """A person who comes from the provider: whether for the first time, and with a new account.

    `joined` is what they are now in the projects that they have joined with that. `ended` is what
    has ended, by project, of a stranger who had an account with their address.
    """

    person: Person
    is_first: bool = False
    is_new: bool = False
    joined: Mapping[str, Role] = field(default_factory=dict)
    ended: Mapping[str, RevocationCounts] = field(default_factory=dict)


class OpenIdAccounts:
    """Finds the person, or makes one."""

    def __init__(
        self,
        records: ProviderAccountRecords,
        people: PeopleRecords,
        invitations: InvitationRecords,
        *,
        joining: Joining,
        clock: Callable[[], datetime],
        new_id: Callable[[], str],
    ) -> None:
        self._records = records
        self._people = people
        self._invitations = invitations
        self._joining = joining
        self._clock = clock
        self._new_id = new_id

    def arrive(self, identity: ProviderIdentity) -> ProviderSignIn:
        """Who it is here; raises `SignInRefused` for who may not join, and for blocked people.

        The provider's account decides. Its e-mail address counts the first time alone, and only if
        the provider has verified it: otherwise anyone could enter another person's address.
        """
        owner = self._records.owner(identity.issuer, identity.subject)
        if owner is None:
            return self._first_time(identity)
        return ProviderSignIn(_admitted(self._people.find(owner)))

    def has_any(self, person_id: str) -> bool:
        """Whether the person has signed in at a provider before."""
        return self._records.has_any(person_id)

    def _first_time(self, identity: ProviderIdentity) -> ProviderSignIn:
        if not identity.is_email_verified:
            raise SignInRefused("The sign-in service has not verified your e-mail address.")
        person = self._people.find_by_email(identity.email)
        if person is None:
            return self._joined(identity)
        if self._records.has_account(person.id, identity.issuer):
            raise SignInRefused(f"{identity.email} belongs to another account.")
        ended = self._records.add(self._account(identity, _admitted(person)))
        return ProviderSignIn(person, is_first=True, ended=ended)

    def _joined(self, identity: ProviderIdentity) -> ProviderSignIn:
        person = self._new_person(identity)
        account = self._account(identity, person)
        invitation = self._invitation(person.email)
        if invitation is not None:
            # If the server stops in between, the e-mail address ties both the next time.
            joined = self._invitations.join(invitation, person, person.created_at, by_link=False)
            self._records.add(account)
        elif (role := self._joining.role_of(identity)) is not None:
            self._records.add_person(account, person, role)
            joined = {FIRST_PROJECT: role}
        else:
            raise SignInRefused(f"{person.email} is not invited. Ask an administrator.")
        return ProviderSignIn(person, is_first=True, is_new=True, joined=joined)

    def _invitation(self, email: str) -> Invitation | None:
        waiting = self._invitations.waiting(self._clock())
        return next((each for each in waiting if each.email == email), None)

    def _new_person(self, identity: ProviderIdentity) -> Person:
        try:
            email = clean_email(identity.email)
        except InvalidField:
            raise SignInRefused("The sign-in service knows no e-mail address of yours.") from None
        name = " ".join(identity.name.split())[:MAX_NAME_CHARACTERS]
        return Person(
            id=self._new_id(),
            email=email,
            name=name if name.isprintable() and name else email.partition("@")[0],
            created_at=self._clock(),
        )

    def _account(self, identity: ProviderIdentity, person: Person) -> ProviderAccount:
        return ProviderAccount(
            issuer=identity.issuer,
            subject=identity.subject,
            person_id=person.id,
            created_at=self._clock(),
        )


def _admitted(person: Person | None) -> Person:
    if person is None or person.is_blocked:
        raise SignInRefused("This account is blocked. An administrator can let you in again.")
    return person
