"""What tests put into the database of a server with accounts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from secrets import token_hex

from app.access.services import IdentityServices
from app.core.access import FIRST_PROJECT, Role
from app.run.build import build_services
from app.settings import from_env
from tests.live_server import Server


@contextmanager
def identity_of(server: Server) -> Iterator[IdentityServices]:
    """What its processes use, over the same database, from this one."""
    services = build_services(from_env(server.environment))
    with closing(services.database):
        yield services.identity


def make_key(server: Server, role: Role = Role.EDITOR, project: str = FIRST_PROJECT) -> str:
    """A new key of a project."""
    with identity_of(server) as identity:
        return identity.keys.make(project, name="test", role=role, created_by="")[1]


def make_project(server: Server) -> str:
    """The id of a new project."""
    with identity_of(server) as identity:
        return identity.projects.make("Tests", manager=None).id


def revoke(server: Server, key: str) -> None:
    """End a key, as another process of the server would."""
    with identity_of(server) as identity:
        caller = identity.keys.caller(key)
        assert caller is not None
        identity.keys.revoke(caller.project, caller.id)


def bearer(key: str) -> dict[str, str]:
    """The header that carries it."""
    return {"Authorization": f"Bearer {key}"}


def sign_in(server: Server, roles: Mapping[str, Role], *, name: str = "Ann Baker") -> str:
    """The session cookie of a new person who has these roles in projects."""
    with identity_of(server) as identity:
        person = identity.accounts.add(f"{token_hex(4)}@example.org", name=name)
        for project, role in roles.items():
            identity.projects.add_member(project, person.email, role)
        return identity.sessions.begin(person, "password", address="", agent="")
