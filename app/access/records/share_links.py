"""The records of share links."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, insert, or_, select, update

from app.access.records.makers import require_role
from app.core.upload import UploadId
from app.db.engine import Database
from app.db.tables import share_links, shared_videos


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareLink:
    """Lets whoever has its code watch `videos`, at least one, in their order.

    `views` counts visits, of which there are at most `max_views`. Where its videos are gone from
    the records there is none left.
    """

    id: str
    project_id: str
    code: str
    name: str
    videos: tuple[UploadId, ...]
    can_download: bool
    created_by: str
    created_at: datetime
    password_hash: str | None = None
    max_views: int | None = None
    views: int = 0
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    @property
    def is_used_up(self) -> bool:
        """Whether nobody else may watch."""
        return self.max_views is not None and self.views >= self.max_views

    def works(self, now: datetime) -> bool:
        """Whether it was neither revoked nor has expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class ShareLinkRecords:
    """Every call is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, link: ShareLink) -> None:
        """Store a new link; raises `NotAllowed` if its maker has no role in the project now."""
        values = {column.name: getattr(link, column.name) for column in share_links.columns}
        videos = [
            {"link_id": link.id, "upload_id": video, "position": position}
            for position, video in enumerate(link.videos)
        ]
        with self._database.write() as connection:
            require_role(connection, link.created_by, link.project_id)
            connection.execute(insert(share_links).values(values))
            connection.execute(insert(shared_videos), videos)

    def get(self, link_id: str) -> ShareLink | None:
        """The link with that id, whether or not it still works."""
        return self._first(share_links.c.id == link_id)

    def find(self, code: str) -> ShareLink | None:
        """The link with that code, whether or not it still works."""
        return self._first(share_links.c.code == code)

    def of_project(self, project_id: str) -> list[ShareLink]:
        """The links of a project that were not revoked, the newest first."""
        links = share_links.c
        return self._all((links.project_id == project_id) & links.revoked_at.is_(None))

    def change(self, project_id: str, link_id: str, **values: Any) -> ShareLink | None:
        """The link as it is after the change of these columns alone; None if it was revoked."""
        if values:
            links = share_links.c
            change = update(share_links).where(
                links.id == link_id, links.project_id == project_id, links.revoked_at.is_(None)
            )
            with self._database.write() as connection:
                connection.execute(change.values(values))
        return self.in_project(project_id, link_id)

    def in_project(self, project_id: str, link_id: str) -> ShareLink | None:
        """The link with that id if it is of the project and was not revoked."""
        links = share_links.c
        is_same = (links.id == link_id) & (links.project_id == project_id)
        return self._first(is_same & links.revoked_at.is_(None))

    def revoke(self, project_id: str, link_id: str, now: datetime) -> bool:
        """Note that a link works no longer; whether the project has such a link that did."""
        change = update(share_links).where(
            share_links.c.id == link_id,
            share_links.c.project_id == project_id,
            share_links.c.revoked_at.is_(None),
        )
        with self._database.write() as connection:
            return connection.execute(change.values(revoked_at=now)).rowcount == 1

    def count_view(self, link_id: str, now: datetime) -> bool:
        """Count one more view of a link that works, unless it has had all of its views."""
        links = share_links.c
        change = update(share_links).where(
            links.id == link_id,
            links.revoked_at.is_(None),
            or_(links.expires_at.is_(None), links.expires_at > now),
            or_(links.max_views.is_(None), links.views < links.max_views),
        )
        with self._database.write() as connection:
            return connection.execute(change.values(views=links.views + 1)).rowcount == 1

    def _first(self, condition: ColumnElement[bool]) -> ShareLink | None:
        return next(iter(self._all(condition)), None)

    def _all(self, condition: ColumnElement[bool]) -> list[ShareLink]:
        links, shared = share_links.c, shared_videos.c
        query = select(share_links).where(condition).order_by(links.created_at.desc(), links.id)
        listed = (
            select(shared.link_id, shared.upload_id)
            .join(share_links)
            .where(condition)
            .order_by(shared.link_id, shared.position)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
            videos: dict[str, list[UploadId]] = defaultdict(list)
            for shares in connection.execute(listed):
                videos[shares.link_id].append(UploadId(shares.upload_id))
        return [ShareLink(**row._mapping, videos=tuple(videos[row.id])) for row in rows]
