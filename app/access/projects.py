"""Projects, and who is a member of them with which role."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from app.access.accounts import clean_email
from app.access.records.made_by import Ended
from app.access.records.people import PeopleRecords
from app.access.records.projects import Member, Project, ProjectRecords
from app.access.sessions import Sessions
from app.core.access import Caller, Role
from app.core.names import clean_name
from app.core.project_limits import Limits


class Projects:
    """What managers and administrators do with projects. Roles change within seconds everywhere."""

    def __init__(
        self,
        records: ProjectRecords,
        people: PeopleRecords,
        *,
        sessions: Sessions,
        clock: Callable[[], datetime],
        new_id: Callable[[], str],
        quota_bytes: int | None = None,
    ) -> None:
        self._records = records
        self._people = people
        self._sessions = sessions
        self._clock = clock
        self._new_id = new_id
        self._quota_bytes = quota_bytes
        self.get = records.get
        self.members = records.members

    def of(self, caller: Caller) -> list[Project]:
        """The projects the caller may enter; an administrator's are all."""
        return self._records.find(None if caller.is_admin else caller.roles)

    def entered(self, caller: Caller) -> list[Project]:
        """The projects the caller is a member of, by name."""
        return self._records.find(caller.roles)

    def make(self, name: str, *, manager: str | None) -> Project:
        """A new project, managed by the person with that id."""
        project = Project(
            id=self._new_id(),
            name=clean_name(name),
            created_at=self._clock(),
            quota_bytes=self._quota_bytes,
        )
        self._records.add(project, manager=manager)
        self._sessions.forget()
        return project

    def rename(self, project_id: str, name: str) -> Project:
        """Give a project another name; raises `InvalidField`, `EntryNotFound`."""
        self._records.rename(project_id, clean_name(name))
        return self.get(project_id)

    def set_limits(self, project_id: str, limits: Limits) -> Project:
        """Set a project's quota, or how long it keeps videos; raises `EntryNotFound`.

        What is there already stays, even beyond the quota.
        """
        self._records.set_limits(project_id, limits)
        return self.get(project_id)

    def remove(self, project_id: str) -> tuple[Project, dict[str, int]]:
        """End a project that has no videos or uploads; raises `ProjectInUse` for others.

        Returns what it was, and how many members, keys, links and webhooks have ended with it.
        """
        removed = self._records.remove(project_id)
        self._sessions.forget()
        return removed

    def add_member(self, project_id: str, email: str, role: Role) -> Member | None:
        """Let the person with that e-mail address into the project.

        None if nobody is known to have it: a manager may have made the account for themselves.
        `Invitations.to_join` is then the way. Raises `InvalidField`.
        """
        person = self._people.find_by_email(clean_email(email))
        if person is None or not person.is_proven:
            return None
        member = self._records.add_member(project_id, person.id, role, self._clock())
        self._sessions.forget()
        return member

    def set_role(self, project_id: str, person_id: str, role: Role) -> Member:
        """Give a member another role; raises `LastManager` where nobody would manage any more."""
        member = self._records.set_role(project_id, person_id, role)
        self._sessions.forget()
        return member

    def remove_member(self, project_id: str, person_id: str) -> tuple[Member, Ended]:
        """End a membership, and the keys and links that the person has made in the project.

        Returns what it was and what has ended, raises as `set_role` does.
        """
        removed = self._records.remove_member(project_id, person_id, self._clock())
        self._sessions.forget()
        return removed
