"""Who answers for what is made in projects: a person, also for what is made with their keys."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, select

from app.core.access import Role
from app.core.errors import NotAllowed
from app.db.tables import api_keys, members, people, projects

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
    if is_kept and not _keep(connection, maker, project_id):
        return None
    person = _person_behind(connection, maker)
    if person is None or not person.startswith(BY_PERSON):
        return None if person is None else Role.MANAGER
    return _role_of(connection, person.removeprefix(BY_PERSON), project_id)


def require_role(connection: Connection, maker: str, project_id: str) -> None:
    """Raise `NotAllowed` unless whoever answers for `maker` has a role in the project.

    It stays so until the transaction ends. A request is let in before it writes: in between, all
    that its sender has made may have ended.
    """
    if role_now(connection, maker, project_id, is_kept=True) is None:
        raise NotAllowed("You are no member of this project any more.")


def _person_behind(connection: Connection, maker: str) -> str | None:
    """The person behind a maker, which may be a key; None if the key was revoked."""
    if not maker.startswith(BY_KEY):
        return maker
    is_valid = (api_keys.c.id == maker.removeprefix(BY_KEY)) & api_keys.c.revoked_at.is_(None)
    return connection.execute(select(api_keys.c.created_by).where(is_valid)).scalar()


def _role_of(connection: Connection, person_id: str, project_id: str | None) -> Role | None:
    query = select(people.c.is_admin, people.c.is_blocked).where(people.c.id == person_id)
    person = connection.execute(query).first()
    if person is None or person.is_blocked:
        return None
    if person.is_admin:
        return Role.MANAGER
    role = connection.execute(
        select(members.c.role).where(_is_membership(person_id, project_id))
    ).scalar()
    return None if role is None else Role(role)


def _is_membership(person_id: str, project_id: str | None) -> ColumnElement[bool]:
    return (members.c.person_id == person_id) & (members.c.project_id == project_id)


def _keep(connection: Connection, maker: str, project_id: str | None) -> bool:
    """Lock the rows that a maker's role depends on; whether the project still exists.

    In the lock order of `app.db.sql`. Later statements see the latest changes.
    """
    person_id = (_person_behind(connection, maker) or "").removeprefix(BY_PERSON)
    project = select(projects.c.id).where(projects.c.id == project_id)
    found = connection.execute(project.with_for_update(read=True, key_share=True)).first()
    for column, is_meant in (
        (people.c.id, people.c.id == person_id),
        (members.c.person_id, _is_membership(person_id, project_id)),
        (api_keys.c.id, api_keys.c.id == maker.removeprefix(BY_KEY)),
    ):
        connection.execute(select(column).where(is_meant).with_for_update(read=True))
    return project_id is None or found is not None
