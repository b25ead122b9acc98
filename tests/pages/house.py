"""A server with accounts in this process, and people who use it with a browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import insert
from werkzeug.test import TestResponse

from app.domain.access import FIRST_PROJECT, Role
from app.factory import create_app
from app.identity.services import IdentityServices
from app.records.identity.people import Person
from app.records.identity.tables import members
from app.services import Services, build_services
from app.settings import Settings

PASSWORD = "three grey geese marching"
OTHER_PASSWORD = "seven tall ships at dawn"

HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@dataclass
class House:
    """The application, and who lives in it."""

    app: Flask
    services: Services

    @property
    def identity(self) -> IdentityServices:
        """People, sessions and the rest."""
        return self.services.identity

    def person(
        self, email: str, role: Role | None = Role.EDITOR, *, is_admin: bool = False
    ) -> Person:
        """A new person with `PASSWORD`."""
        person = self.identity.accounts.add(email, password=PASSWORD, is_admin=is_admin)
        if role is not None:
            values = {"project_id": FIRST_PROJECT, "person_id": person.id, "role": role}
            with self.services.database.write() as connection:
                connection.execute(insert(members).values(**values, added_at=person.created_at))
        return person

    def browser(self) -> Browser:
        """A browser that nobody has signed in with."""
        return Browser(self.app.test_client())

    def browser_of(self, person: Person) -> Browser:
        """A browser in which that person is signed in, without the cost of a password."""
        browser = self.browser()
        cookie = self.identity.sessions.begin(
            person, "password", address="192.0.2.7", agent="Firefox/140.0 (X11; Linux x86_64)"
        )
        browser.client.set_cookie("sluice", cookie)
        return browser


@dataclass
class Browser:
    """Asks for pages, follows no redirects."""

    client: FlaskClient

    def get(self, url: str, **given: Any) -> TestResponse:
        """Open a page."""
        return self.client.get(url, **{"headers": HTML, **given})

    def post(
        self, url: str, fields: dict[str, str] | None = None, *, address: str = "", **headers: str
    ) -> TestResponse:
        """Send a form, as from our own page unless `headers` say otherwise."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        environ = {"REMOTE_ADDR": address} if address else {}
        return self.client.post(
            url, data=fields or {}, headers={**HTML, **sent}, environ_overrides=environ
        )

    def sign_in(
        self, email: str, password: str = PASSWORD, target: str = "", **given: str
    ) -> TestResponse:
        """Send the form of the sign-in page."""
        fields = {"email": email, "password": password, "next": target}
        return self.post("/sign-in", fields, **given)

    def who(self) -> dict[str, Any]:
        """What the server says about whoever uses the browser."""
        document: dict[str, Any] = self.client.get("/api/session").get_json()
        return document

    @property
    def cookie(self) -> str:
        """The value of the session's cookie, or nothing."""
        cookie = self.client.get_cookie("sluice")
        return cookie.value if cookie else ""


@contextmanager
def new_house(folder: Path, **settings: Any) -> Iterator[House]:
    """A server with accounts."""
    chosen = Settings(
        **{
            "access": "accounts",
            "staging_dir": folder / "staging",
            "data_dir": folder / "data",
            "durability": "none",
            **settings,
        }
    )
    services = build_services(chosen)
    with closing(services.database):
        services.prepare()
        yield House(create_app(services), services)
