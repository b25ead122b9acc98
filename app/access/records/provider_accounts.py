"""The records of accounts at an OpenID provider, and whose they are here."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, insert, select
from sqlalchemy.exc import IntegrityError

from app.access.records.made_by import Ended, end_made_by
from app.access.records.makers import BY_PERSON
from app.access.records.people import Person, add_person, give_to_owner, remove_second_factor
from app.core.access import FIRST_PROJECT, Role
from app.core.errors import SignInRefused
from app.db.engine import Database
from app.db.tables import members, people, provider_accounts


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

    def add(self, account: ProviderAccount) -> dict[str, Ended]:
        """Store whose it is; raises `SignInRefused` if it is somebody's already.

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
