"""The records of projects and their members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    delete,
    func,
    insert,
    select,
    true,
    update,
)
from sqlalchemy.exc import IntegrityError

from app.access.records.made_by import Ended, end_made_by
from app.core.access import FIRST_PROJECT, Role
from app.core.errors import EntryNotFound, InvalidField, LastManager, ProjectInUse
from app.core.lifecycle import GONE
from app.core.project_limits import Limits
from app.db.engine import Database
from app.db.tables import (
    api_keys,
    members,
    people,
    projects,
    share_links,
    upload_links,
    uploads,
    webhooks,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """Owns uploads and videos; the fields are those of the table."""

    id: str
    name: str
    created_at: datetime
    used_bytes: int = 0
    quota_bytes: int | None = None
    video_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A person in a project."""

    person_id: str
    name: str
    email: str
    role: Role
    added_at: datetime
    is_blocked: bool


class ProjectRecords:
    """Every call is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, project: Project, *, manager: str | None) -> None:
        """Store a new project, and the person who manages it."""
        values = {column.name: getattr(project, column.name) for column in projects.columns}
        with self._database.write() as connection:
            connection.execute(insert(projects).values(values))
            if manager is not None:
                _add_member(connection, project.id, manager, Role.MANAGER, project.created_at)

    def get(self, project_id: str) -> Project:
        """The project; raises `EntryNotFound`."""
        with self._database.read() as connection:
            return _project(connection, _by_id(project_id))

    def find(self, ids: Collection[str] | None = None) -> list[Project]:
        """The projects with these ids, or all, by name."""
        query = select(projects).order_by(func.lower(projects.c.name), projects.c.id)
        if ids is not None:
            query = query.where(projects.c.id.in_(ids))
        with self._database.read() as connection:
            return [Project(**row._mapping) for row in connection.execute(query)]

    def rename(self, project_id: str, name: str) -> None:
        """Note the new name; raises `EntryNotFound`."""
        self._change(project_id, {"name": name})

    def set_limits(self, project_id: str, limits: Limits) -> None:
        """Note new limits; raises `EntryNotFound`."""
        self._change(project_id, limits)

    def _change(self, project_id: str, values: Mapping[str, object]) -> None:
        change = update(projects).where(projects.c.id == project_id).values(values)
        with self._database.write() as connection:
            if not connection.execute(change).rowcount:
                raise EntryNotFound("There is no such project.")

    def remove(self, project_id: str) -> tuple[Project, dict[str, int]]:
        """Forget a project with its members, keys, links and webhooks.

        Returns what it was, and how many of each have ended with it. Raises `EntryNotFound`, and
        `ProjectInUse` for one with uploads, and for the first one.
        """
        if project_id == FIRST_PROJECT:
            raise ProjectInUse("The server's first project cannot be deleted.")
        present = select(uploads.c.id).where(
            uploads.c.owner == project_id, uploads.c.state.not_in(GONE)
        )
        with self._database.write() as connection:
            # Nobody can start an upload or create a link now.
            project = _project(connection, _by_id(project_id).with_for_update())
            if connection.execute(present.limit(1)).first():
                raise ProjectInUse("The project has videos or uploads: delete them first.")
            ended = _ending_with(connection, project_id)
            connection.execute(delete(projects).where(projects.c.id == project_id))
        return project, ended

    def members(self, project_id: str) -> list[Member]:
        """The members of a project, by name."""
        query = _members(members.c.project_id == project_id)
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(func.lower(people.c.name), people.c.id))
            return [_member_from_row(row) for row in rows]

    def add_member(self, project_id: str, person_id: str, role: Role, now: datetime) -> Member:
        """Let a person into a project; raises `InvalidField` for one who is a member."""
        with self._database.write() as connection:
            _project(connection, _by_id(project_id).with_for_update(read=True, key_share=True))
            _add_member(connection, project_id, person_id, role, now)
            return _member(connection, project_id, person_id)

    def set_role(self, project_id: str, person_id: str, role: Role) -> Member:
        """Give a member another role; raises `EntryNotFound`, and `LastManager`."""
        with self._database.write() as connection:
            _member(connection, project_id, person_id)
            if role is not Role.MANAGER:
                _require_another_manager(connection, project_id, person_id)
            change = update(members).where(_is(project_id, person_id)).values(role=role)
            connection.execute(change)
            return _member(connection, project_id, person_id)

    def remove_member(self, project_id: str, person_id: str, now: datetime) -> tuple[Member, Ended]:
        """End a membership, and the keys and links that the person has made in the project.

        Returns what it was and what has ended, raises as `set_role` does.
        """
        with self._database.write() as connection:
            member = _member(connection, project_id, person_id)
            _require_another_manager(connection, project_id, person_id)
            connection.execute(delete(members).where(_is(project_id, person_id)))
            maker = f"person:{person_id}"
            ended = end_made_by(connection, maker, now, project_id=project_id)
            return member, ended.get(project_id, Ended())


def _by_id(project_id: str) -> Select[Any]:
    return select(projects).where(projects.c.id == project_id)


def _project(connection: Connection, query: Select[Any]) -> Project:
    row = connection.execute(query).first()
    if row is None:
        raise EntryNotFound("There is no such project.")
    return Project(**row._mapping)


_END_WITH_IT = (
    ("members", members.c.project_id, true()),
    ("keys", api_keys.c.project_id, api_keys.c.revoked_at.is_(None)),
    ("links", share_links.c.project_id, share_links.c.revoked_at.is_(None)),
    ("links", upload_links.c.project_id, upload_links.c.closed_at.is_(None)),
    ("webhooks", webhooks.c.project_id, true()),
)
"""What a project has, and which of it has not ended before."""


def _ending_with(connection: Connection, project_id: str) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for kind, belongs_to, is_kept in _END_WITH_IT:
        query = select(func.count()).where(belongs_to == project_id, is_kept)
        counts[kind] += connection.execute(query).scalar_one()
    return dict(counts)


def _is(project_id: str, person_id: str) -> ColumnElement[bool]:
    return (members.c.project_id == project_id) & (members.c.person_id == person_id)


def _add_member(
    connection: Connection, project_id: str, person_id: str, role: Role, now: datetime
) -> None:
    values = {"project_id": project_id, "person_id": person_id, "role": role, "added_at": now}
    try:
        connection.execute(insert(members).values(values))
    except IntegrityError:
        raise InvalidField("This person is a member already.", field="email") from None


def _members(condition: ColumnElement[bool]) -> Select[Any]:
    joined = members.join(people, people.c.id == members.c.person_id)
    columns = (members.c.person_id, people.c.name, people.c.email, people.c.is_blocked)
    return select(*columns, members.c.role, members.c.added_at).select_from(joined).where(condition)


def _member(connection: Connection, project_id: str, person_id: str) -> Member:
    row = connection.execute(_members(_is(project_id, person_id))).first()
    if row is None:
        raise EntryNotFound("The project has no such member.")
    return _member_from_row(row)


def _member_from_row(row: Row[Any]) -> Member:
    return Member(**{**row._mapping, "role": Role(row.role)})


def _require_another_manager(connection: Connection, project_id: str, person_id: str) -> None:
    """Somebody must be able to let others in."""
    managers = select(members.c.person_id).where(
        members.c.project_id == project_id, members.c.role == Role.MANAGER
    )
    # Locked, and in order: of two who do this at once, the second waits for the first.
    locked = managers.order_by(members.c.person_id).with_for_update(key_share=True)
    if [row.person_id for row in connection.execute(locked)] == [person_id]:
        raise LastManager("The project needs a manager: make somebody else one first.")
