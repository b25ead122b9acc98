"""A server's people in a new database, with a clock that tests turn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

from argon2 import PasswordHasher
from sqlalchemy import insert

from app.access.passwords import Passwords
from app.access.people import Accounts, Person, add_person, find_person, replace_hash
from app.access.services import IdentityServices
from app.access.upload_links import UploadLinks
from app.core.access import FIRST_PROJECT, LOCAL, Role
from app.db.context import Context, RequestContext
from app.db.engine import Database
from app.db.tables import members, passkeys
from app.run.build import assemble
from app.settings import Settings
from tests.records.making import new_sqlite

CHEAP = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
"""The least work there is."""

GOOD_PASSWORD = "three grey geese marching"

START = datetime(2026, 11, 22, 12, tzinfo=UTC)


@dataclass
class Clock:
    """Stands still until it is turned."""

    now: datetime = START

    def __call__(self) -> datetime:
        return self.now

    def turn(self, **by: float) -> None:
        """Go on by `days`, `minutes`, `seconds`."""
        self.now += timedelta(**by)


@dataclass
class World:
    """The database, and what makes things in it; its folder is for the settings alone."""

    database: Database
    folder: Path
    clock: Clock = field(default_factory=Clock)
    _numbers: Iterator[int] = field(default_factory=count)

    def new_id(self) -> str:
        """Ids in order."""
        return f"{next(self._numbers):032x}"

    @cached_property
    def context(self) -> Context:
        """What use cases are given."""
        settings = Settings(access="accounts", data_dir=self.folder)
        return Context(
            database=self.database, clock=self.clock, new_id=self.new_id, settings=settings
        )

    @cached_property
    def identity(self) -> IdentityServices:
        """The services of one process."""
        return self.new_process()

    def new_process(self, passwords: Passwords | None = None, **settings: Any) -> IdentityServices:
        """The services of another process, which remembers nothing, with these settings."""
        changed = replace(self.context.settings, **settings)
        context = replace(self.context, settings=changed)
        passwords = passwords or Passwords(CHEAP)
        return assemble(context, clock=self.clock, passwords=passwords).identity

    @property
    def operator(self) -> RequestContext:
        """The context of what the operator does."""
        return self.context.acting(LOCAL)

    def acting_as(self, person: Person, session: str = "") -> RequestContext:
        """The context of a request of that person, in the session with that id."""
        return self.context.acting(replace(person.caller, session=session))

    @property
    def accounts(self) -> Accounts:
        """What happens to accounts."""
        return self.identity.accounts

    @property
    def upload_links(self) -> UploadLinks:
        """What members do with upload links."""
        return self.identity.upload_links

    def person(self, email: str = "ann@example.org", **values: Any) -> Person:
        """A new person, stored."""
        given: dict[str, Any] = {
            "name": email.partition("@")[0],
            "created_at": self.clock(),
            **values,
        }
        person = Person(id=self.new_id(), email=email, **given)
        with self.database.write() as connection:
            add_person(connection, person)
        return person

    def find(self, person: Person) -> Person | None:
        """The person as stored now."""
        return find_person(self.context, person.id)

    def store_hash(self, person: Person, password_hash: str) -> None:
        """Give a person another password, of which this is the hash."""
        with self.database.write() as connection:
            assert replace_hash(connection, person, password_hash)

    def project(self, name: str) -> str:
        """The id of a new project."""
        return self.identity.projects.make(self.operator, name, manager=None).id

    def join(self, person: Person, role: Role, project_id: str = FIRST_PROJECT) -> None:
        """Make a person a member; those who join later are listed later."""
        self.clock.turn(seconds=1)
        add_member(self.database, project_id, person, role, self.clock())


def add_passkey(database: Database, person: Person, passkey_id: str, now: datetime) -> None:
    """Give a person a passkey that no device has."""
    key = {"id": passkey_id, "credential_id": passkey_id.encode(), "public_key": b"key"}
    of_person = {"person_id": person.id, "name": "Phone", "sign_count": 0, "created_at": now}
    with database.write() as connection:
        connection.execute(insert(passkeys).values(**key, **of_person))


def add_member(database: Database, project: str, person: Person, role: Role, now: datetime) -> None:
    """Make a person a member, whether or not their account is proven."""
    values = {"project_id": project, "person_id": person.id, "role": role, "added_at": now}
    with database.write() as connection:
        connection.execute(insert(members).values(values))


@contextmanager
def new_world(folder: Path, database_url: str | None = None) -> Iterator[World]:
    """A world over that database, or a new one in `folder`."""
    database = (
        Database(database_url, synced=True) if database_url else new_sqlite(folder / "sluice.db")
    )
    with closing(database):
        yield World(database, folder)
