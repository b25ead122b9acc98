"""Projects, and who is a member of them with which role."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from app.access import audit
from app.access.audit import AuditAction
from app.access.creators import RevocationCounts, end_made_by
from app.access.people import clean_email, find_by_email
from app.core.access import FIRST_PROJECT, Caller, Role
from app.core.errors import EntryNotFound, InvalidField, LastManager, NotAllowed, ProjectInUse
from app.core.lifecycle import GONE
from app.core.names import clean_name
from app.core.numbers import bytes_in_words, parse_bytes
from app.db.context import Context, RequestContext
from app.db.sql import insert_row
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

# ---- rules ---------------------------------------------------------------------------------------

MAX_QUOTA_BYTES = 1 << 60

MAX_VIDEO_SECONDS = 100 * 365 * 24 * 3600.0
"""A hundred years."""

DAY_SECONDS = 86_400

Limits = Mapping[str, float | None]
"""New values of a project's columns `quota_bytes` and `video_seconds`; None takes a limit away."""

NO_LIMITS: Limits = MappingProxyType({})


def parse_limits(values: Mapping[str, object]) -> Limits:
    """The limits among the members of JSON; raises `InvalidField`."""
    return {name: _CHECKS[name](values[name]) for name in _CHECKS if name in values}


def require_may_limit(caller: Caller) -> None:
    """Raise `NotAllowed` unless the caller is an administrator."""
    if not caller.is_admin:
        raise NotAllowed("Administrators set how much a project may hold, and for how long.")


def limits_in_words(quota: str, keep_days: str) -> Limits:
    """The limits that a person enters, as "50 GB" and "30"; nothing takes a limit away."""
    return parse_limits(
        {
            "quota_bytes": _entered(quota, parse_bytes),
            "video_seconds": _entered(keep_days, lambda text: float(text) * DAY_SECONDS),
        }
    )


def words_of_limits(quota_bytes: int | None, video_seconds: float | None) -> dict[str, str]:
    """The fields from which `limits_in_words` reads the same limits again."""
    words = "" if quota_bytes is None else bytes_in_words(quota_bytes)
    if words and parse_bytes(words) != quota_bytes:
        words = str(quota_bytes)
    return {
        "quota": words,
        "keep_days": "" if video_seconds is None else f"{video_seconds / DAY_SECONDS:.10g}",
    }


def _entered(text: str, parse: Callable[[str], float]) -> object:
    """What is entered, or the text itself, which is then refused."""
    if not text.strip():
        return None
    try:
        return parse(text.strip())
    except ValueError:
        return text


def _quota(value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_QUOTA_BYTES:
        raise InvalidField("A quota is a whole number of bytes, or null.", field="quota_bytes")
    return value


def _video_seconds(value: object) -> float | None:
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < float(str(value)) <= MAX_VIDEO_SECONDS:
        raise InvalidField(
            "Videos are kept for a number of seconds, or null.", field="video_seconds"
        )
    return float(str(value))


_CHECKS: Mapping[str, Callable[[object], float | None]] = {
    "quota_bytes": _quota,
    "video_seconds": _video_seconds,
}


# ---- rows ----------------------------------------------------------------------------------------


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

    @classmethod
    def of(cls, row: sa.Row[Any]) -> Member:
        """The member of a row of `_members`."""
        return cls(**{**row._mapping, "role": Role(row.role)})


# ---- use cases -----------------------------------------------------------------------------------


class Projects:
    """What managers and administrators do with projects.

    `forget` ends what this process remembers of roles; other processes ask again within seconds.
    """

    def __init__(self, ctx: Context, forget: Callable[[], None] = lambda: None) -> None:
        self._ctx = ctx
        self._forget = forget

    def get(self, project_id: str) -> Project:
        """The project; raises `EntryNotFound`."""
        with self._ctx.database.read() as connection:
            return _project(connection, _by_id(project_id))

    def find(self, ids: Collection[str] | None = None) -> list[Project]:
        """The projects with these ids, or all, by name."""
        query = sa.select(projects).order_by(sa.func.lower(projects.c.name), projects.c.id)
        if ids is not None:
            query = query.where(projects.c.id.in_(ids))
        with self._ctx.database.read() as connection:
            return [Project(**row._mapping) for row in connection.execute(query)]

    def of(self, caller: Caller) -> list[Project]:
        """The projects the caller may enter; an administrator's are all."""
        return self.find(None if caller.is_admin else caller.roles)

    def entered(self, caller: Caller) -> list[Project]:
        """The projects the caller is a member of, by name."""
        return self.find(caller.roles)

    def make(self, ctx: RequestContext, name: str, *, manager: str | None) -> Project:
        """A new project, managed by the person with that id; raises `InvalidField`."""
        project = Project(
            id=ctx.new_id(),
            name=clean_name(name),
            created_at=ctx.clock(),
            quota_bytes=ctx.settings.project_quota_bytes or None,
        )
        with ctx.database.write() as connection:
            insert_row(connection, projects, project)
            if manager is not None:
                _add_member(connection, project.id, manager, Role.MANAGER, project.created_at)
        self._forget()
        _audit(ctx, AuditAction.PROJECT_MADE, project, name=project.name)
        return project

    def change(
        self,
        ctx: RequestContext,
        project_id: str,
        *,
        name: str | None = None,
        limits: Limits = NO_LIMITS,
    ) -> Project:
        """Give a project another name, or other limits: see `parse_limits`.

        What is there already stays, even beyond the quota. Raises `InvalidField`, and
        `EntryNotFound`.
        """
        values: dict[str, object] = {**limits}
        if name is not None:
            values["name"] = clean_name(name)
        change = sa.update(projects).where(projects.c.id == project_id).values(values)
        with ctx.database.write() as connection:
            if values:
                connection.execute(change)
            project = _project(connection, _by_id(project_id))
        changed = {key: getattr(project, key) for key in ("name", *values)}
        _audit(ctx, AuditAction.SETTINGS_CHANGED, project, **changed)
        return project

    def remove(self, ctx: RequestContext, project_id: str) -> Project:
        """Delete a project with its members, keys, links and webhooks; returns it.

        Raises `EntryNotFound`, and `ProjectInUse` for one with uploads, and for the first one.
        """
        if project_id == FIRST_PROJECT:
            raise ProjectInUse("The server's first project cannot be deleted.")
        present = sa.select(uploads.c.id).where(
            uploads.c.owner == project_id, uploads.c.state.not_in(GONE)
        )
        with ctx.database.write() as connection:
            # From here on no upload can begin there, and no link can be made.
            project = _project(connection, _by_id(project_id).with_for_update())
            if connection.execute(present.limit(1)).first():
                raise ProjectInUse("The project has videos or uploads: delete them first.")
            ended: Counter[str] = Counter()
            for kind, belongs_to, is_kept in _END_WITH_IT:
                count = sa.select(sa.func.count()).where(belongs_to == project_id, is_kept)
                ended[kind] += connection.execute(count).scalar_one()
            connection.execute(sa.delete(projects).where(projects.c.id == project_id))
        self._forget()
        _audit(ctx, AuditAction.PROJECT_REMOVED, project, name=project.name, **ended)
        return project

    def members(self, project_id: str) -> list[Member]:
        """The members of a project, by name."""
        query = _members(members.c.project_id == project_id)
        with self._ctx.database.read() as connection:
            rows = connection.execute(query.order_by(sa.func.lower(people.c.name), people.c.id))
            return [Member.of(row) for row in rows]

    def add_member(
        self, ctx: RequestContext, project_id: str, email: str, role: Role
    ) -> Member | None:
        """Let the person with that e-mail address into the project.

        None if no proven account has it: a manager may have made the account for themselves.
        `Invitations.to_join` is then the way. Raises `InvalidField`, also for who is a member.
        """
        person = find_by_email(ctx, clean_email(email))
        if person is None or not person.is_proven:
            return None
        with ctx.database.write() as connection:
            _project(connection, _by_id(project_id).with_for_update(read=True, key_share=True))
            _add_member(connection, project_id, person.id, role, ctx.clock())
            member = _member(connection, project_id, person.id)
        self._forget()
        _audit_member(ctx, AuditAction.MEMBER_ADDED, project_id, member)
        return member

    def set_role(self, ctx: RequestContext, project_id: str, person_id: str, role: Role) -> Member:
        """Give a member another role.

        Raises `EntryNotFound`, and `LastManager` where no manager would be left.
        """
        with ctx.database.write() as connection:
            _member(connection, project_id, person_id)
            if role is not Role.MANAGER:
                _require_another_manager(connection, project_id, person_id)
            change = sa.update(members).where(_is(project_id, person_id)).values(role=role)
            connection.execute(change)
            member = _member(connection, project_id, person_id)
        self._forget()
        _audit_member(ctx, AuditAction.MEMBER_CHANGED, project_id, member)
        return member

    def remove_member(
        self, ctx: RequestContext, project_id: str, person_id: str
    ) -> RevocationCounts:
        """End a membership, and the keys and links that the person has made in the project.

        Returns what has ended; raises as `set_role` does.
        """
        maker = f"person:{person_id}"
        with ctx.database.write() as connection:
            member = _member(connection, project_id, person_id)
            _require_another_manager(connection, project_id, person_id)
            connection.execute(sa.delete(members).where(_is(project_id, person_id)))
            by_project = end_made_by(connection, maker, ctx.clock(), project_id=project_id)
        ended = by_project.get(project_id, RevocationCounts())
        self._forget()
        _audit_member(ctx, AuditAction.MEMBER_REMOVED, project_id, member, **asdict(ended))
        return ended


def _audit(ctx: RequestContext, action: AuditAction, project: Project, **details: Any) -> None:
    audit.note(ctx, action, f"project:{project.id}", project=project.id, **details)


def _audit_member(
    ctx: RequestContext, action: AuditAction, project_id: str, member: Member, **more: Any
) -> None:
    subject, email, role = f"person:{member.person_id}", member.email, member.role
    audit.note(ctx, action, subject, project=project_id, email=email, role=role, **more)


def _by_id(project_id: str) -> sa.Select[Any]:
    return sa.select(projects).where(projects.c.id == project_id)


def _project(connection: sa.Connection, query: sa.Select[Any]) -> Project:
    row = connection.execute(query).first()
    if row is None:
        raise EntryNotFound("There is no such project.")
    return Project(**row._mapping)


_END_WITH_IT = (
    ("members", members.c.project_id, sa.true()),
    ("keys", api_keys.c.project_id, api_keys.c.revoked_at.is_(None)),
    ("links", share_links.c.project_id, share_links.c.revoked_at.is_(None)),
    ("links", upload_links.c.project_id, upload_links.c.closed_at.is_(None)),
    ("webhooks", webhooks.c.project_id, sa.true()),
)
"""What a project has, and which of it has not ended before."""


def _is(project_id: str, person_id: str) -> sa.ColumnElement[bool]:
    return (members.c.project_id == project_id) & (members.c.person_id == person_id)


def _add_member(
    connection: sa.Connection, project_id: str, person_id: str, role: Role, now: datetime
) -> None:
    values = {"project_id": project_id, "person_id": person_id, "role": role, "added_at": now}
    try:
        connection.execute(sa.insert(members).values(values))
    except IntegrityError:
        raise InvalidField("This person is a member already.", field="email") from None


def _members(condition: sa.ColumnElement[bool]) -> sa.Select[Any]:
    joined = members.join(people, people.c.id == members.c.person_id)
    columns = (members.c.person_id, people.c.name, people.c.email, people.c.is_blocked)
    return (
        sa.select(*columns, members.c.role, members.c.added_at).select_from(joined).where(condition)
    )


def _member(connection: sa.Connection, project_id: str, person_id: str) -> Member:
    row = connection.execute(_members(_is(project_id, person_id))).first()
    if row is None:
        raise EntryNotFound("The project has no such member.")
    return Member.of(row)


def _require_another_manager(connection: sa.Connection, project_id: str, person_id: str) -> None:
    """A project keeps a member who can let others in."""
    managers = sa.select(members.c.person_id).where(
        members.c.project_id == project_id, members.c.role == Role.MANAGER
    )
    # Locked, and in order: of two who do this at once, the second waits for the first.
    locked = managers.order_by(members.c.person_id).with_for_update(key_share=True)
    if [row.person_id for row in connection.execute(locked)] == [person_id]:
        raise LastManager("The project needs a manager: make another person one first.")
