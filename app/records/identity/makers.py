"""Who answers for what is made in projects: a person, also for what is made with their keys."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Select, select

from app.domain.access import Role
from app.domain.errors import NotAllowed
from app.records.identity.tables import api_keys, members, people

BY_PERSON, BY_KEY = "person:", "key:"
"""How makers begin; see `Caller.sender`. All others stand for the operator of the server."""


def role_now(
    connection: Connection, maker: str, project_id: str | None, *, is_kept: bool = False
) -> Role | None:
    """What whoever answers for `maker` may do in a project now; None if they have no role there.

    Administrators and the operator manage every project, and they alone the server, which is no
    project. A key that was revoked may do nothing. With `is_kept`, the answer holds until the
    transaction ends.
    """
    if maker.startswith(BY_KEY):
        is_valid = (api_keys.c.id == maker.removeprefix(BY_KEY)) & api_keys.c.revoked_at.is_(None)
        key = connection.execute(_read(select(api_keys.c.created_by).where(is_valid), is_kept))
        if (found := key.scalar()) is None:
            return None
        maker = found
    if not maker.startswith(BY_PERSON):
        return Role.MANAGER
    return _role_of(connection, maker.removeprefix(BY_PERSON), project_id, is_kept=is_kept)


def require_role(connection: Connection, maker: str, project_id: str) -> None:
    """Raise `NotAllowed` unless whoever answers for `maker` has a role in the project.

    It stays so until the transaction ends. A request is let in before it writes: in between, all
    that its sender has made may have ended.
    """
    if role_now(connection, maker, project_id, is_kept=True) is None:
        raise NotAllowed("You are no member of this project any more.")


def _role_of(
    connection: Connection, person_id: str, project_id: str | None, *, is_kept: bool
) -> Role | None:
    query = select(people.c.is_admin, people.c.is_blocked).where(people.c.id == person_id)
    person = connection.execute(_read(query, is_kept)).first()
    if person is None or person.is_blocked:
        return None
    if person.is_admin:
        return Role.MANAGER
    is_membership = (members.c.person_id == person_id) & (members.c.project_id == project_id)
    found = connection.execute(_read(select(members.c.role).where(is_membership), is_kept))
    role = found.scalar()
    return None if role is None else Role(role)


def _read(query: Select[Any], is_kept: bool) -> Select[Any]:
    """With a shared lock on the rows, if they must not change; SQLite locks all when it writes."""
    return query.with_for_update(read=True) if is_kept else query
