"""A server with accounts in this process, and what tests put into it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from app.access import webhooks
from app.access.callers import Callers
from app.access.keys import ApiKeys
from app.access.passwords import Passwords
from app.access.people import Person, add_person, find_person
from app.access.services import IdentityServices
from app.access.sessions import Sessions
from app.access.share_links import ShareLink, ShareTerms
from app.access.upload_links import LinkTerms, UploadLink
from app.access.webhooks import SUBSCRIBABLE
from app.core.access import FIRST_PROJECT, LOCAL, Role, Scope
from app.core.upload import Upload
from app.db.context import RequestContext
from app.http.services import Services
from app.run.build import build_services
from app.run.factory import create_app
from app.settings import Settings
from app.uploads.service import NewUpload
from tests.access.accounts import bearer
from tests.access.world import CHEAP, GOOD_PASSWORD, add_member, add_passkey
from tests.acting import acting
from tests.storage.sources import body

PASSWORD_HASH = CHEAP.hash(GOOD_PASSWORD)

OTHER_PASSWORD = "seven tall ships at dawn"

HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}

BY_SOMEBODY = "person:" + "0" * 32


@dataclass
class Site:
    """The application, its services, and the latest person of each name.

    Tests can share one: each makes people and projects of its own.
    """

    app: Flask
    services: Services
    people: dict[str, Person] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def operator(self) -> RequestContext:
        """The context of what the operator does."""
        return self.services.context.acting(LOCAL)

    @property
    def identity(self) -> IdentityServices:
        """People, sessions and the rest."""
        return self.services.identity

    def project(self, name: str = "News") -> str:
        """The id of a new project."""
        return self.identity.projects.make(self.operator, name, manager=None).id

    def person(
        self,
        name: str = "Ann",
        role: Role | None = None,
        *,
        project: str = FIRST_PROJECT,
        is_admin: bool = False,
    ) -> Person:
        """A new person with `GOOD_PASSWORD`; with a role, a member of the project.

        Without an address instead of a name, the person gets one that nobody has.
        """
        number = next(self._numbers)
        person = Person(
            id=f"{number:032x}",
            name=name.partition("@")[0],
            email=name if "@" in name else f"{name.lower()}{number}@example.org",
            created_at=datetime.now(UTC),
            password_hash=PASSWORD_HASH,
            is_admin=is_admin,
        )
        with self.services.database.write() as connection:
            add_person(connection, person)
        self.people[name] = person
        if role is not None:
            self.join(person, role, project)
        return person

    def find(self, person: Person) -> Person | None:
        """The person as stored now."""
        return find_person(self.services.context, person.id)

    def join(self, person: Person, role: Role, project: str) -> None:
        """Make a person a member."""
        add_member(self.services.database, project, person, role, datetime.now(UTC))

    def session(self, person: Person) -> str:
        """The cookie's value of a new session."""
        ctx = replace(self.operator, address="192.0.2.7")
        agent = "Firefox/140.0 (X11; Linux x86_64)"
        return self.identity.sessions.begin(ctx, person, "password", agent=agent)

    def client(self, person: Person | None = None) -> FlaskClient:
        """What sends requests; with a person, signed in."""
        client = self.app.test_client()
        if person is not None:
            client.set_cookie("sluice", self.session(person))
        return client

    def browser(self, person: Person | None = None) -> Browser:
        """A browser; with a person, one in which they are signed in."""
        return Browser(self.client(person))

    def key(
        self, role: Role, *, project: str = FIRST_PROJECT, lifetime: timedelta | None = None
    ) -> tuple[str, dict[str, str]]:
        """The id of a new key, and the headers of requests with it."""
        expires_at = None if lifetime is None else datetime.now(UTC) + lifetime
        key, secret = self.identity.keys.make(
            acting(self.services.context, project), name=role, role=role, expires_at=expires_at
        )
        return key.id, bearer(secret)

    def upload(self, sender: str = BY_SOMEBODY, project: str = FIRST_PROJECT) -> Upload:
        """A new upload on its way."""
        new = NewUpload(scope=Scope(project, sender), filename="film.mp4", length=1000)
        return self.services.uploads.create(new)[0]

    def video(self, sender: str = BY_SOMEBODY, project: str = FIRST_PROJECT) -> Upload:
        """A small finished file."""
        files, scope = self.services.whole_files, Scope(project, sender)
        return files.keep(files.receive(body(0, 100), scope=scope, filename="film.mp4"))

    def another_worker(self) -> Site:
        """Another process of the same server, which remembers people and keys for an hour."""
        keys = ApiKeys(self.services.context, recent_seconds=3600)
        sessions = Sessions(self.services.context, recent_seconds=3600)
        links = (self.identity.share_links, self.identity.link_visitors)
        callers = Callers(keys, sessions, *links, is_open=False)
        identity = replace(self.identity, callers=callers, keys=keys, sessions=sessions)
        services = replace(self.services, identity=identity)
        return replace(self, app=create_app(services), services=services)

    def passkey(self, person: Person) -> str:
        """The id of a passkey of that person, which no device has."""
        passkey_id = f"{next(self._numbers):032x}"
        add_passkey(self.services.database, person, passkey_id, datetime.now(UTC))
        return passkey_id

    def webhook(self) -> str:
        """The id of the first project's webhook."""
        ctx, url = acting(self.services.context, FIRST_PROJECT), "https://hooks.example/"
        found = webhooks.of_project(ctx) or [webhooks.make(ctx, url=url, events=SUBSCRIBABLE)]
        return found[0].id

    def share_link(self) -> ShareLink:
        """A link to a new video of the first project."""
        terms = ShareTerms(can_download=True)
        return self.identity.share_links.make(self.operator, [self.video()], terms)

    def upload_link(self, project: str = FIRST_PROJECT) -> UploadLink:
        """A new link for uploads."""
        return self.identity.upload_links.make(acting(self.services.context, project), LinkTerms())


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
        self, email: str, password: str = GOOD_PASSWORD, target: str = "", **given: str
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
def new_site(folder: Path, **settings: Any) -> Iterator[Site]:
    """A server over its own folders, with accounts unless `settings` say otherwise."""
    given: dict[str, Any] = {"access": "accounts", "durability": "none", **settings}
    folders = {"staging_dir": folder / "staging", "data_dir": folder / "data"}
    services = build_services(Settings(**{**folders, **given}), passwords=Passwords(CHEAP))
    with closing(services.database):
        services.prepare()
        yield Site(create_app(services), services)
