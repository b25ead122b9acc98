"""Counts each project's quota usage, in the transactions that change it.

Every upload that has not ended counts with its whole length, whether or not its bytes have arrived.
An upload through a link counts with its reservation instead, since anonymous clients may claim
bytes they never send. A member's upload of unknown length does not count until its length is
declared: until then it may not exceed the remaining quota, and its received bytes are not available
to other uploads. While a concatenation and its parts both exist, both count: both take space.
"""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, func, or_, select, update

from app.core.errors import EntryNotFound, over_quota
from app.core.lifecycle import GONE
from app.core.upload import Upload
from app.db.engine import Database
from app.db.tables import IS_WITHOUT_LENGTH, projects, uploads

_CHANGED = (
    update(projects)
    .where(projects.c.id == bindparam("project"))
    .values(used_bytes=projects.c.used_bytes + bindparam("more"))
)

_CHANGED_WITHIN_QUOTA = _CHANGED.where(
    or_(
        projects.c.quota_bytes.is_(None),
        projects.c.used_bytes + bindparam("more") <= projects.c.quota_bytes,
    )
)

_QUOTA = select(projects.c.quota_bytes, projects.c.used_bytes).where(
    projects.c.id == bindparam("project")
)

_UNCOUNTED = select(uploads.c.received).where(
    uploads.c.owner == bindparam("project"),
    IS_WITHOUT_LENGTH,
    uploads.c.reserved.is_(None),
    uploads.c.id != bindparam("but"),
)
"""What uploads of unknown length have received; the used bytes do not count it."""


class ProjectQuotas:
    """Counts the bytes of projects and rejects uploads that exceed a quota."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def observe(self, connection: Connection, before: Upload | None, after: Upload | None) -> None:
        """Count a change of an upload in its transaction; raises like `check`."""
        upload = after or before
        more = _held_bytes(after) - _held_bytes(before)
        if upload is None:
            return
        if not more and before is not None:
            return
        statement = _CHANGED_WITHIN_QUOTA if more > 0 else _CHANGED
        changed = connection.execute(statement, {"project": upload.owner, "more": more})
        if changed.rowcount:
            if more > 0:
                _refuse(connection, upload.owner, more, but=upload.id, is_counted=True)
            return
        if before is None and connection.execute(_QUOTA, {"project": upload.owner}).first() is None:
            raise EntryNotFound("There is no such project.")  # It was removed just now.
        _refuse(connection, upload.owner, more, but=upload.id)

    def check(self, project: str, length: int) -> None:
        """Raise `QuotaExceeded` or `LargerThanQuota` unless the project has `length` bytes left.

        Only an early check: other uploads may use the remaining quota before this one is recorded.
        """
        with self._database.read() as connection:
            _refuse(connection, project, length)

    def check_growth(self, upload: Upload, length: int) -> None:
        """Raise like `check` unless an upload of unknown length may grow to `length` bytes."""
        with self._database.read() as connection:
            _refuse(connection, upload.owner, length - upload.held_bytes, but=upload.id)

    def largest(self, upload: Upload, limit: int) -> int:
        """Maximum size in bytes of an upload of unknown length, at most `limit`."""
        with self._database.read() as connection:
            found = _left_and_quota(connection, upload.owner, but=upload.id)
        return limit if found is None else max(0, min(limit, found[0] + upload.held_bytes))

    def recount(self) -> dict[str, tuple[int, int]]:
        """Recount the used bytes of all projects and correct wrong counts.

        Returns the corrected projects by id, each with the wrong and the right count.
        """
        counted = (
            select(func.coalesce(func.sum(func.coalesce(uploads.c.reserved, uploads.c.length)), 0))
            .where(uploads.c.owner == projects.c.id, uploads.c.state.not_in(GONE))
            .scalar_subquery()
        )
        wrong = select(projects.c.id, projects.c.used_bytes, counted.label("right"))
        with self._database.write() as connection:
            rows = connection.execute(wrong.where(projects.c.used_bytes != counted)).all()
            for row in rows:
                right = update(projects).where(projects.c.id == row.id)
                connection.execute(right.values(used_bytes=row.right))
        return {row.id: (row.used_bytes, row.right) for row in rows}


def _held_bytes(upload: Upload | None) -> int:
    return 0 if upload is None else upload.held_bytes


def _left_and_quota(
    connection: Connection, project: str, *, but: str = ""
) -> tuple[int, int] | None:
    """Returns the quota left for the upload with the id `but`, and the quota; None without one.

    The rest is negative if uploads of unknown length together have received too much.
    """
    found = connection.execute(_QUOTA, {"project": project}).first()
    if found is None or found.quota_bytes is None:
        return None
    uncounted = connection.scalars(_UNCOUNTED, {"project": project, "but": but})
    received_bytes = sum(received.total for received in uncounted)
    return found.quota_bytes - found.used_bytes - received_bytes, found.quota_bytes


def _refuse(
    connection: Connection, project: str, length: int, *, but: str = "", is_counted: bool = False
) -> None:
    """Raise unless `length` bytes fit; with `is_counted`, they are included in the used bytes."""
    found = _left_and_quota(connection, project, but=but)
    if found is None:
        return
    left, quota = found[0] + (length if is_counted else 0), found[1]
    if length > left:
        raise over_quota(length, left=max(0, left), quota=quota)
