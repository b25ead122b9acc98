"""What tests put into the database of a server with accounts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from secrets import token_hex

from app.access.services import IdentityServices
from app.core.access import FIRST_PROJECT, LOCAL, Role
from app.http.services import Services
from app.run.build import build_services
from app.settings import from_env
from tests.acting import acting
from tests.live_server import Server


@contextmanager
def services_of(server: Server) -> Iterator[Services]:
    """What its processes use, over the same database, from this one."""
    services = build_services(from_env(server.environment))
    with closing(services.database):
        yield services


@contextmanager
def identity_of(server: Server) -> Iterator[IdentityServices]:
    """People, keys and links of the server."""
    with services_of(server) as services:
        yield services.identity


def make_key(server: Server, role: Role = Role.EDITOR, project: str = FIRST_PROJECT) -> str:
    """A new key of a project."""
    with services_of(server) as services:
        ctx = acting(services.context, project)
        return services.identity.keys.make(ctx, name="test", role=role)[1]


def make_project(server: Server) -> str:
    """The id of a new project."""
    with services_of(server) as services:
        ctx = services.context.acting(LOCAL)
        return services.identity.projects.make(ctx, "Tests", manager=None).id


def revoke(server: Server, key: str) -> None:
    """End a key, as another process of the server would."""
    with services_of(server) as services:
        keys = services.identity.keys
        caller = keys.caller(key)
        assert caller is not None
        keys.revoke(acting(services.context, caller.project), caller.id)


def bearer(key: str) -> dict[str, str]:
    """The header that carries it."""
    return {"Authorization": f"Bearer {key}"}


def sign_in(server: Server, roles: Mapping[str, Role], *, name: str = "Ann Baker") -> str:
    """The session cookie of a new person who has these roles in projects."""
    with services_of(server) as services:
        identity, ctx = services.identity, services.context.acting(LOCAL)
        person = identity.accounts.add(ctx, f"{token_hex(4)}@example.org", name=name)
        for project, role in roles.items():
            identity.projects.add_member(ctx, project, person.email, role)
        return identity.sessions.begin(ctx, person, "password", agent="")
