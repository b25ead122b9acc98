"""The playback state of each video: one row per video, in the table `media`."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from app.core.errors import UploadGone
from app.core.jobs import INDEX, REMUX, SOUND, Job, JobState, Lane
from app.core.lifecycle import GONE, UploadState
from app.core.playback import Playback, PlaybackProblem, PlaybackState, check_transition
from app.core.upload import UploadId
from app.db.engine import Database
from app.db.jobs import as_new, from_row, is_in, queue_all
from app.db.sql import insert_unless_known
from app.db.tables import IS_SHOWN, jobs, media, uploads
from app.records import statements

_EVER = datetime(1970, 1, 1, tzinfo=UTC)

_OF = sa.select(media).where(media.c.upload_id.in_(sa.bindparam("upload_ids", expanding=True)))

_IS_PLANNED = sa.exists().where(media.c.upload_id == uploads.c.id, media.c.is_planned)

_UNPLANNED = (
    sa.select(uploads.c.id)
    .where(
        uploads.c.state == UploadState.COMPLETE,
        uploads.c.active_at >= sa.bindparam("since"),
        sa.not_(_IS_PLANNED),
    )
    .order_by(uploads.c.active_at.desc())
    .limit(sa.bindparam("most"))
)

_GONE = (
    sa.select(uploads.c.id)
    .where(
        uploads.c.state.in_(sorted(GONE)),
        uploads.c.active_at >= sa.bindparam("since"),
        sa.or_(
            sa.exists().where(media.c.upload_id == uploads.c.id),
            sa.exists().where(jobs.c.subject == uploads.c.id),
        ),
    )
    .limit(sa.bindparam("most"))
)
"""Run every second: SQLAlchemy takes as long to build such a query as to run it."""

_STILL_WAITS = {
    INDEX: PlaybackState.WAITING,
    REMUX: PlaybackState.PROBED,
    SOUND: PlaybackState.PROBED,
}
"""Steps that a video needs to be playable, each with the state in which the video waits for it."""

_IS_WAITED_FOR = sa.or_(
    *(sa.and_(jobs.c.kind == step, media.c.state == state) for step, state in _STILL_WAITS.items())
)
_OF_WAITING_VIDEO = sa.exists().where(media.c.upload_id == jobs.c.subject, _IS_WAITED_FOR)

_ENDED_STEP = (
    sa.select(jobs)
    .where(
        jobs.c.kind.in_(list(_STILL_WAITS)),
        is_in([JobState.FAILED, JobState.CANCELLED]),
        _OF_WAITING_VIDEO,
    )
    .limit(sa.bindparam("most"))
)

_FAILED_STEP = (
    sa.select(jobs)
    .where(
        IS_SHOWN,
        is_in([JobState.FAILED]),
        jobs.c.kind.in_(list(_STILL_WAITS)),
        _OF_WAITING_VIDEO,
    )
    .limit(sa.bindparam("most"))
)
"""Run every second; an index covers failed jobs, but not cancelled ones."""

_PLAYS = (PlaybackState.PLAYABLE, PlaybackState.READY)


PlaybackObserver = Callable[[sa.Connection, Playback], None]
"""Called with a video's playback in the transaction that sets its state. If it raises, the
transaction is rolled back."""


def no_observer(_connection: sa.Connection, _playback: Playback) -> None:
    """For processes without an observer."""


class MediaRecords:
    """Every call is one transaction."""

    def __init__(self, database: Database, observer: PlaybackObserver = no_observer) -> None:
        self._database = database
        self._observe = observer

    def add(self, upload_id: UploadId, now: datetime, *, is_planned: bool) -> None:
        """Insert a row for a video that waits for its index, unless it has a row.

        `is_planned` says that the jobs of the complete file are queued; `add` never resets it.
        Raises `UploadGone` if there is no such upload.
        """
        row = {**_row(upload_id, PlaybackState.WAITING, now), "is_planned": is_planned}
        try:
            with self._database.write() as connection:
                if not insert_unless_known(connection, media, row) and is_planned:
                    is_row = media.c.upload_id == upload_id
                    connection.execute(sa.update(media).where(is_row).values(is_planned=True))
        except IntegrityError as error:
            raise UploadGone("The upload no longer exists.") from error

    def plan(self, upload_ids: Collection[UploadId], lane: Lane, now: datetime) -> None:
        """Queue the first job of these complete uploads, and mark them as planned.

        Jobs that have ended are queued again. Uploads that are already deleted or planned are
        skipped.
        """
        try:
            self._plan(upload_ids, lane, now)
        except IntegrityError:  # Another process has just planned one of them, or deleted it.
            self._plan(upload_ids, lane, now)

    def _plan(self, upload_ids: Collection[UploadId], lane: Lane, now: datetime) -> None:
        wanted = {**as_new(now), "lane": lane, "priority": 0}
        is_present = uploads.c.id.in_(upload_ids) & uploads.c.state.not_in(sorted(GONE))
        is_present &= sa.not_(_IS_PLANNED)  # Another node may have planned them.
        with self._database.write() as connection:
            if self._database.is_remote:
                statements.lock(connection, upload_ids)
            query = sa.select(uploads.c.id).where(is_present).order_by(uploads.c.active_at)
            present = list(connection.scalars(query))
            queue_all(connection, present, INDEX, wanted)
            is_row = media.c.upload_id.in_(present)
            known = set(connection.scalars(sa.select(media.c.upload_id).where(is_row)))
            connection.execute(
                sa.update(media).where(is_row, sa.not_(media.c.is_planned)).values(is_planned=True)
            )
            new = [_row(each, PlaybackState.WAITING, now) for each in present if each not in known]
            if new:
                connection.execute(sa.insert(media), [{**row, "is_planned": True} for row in new])

    def add_unplayable(
        self, upload_ids: Collection[UploadId], problem: PlaybackProblem, now: datetime
    ) -> None:
        """Insert rows for complete uploads that are not playable, with the problem.

        They count as planned. Uploads that already have a row are skipped.
        """
        is_new = uploads.c.id.in_(upload_ids) & (uploads.c.state == UploadState.COMPLETE)
        is_new &= sa.not_(sa.exists().where(media.c.upload_id == uploads.c.id))
        with (
            suppress(IntegrityError),  # Another process has just planned one of them.
            self._database.write() as connection,
        ):
            found = list(connection.scalars(sa.select(uploads.c.id).where(is_new)))
            state = PlaybackState.UNPLAYABLE
            described = {**_problem(problem), "is_planned": True}
            if rows := [{**_row(each, state, now), **described} for each in found]:
                connection.execute(sa.insert(media), rows)
            for upload_id in found:
                playback = Playback(
                    upload_id=upload_id, state=state, facts=None, problem=problem, updated_at=now
                )
                self._observe(connection, playback)

    def get(self, upload_id: UploadId) -> Playback | None:
        """The playback of a video; None if it has no row."""
        return self.of([upload_id]).get(upload_id)

    def of(self, upload_ids: Collection[UploadId]) -> dict[UploadId, Playback]:
        """The playbacks of several videos; those without a row are missing."""
        if not upload_ids:
            return {}
        with self._database.read() as connection:
            rows = connection.execute(_OF, {"upload_ids": upload_ids})
            return {row.upload_id: _from_row(row) for row in rows}

    def move(self, upload_id: UploadId, target: PlaybackState, now: datetime) -> Playback:
        """Change the state; facts and problem stay.

        Raises `IllegalPlaybackStep`, and `UploadGone` if there is no row.
        """
        return self._step(upload_id, target, {"updated_at": now})

    def describe(
        self,
        upload_id: UploadId,
        target: PlaybackState,
        now: datetime,
        *,
        facts: Mapping[str, Any] | None,
        problem: PlaybackProblem | None = None,
    ) -> Playback:
        """Change the state, and replace facts and problem.

        Raises like `move`.
        """
        stored = None if facts is None else json.dumps(facts, separators=(",", ":"))
        values = {"facts": stored, **_problem(problem), "updated_at": now}
        return self._step(upload_id, target, values)

    def _step(
        self, upload_id: UploadId, target: PlaybackState, values: Mapping[str, Any]
    ) -> Playback:
        with self._database.write() as connection:
            before = _get(connection, upload_id)
            check_transition(before.state, target)
            is_row = media.c.upload_id == upload_id
            connection.execute(sa.update(media).where(is_row).values(state=target, **values))
            after = _get(connection, upload_id)
            self._observe(connection, after)
            return after

    def unplanned(self, limit: int, *, since: datetime | None = None) -> list[UploadId]:
        """Complete uploads with jobs that are not queued yet, newest first.

        With `since`, only those completed since then: an index covers this query, so it costs
        nothing if there are none.
        """
        return self._ids(_UNPLANNED, limit, since)

    def plan_again(self, upload_ids: Collection[UploadId] | None) -> int:
        """Make `unplanned` return these videos, or all videos, again; returns how many changed."""
        change = sa.update(media).where(media.c.is_planned).values(is_planned=False)
        if upload_ids is not None:
            change = change.where(media.c.upload_id.in_(upload_ids))
        with self._database.write() as connection:
            return connection.execute(change).rowcount

    def plan_unmade(self, steps: Collection[str], codes: Collection[str]) -> int:
        """Make `unplanned` return playable videos for which none of `steps` was queued.

        Also videos that have a problem with one of these codes. Returns their number.
        """
        has_job = sa.exists().where(
            jobs.c.subject == media.c.upload_id, jobs.c.kind.in_(sorted(steps))
        )
        is_unmade = sa.or_(
            sa.and_(media.c.state.in_(_PLAYS), sa.not_(has_job)),
            media.c.problem_code.in_(sorted(codes)),
        )
        change = sa.update(media).where(media.c.is_planned, is_unmade).values(is_planned=False)
        with self._database.write() as connection:
            return connection.execute(change).rowcount

    def gone(self, limit: int, *, since: datetime | None = None) -> list[UploadId]:
        """Cancelled, expired and deleted uploads that still have rows here or jobs.

        `since` as in `unplanned`.
        """
        return self._ids(_GONE, limit, since)

    def _ids(self, query: sa.Select[Any], limit: int, since: datetime | None) -> list[UploadId]:
        with self._database.read() as connection:
            found = connection.scalars(query, {"since": since or _EVER, "most": limit})
            return [UploadId(upload_id) for upload_id in found]

    def forget(self, upload_ids: Collection[UploadId]) -> None:
        """Delete the rows of these videos and all their jobs; running workers notice it soon."""
        with self._database.write() as connection:
            connection.execute(sa.delete(jobs).where(jobs.c.subject.in_(upload_ids)))
            connection.execute(sa.delete(media).where(media.c.upload_id.in_(upload_ids)))

    def undescribed(self, limit: int, *, is_recent: bool) -> list[Job]:
        """Failed and cancelled jobs that a video needed to become playable.

        With `is_recent`, only failed jobs: that costs nothing if there are none.
        """
        query = _FAILED_STEP if is_recent else _ENDED_STEP
        with self._database.read() as connection:
            found = connection.execute(query, {"most": limit})
            return [from_row(row) for row in found]

    def settle(
        self, not_awaited: Collection[str], now: datetime, *, limit: int, only: UploadId | None
    ) -> list[UploadId]:
        """Mark playable videos without unfinished jobs as ready; ignores the steps `not_awaited`.

        Checks all planned videos, or `only` one. Returns the changed videos.
        """
        awaited = sa.exists().where(
            jobs.c.subject == media.c.upload_id,
            is_in([JobState.QUEUED, JobState.RUNNING]),
            jobs.c.kind.not_in(sorted(not_awaited)),
        )
        is_settled = sa.and_(
            media.c.state == PlaybackState.PLAYABLE, media.c.is_planned, sa.not_(awaited)
        )
        if only is not None:
            is_settled = sa.and_(media.c.upload_id == only, is_settled)
        query = sa.select(media.c.upload_id).where(is_settled).limit(limit)
        with self._database.read() as connection:  # Usually there are none.
            found = [UploadId(upload_id) for upload_id in connection.scalars(query)]
        if not found:
            return []
        still = sa.select(media.c.upload_id).where(media.c.upload_id.in_(found), is_settled)
        values = {"state": PlaybackState.READY, "updated_at": now}
        with self._database.write() as connection:
            ready = [UploadId(each) for each in connection.scalars(still.with_for_update())]
            connection.execute(sa.update(media).where(media.c.upload_id.in_(ready)).values(values))
            for upload_id in ready:
                self._observe(connection, _get(connection, upload_id))
        return ready

    def conclude(
        self, found: Sequence[tuple[UploadId, PlaybackState, PlaybackProblem | None]], now: datetime
    ) -> None:
        """Store the results of videos with a failed step, if they still wait for it."""
        still_waits = media.c.state.in_(_STILL_WAITS.values())
        with self._database.write() as connection:
            for upload_id, state, problem in found:
                values = {"state": state, **_problem(problem), "updated_at": now}
                is_row = media.c.upload_id == upload_id
                change = sa.update(media).where(is_row, still_waits).values(**values)
                if connection.execute(change).rowcount:
                    self._observe(connection, _get(connection, upload_id))


def _get(connection: sa.Connection, upload_id: UploadId) -> Playback:
    query = sa.select(media).where(media.c.upload_id == upload_id).with_for_update()
    row = connection.execute(query).first()
    if row is None:
        raise UploadGone("The video no longer exists.")
    return _from_row(row)


def _row(upload_id: UploadId, state: PlaybackState, now: datetime) -> dict[str, Any]:
    return {"upload_id": upload_id, "state": state, "updated_at": now}


def _problem(problem: PlaybackProblem | None) -> dict[str, Any]:
    return {"problem_code": problem and problem.code, "problem_detail": problem and problem.detail}


def _from_row(row: Any) -> Playback:
    return Playback(
        upload_id=UploadId(row.upload_id),
        state=PlaybackState(row.state),
        facts=None if row.facts is None else json.loads(row.facts),
        problem=row.problem_code and PlaybackProblem(row.problem_code, row.problem_detail),
        updated_at=row.updated_at,
    )
