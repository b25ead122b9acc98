"""An application with accounts in this process, and people and keys that send it requests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from flask import Flask
from flask.testing import FlaskClient

from app.domain.access import FIRST_PROJECT, Role
from app.factory import create_app
from app.records.identity.people import Person
from app.records.identity.projects import ProjectRecords
from app.services import Services, build_services
from app.settings import Settings
from tests.identity.accounts import bearer


@dataclass
class Office:
    """The application, its services, and the people hired last by their first names.

    Tests can share one: each makes people and projects of its own.
    """

    app: Flask
    services: Services
    people: dict[str, Person] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=count)

    def project(self, name: str = "News") -> str:
        """The id of a new project."""
        return self.services.identity.projects.make(name, manager=None).id

    def hire(
        self,
        name: str,
        role: Role | None = None,
        *,
        project: str = FIRST_PROJECT,
        is_admin: bool = False,
    ) -> FlaskClient:
        """A new person's browser, signed in; with a role, a member of the project."""
        identity = self.services.identity
        now, number = datetime.now(UTC), next(self._numbers)
        person = Person(
            id=f"{number:032x}",
            name=name,
            email=f"{name.lower()}{number}@example.org",
            created_at=now,
            is_admin=is_admin,
        )
        identity.people.add(person)
        self.people[name] = person
        if role is not None:
            ProjectRecords(self.services.database).add_member(project, person.id, role, now)
        client = self.app.test_client()
        cookie = identity.sessions.begin(person, "password", address="", agent="")
        client.set_cookie("sluice", cookie)
        return client

    def key(self, role: Role, project: str = FIRST_PROJECT) -> dict[str, Any]:
        """Arguments of a request that carries a new key."""
        keys = self.services.identity.keys
        return {"headers": bearer(keys.make(project, name="test", role=role, created_by="")[1])}


@contextmanager
def new_office(folder: Path) -> Iterator[Office]:
    """An office over its own folders."""
    settings = Settings(
        staging_dir=folder / "staging",
        data_dir=folder / "data",
        durability="none",
        access="accounts",
    )
    services = build_services(settings)
    with closing(services.database):
        services.prepare()
        yield Office(create_app(services), services)
