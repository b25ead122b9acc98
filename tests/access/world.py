"""A server with accounts and two projects, and callers of every kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import insert

from app.domain.access import FIRST_PROJECT, Role, Scope
from app.domain.upload import Upload
from app.domain.webhooks import SUBSCRIBABLE
from app.factory import create_app
from app.http.access_rules import rules_of
from app.identity.share_links import ShareTerms
from app.identity.upload_links import LinkTerms
from app.records.identity.share_links import ShareLink
from app.records.identity.tables import members, projects
from app.records.identity.upload_links import UploadLink
from app.services import Services, build_services
from app.settings import Settings
from app.uploads.service import NewUpload
from tests.storage.sources import body

OTHER_PROJECT = "f" * 32
STRANGER = "192.0.2.1"
"""Reserved for documentation (RFC 5737)."""

BY_SOMEBODY = "person:" + "0" * 32


@dataclass(frozen=True, kw_only=True)
class Sender:
    """One kind of caller, as its requests show it.

    `role` is the one in the project whose things are asked for; without it, whoever this is must
    find nothing there. `is_known` says whether the server takes what it shows for valid, and
    `refusal` what it answers otherwise.
    """

    name: str
    role: Role | None = None
    is_known: bool = True
    refusal: int = 401
    is_person: bool = False
    is_admin: bool = False
    prefix: str = ""
    sender: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


class AccessWorld:
    """Makes callers, and uploads for them to ask for."""

    def __init__(self, folder: Path) -> None:
        self.settings = Settings(
            access="accounts", data_dir=folder / "data", staging_dir=folder / "staging"
        )
        self.services: Services = build_services(self.settings)
        self.services.prepare()
        self.app: Flask = create_app(self.services)
        self.actions = {name: rule.action for name, rule in rules_of(self.app).items()}
        self._add_project(OTHER_PROJECT, "Others")

    def client(self, address: str = STRANGER) -> FlaskClient:
        """A client that keeps no cookies."""
        client = self.app.test_client(use_cookies=False)
        client.environ_base["REMOTE_ADDR"] = address
        return client

    def upload(self, sender: str = BY_SOMEBODY, project: str = FIRST_PROJECT) -> Upload:
        """A new upload on its way."""
        scope = Scope(project, sender)
        new = NewUpload(scope=scope, filename="film.mp4", length=1000)
        return self.services.uploads.create(new)[0]

    def video(self, sender: str = BY_SOMEBODY, project: str = FIRST_PROJECT) -> Upload:
        """A small finished file."""
        files = self.services.whole_files
        scope = Scope(project, sender)
        return files.keep(files.receive(body(0, 100), scope=scope, filename="film.mp4"))

    def key(
        self,
        role: Role,
        *,
        project: str = FIRST_PROJECT,
        lifetime: timedelta | None = None,
        is_revoked: bool = False,
    ) -> tuple[str, dict[str, str]]:
        """The sender of requests with a new key, and their headers."""
        keys = self.services.identity.keys
        expires_at = None if lifetime is None else datetime.now(UTC) + lifetime
        key, secret = keys.make(
            project, name=role, role=role, created_by="somebody", expires_at=expires_at
        )
        if is_revoked:
            keys.revoke(project, key.id)
        return f"key:{key.id}", {"Authorization": f"Bearer {secret}"}

    def webhook(self) -> str:
        """The id of the first project's webhook."""
        webhooks = self.services.identity.webhooks
        found = webhooks.of_project(FIRST_PROJECT) or [
            webhooks.make(
                FIRST_PROJECT,
                url="https://hooks.example/",
                events=SUBSCRIBABLE,
                created_by="somebody",
            )
        ]
        return found[0].id

    def share_link(self) -> ShareLink:
        """A link to a new video of the first project."""
        links = self.services.identity.share_links
        terms = ShareTerms(can_download=True)
        return links.make([self.video()], terms, created_by="somebody")

    def ticket(self, *, is_revoked: bool = False) -> str:
        """What the URLs of the media of a new link begin with."""
        links, link = self.services.identity.share_links, self.share_link()
        if is_revoked:
            links.revoke(link.project_id, link.id)
        return f"/t/{links.ticket(link, 0)}"

    def person(
        self,
        role: Role,
        *,
        project: str = FIRST_PROJECT,
        is_admin: bool = False,
        is_blocked: bool = False,
    ) -> tuple[str, dict[str, str]]:
        """The sender of requests of a new person who is signed in, and their headers."""
        identity = self.services.identity
        name = f"{role}-{len(identity.people.all())}"
        person = identity.accounts.add(f"{name}@example.org", is_admin=is_admin)
        self.join(person.id, role, project)
        if is_blocked:
            identity.accounts.block(person)
        cookie = identity.sessions.begin(person, "password", address="", agent="")
        return f"person:{person.id}", {"Cookie": f"sluice={cookie}"}

    def join(self, person_id: str, role: Role, project: str) -> None:
        """Make a person a member."""
        values = {"project_id": project, "person_id": person_id, "role": role}
        with self.services.database.write() as connection:
            connection.execute(insert(members).values(**values, added_at=datetime.now(UTC)))

    def upload_link(self, project: str = FIRST_PROJECT, *, is_closed: bool = False) -> UploadLink:
        """A new link for uploads."""
        links = self.services.identity.upload_links
        link = links.make(project, LinkTerms(), created_by=BY_SOMEBODY)
        return links.close(link) if is_closed else link

    def _add_project(self, project_id: str, name: str) -> None:
        values = {"id": project_id, "name": name, "created_at": datetime.now(UTC), "used_bytes": 0}
        with self.services.database.write() as connection:
            connection.execute(insert(projects).values(values))
