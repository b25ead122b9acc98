"""The background worker's queue: a table of jobs that workers claim with a lease.

A claim can be renewed, and expires when its worker dies: no repair is needed. Every update has a
condition on the job's state and on the claim, so a worker that has lost its job changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from app.core.errors import UploadGone, UploadNotFound
from app.core.jobs import ENDED, FLEETING, MEDIA_LANES, SHOWN, Job, JobState, Lane, sources
from app.core.lifecycle import GONE, UploadState
from app.core.playback import PlaybackProblem
from app.core.upload import UploadId
from app.db.engine import Database
from app.db.sql import insert_unless_known
from app.db.tables import IS_SHOWN, IS_UNFINISHED, jobs, uploads

# ---- rows ----------------------------------------------------------------------------------------

# Jobs as rows: the conditions for changes, and the values of each change.


SET_BACK = timedelta(minutes=1)
"""A job that was changed this far in the future dates from before the clock was set back: it is due
now. The nodes' clocks agree within milliseconds."""

Values = Mapping[str, Any]
Condition = sa.ColumnElement[bool]


def key_of(subject: str, kind: str, argument: str) -> dict[str, Any]:
    """The columns that identify a job."""
    return {"subject": subject, "kind": kind, "argument": argument}


def is_job(key: Values) -> Condition:
    """Whether a row has this key."""
    return sa.and_(*(jobs.c[name] == value for name, value in key.items()))


def is_in(states: Collection[JobState]) -> Condition:
    """Whether a job is in one of these states."""
    return jobs.c.state.in_(sorted(states))


def is_due(now: datetime) -> Condition:
    """Whether a job may be claimed: its delay or its lease has ended."""
    return sa.or_(jobs.c.due_at <= now, jobs.c.updated_at > now + SET_BACK)


def is_held(job: Job) -> Condition:
    """Whether the row still has the claim of `job`, and its video was not deleted."""
    is_gone = (
        sa.select(uploads.c.id)
        .where(uploads.c.id == jobs.c.subject, uploads.c.state.in_(sorted(GONE)))
        .exists()
    )
    return sa.and_(
        is_job(key_of(job.subject, job.kind, job.argument)),
        is_in([JobState.RUNNING]),
        jobs.c.worker == job.worker,
        jobs.c.attempts == job.attempts,
        sa.not_(is_gone),
    )


def client_of(sender: str) -> str:
    """Returns the client of an upload's `sender`; all users of an upload link are one client."""
    return ":".join(sender.split(":")[:2])


def as_last_of_client(
    connection: sa.Connection, client: str, lane: Lane, priority: int
) -> dict[str, Any]:
    """Values of a job that is queued behind the other jobs of its client.

    Its turn is that of the first job in the queue, or the one after the client's last job. So the
    next job of each client runs before the second job of any client.
    """
    is_beside = sa.and_(IS_UNFINISHED, jobs.c.lane == lane, jobs.c.priority == priority)
    turns = sa.select(sa.func.min(jobs.c.turn)).where(is_beside)
    own = sa.select(sa.func.max(jobs.c.turn)).where(is_beside, jobs.c.client == client)
    first, last = connection.scalar(turns), connection.scalar(own)
    return {"client": client, "turn": max(first or 0, 0 if last is None else last + 1)}


def as_new(now: datetime) -> dict[str, Any]:
    """Values of a job that was just requested."""
    return {
        **as_waiting(None, now, now),
        "attempts": 0,
        "is_renewed": False,
        "progress": 0.0,
        "queued_at": now,
    }


def as_waiting(problem: PlaybackProblem | None, now: datetime, due_at: datetime) -> dict[str, Any]:
    """Values of a job that waits for a worker."""
    return as_ended(JobState.QUEUED, now, problem) | {"due_at": due_at}


def as_claimed(job: Job, worker: str, now: datetime, lease: timedelta) -> dict[str, Any]:
    """Values of a job that a worker has claimed."""
    return {
        "state": JobState.RUNNING,
        "worker": worker,
        "attempts": job.attempts + 1,
        "is_renewed": False,
        "progress": 0.0,
        "updated_at": now,
        "due_at": now + lease,
    }


def as_ended(
    state: JobState, now: datetime, problem: PlaybackProblem | None = None
) -> dict[str, Any]:
    """Values of a job that has ended."""
    return {
        "state": state,
        "worker": None,
        "problem_code": problem and problem.code,
        "problem_detail": problem and problem.detail,
        "updated_at": now,
    }


def asked_again(known: Job, wanted: Values, *, renew: bool) -> Values:
    """The changes that a repeated request makes to a job; see `JobRecords.enqueue`."""
    if known.state in ENDED:
        return wanted if renew else {}
    if known.state is JobState.RUNNING:
        return {"is_renewed": True} if renew and not known.is_renewed else {}
    if known.is_less_urgent_than(wanted["lane"], wanted["priority"]):
        return {"lane": wanted["lane"], "priority": wanted["priority"]}
    return {}


def get_job(connection: sa.Connection, key: Values, *, for_update: bool = False) -> Job | None:
    """Returns the job with this key; None if there is none."""
    query = sa.select(jobs).where(is_job(key))
    row = connection.execute(query.with_for_update() if for_update else query).first()
    return None if row is None else from_row(row)


def change_jobs(connection: sa.Connection, condition: Condition, values: Values) -> int:
    """Update the rows that match the condition; returns how many."""
    return connection.execute(sa.update(jobs).where(condition).values(**values)).rowcount


def queue_all(
    connection: sa.Connection, upload_ids: Collection[UploadId], step: str, wanted: Values
) -> None:
    """Renew or queue this step for several videos, like `JobRecords.enqueue` for one.

    `wanted` are the values of a new job besides its key and its turn. Takes at most seven
    statements for videos of one client, since it holds the write lock that uploads wait for.
    Renewed jobs keep their turns.
    """
    of_step = sa.and_(jobs.c.kind == step, jobs.c.argument == "")
    query = sa.select(jobs).where(of_step, jobs.c.subject.in_(upload_ids))
    known = {row.subject: from_row(row) for row in connection.execute(query.with_for_update())}
    new = [upload_id for upload_id in upload_ids if upload_id not in known]
    if new:
        senders = sa.select(uploads.c.id, uploads.c.sender).where(uploads.c.id.in_(new))
        clients = {row.id: client_of(row.sender) for row in connection.execute(senders)}
        turns: dict[str, int] = {}
        added = []
        for upload_id in new:
            client = clients[upload_id]
            if client not in turns:
                first = as_last_of_client(connection, client, wanted["lane"], wanted["priority"])
                turns[client] = first["turn"]
            place = {"client": client, "turn": turns[client]}
            added.append({**key_of(upload_id, step, ""), **wanted, **place})
            turns[client] += 1
        connection.execute(sa.insert(jobs), added)
    alike: dict[tuple[tuple[str, Any], ...], list[UploadId]] = {}
    for upload_id, job in known.items():
        changes = asked_again(job, wanted, renew=True)
        alike.setdefault(tuple(changes.items()), []).append(upload_id)
    for values, changed in alike.items():
        if values:
            change_jobs(connection, sa.and_(of_step, jobs.c.subject.in_(changed)), dict(values))


def from_row(row: Any) -> Job:
    """Returns the job in a row of the table."""
    values = dict(row._mapping)
    code, detail = values.pop("problem_code"), values.pop("problem_detail")
    values["problem"] = None if code is None else PlaybackProblem(code, detail)
    values["lane"], values["state"] = Lane(values["lane"]), JobState(values["state"])
    return Job(**values)


# ---- queue ---------------------------------------------------------------------------------------


BATCH = 100
"""Most jobs, or videos that need some, that one transaction changes."""

WORKER_ENDED = PlaybackProblem(
    "worker_ended",
    "The background worker was killed each time it tried this; perhaps this file is what kills it.",
)

_LANES_DUE = (
    sa.select(jobs.c.lane)
    .distinct()
    .where(
        IS_UNFINISHED,
        sa.or_(jobs.c.due_at <= sa.bindparam("now"), jobs.c.updated_at > sa.bindparam("set_back")),
    )
)
"""Built once, since it runs every second: SQLAlchemy takes as long to build it as to run it."""

_IN_ORDER = (jobs.c.priority, jobs.c.turn, jobs.c.queued_at)
"""The order in which jobs of a lane are claimed."""

_HAS_FAILED = sa.and_(IS_SHOWN, is_in([JobState.FAILED]))


@dataclass(frozen=True, slots=True)
class ListedJob:
    """A job with the name of its video, for lists."""

    job: Job
    filename: str


class JobRecords:
    """Each call is one transaction. Calls `wake` after each one that queues a job."""

    def __init__(self, database: Database, wake: Callable[[], None] = lambda: None) -> None:
        self._database = database
        self._wake = wake

    def enqueue(  # noqa: PLR0913 - a job has that many sides; most have names here
        self,
        upload_id: UploadId,
        step: str,
        argument: str = "",
        *,
        lane: Lane,
        priority: int,
        now: datetime,
        renew: bool = False,
    ) -> Job:
        """Queue a job for this step and argument; returns the new or the existing job.

        Lower priorities come first. A waiting job moves to the requested lane and priority if they
        are more urgent. With `renew`, a job that has ended is queued again, and a running job runs
        once more afterwards. Raises `UploadNotFound`, and `UploadGone` for an upload that was
        cancelled, expired or deleted.
        """
        key = key_of(upload_id, step, argument)
        wanted = {**key, **as_new(now), "lane": lane, "priority": priority}
        known = self.find(upload_id, step, argument)
        if known is not None and not asked_again(known, wanted, renew=renew):
            return known
        try:
            job = self._enqueue(key, wanted, renew=renew)
        except IntegrityError:  # Another process has just inserted it.
            job = self._enqueue(key, wanted, renew=renew)
        self._wake()
        return job

    def _enqueue(self, key: Values, wanted: Values, *, renew: bool) -> Job:
        with self._database.write() as connection:
            client = client_of(_sender_of_present(connection, key["subject"]))
            place = client, wanted["lane"], wanted["priority"]
            known = get_job(connection, key, for_update=True)
            if known is None:
                values = {**wanted, **as_last_of_client(connection, *place)}
                connection.execute(sa.insert(jobs).values(**values))
            elif changes := asked_again(known, wanted, renew=renew):
                if "lane" in changes:
                    changes = {**changes, **as_last_of_client(connection, *place)}
                change_jobs(connection, is_job(key), changes)
            return _require(get_job(connection, key))

    def claim(
        self,
        lane: Lane,
        worker: str,
        now: datetime,
        lease: timedelta,
        kinds: Collection[str],
        *,
        running: Collection[Job] = (),
    ) -> Job | None:
        """Claim the next job of a lane, of one of these kinds, until `now + lease`.

        Lowest priority first, then round robin over clients, then longest waiting first. Takes over
        jobs whose lease has ended; one that has used up its attempts fails instead. A worker has at
        most `Lane.most_of_client` jobs of one client at a time. Leaves out `running`, which the
        worker still runs though their leases may have ended while it was paused.
        """
        next_job = (
            sa.select(jobs)
            .where(
                IS_UNFINISHED,
                jobs.c.lane == lane,
                jobs.c.kind.in_(sorted(kinds)),
                is_due(now),
            )
            .order_by(*_IN_ORDER)
            .limit(1)
            .with_for_update(skip_locked=True)  # For PostgreSQL; SQLite has one writer at a time.
        )
        if lane.most_of_client < lane.threads:
            beside = jobs.alias()
            of_client = sa.select(sa.func.count()).where(
                IS_UNFINISHED,
                beside.c.lane == lane,
                beside.c.client == jobs.c.client,
                beside.c.worker == worker,
            )
            next_job = next_job.where(of_client.scalar_subquery() < lane.most_of_client)
        for job in running:
            key = key_of(job.subject, job.kind, job.argument)
            next_job = next_job.where(sa.not_(is_job(key)))
        with self._database.read() as connection:  # Usually there is none.
            if connection.execute(next_job).first() is None:
                return None
        # If a crash of the database undoes the claim, the job is claimed again, and the attempt
        # does not count.
        with self._database.write(is_durable=False) as connection:
            while (row := connection.execute(next_job).first()) is not None:
                job = from_row(row)
                key = key_of(job.subject, job.kind, job.argument)
                if job.state is JobState.RUNNING and job.due_at > now:
                    # From before the clock was set back: its holder, if it lives, renews it.
                    renewed = {"updated_at": now, "due_at": now + lease}
                    change_jobs(connection, is_job(key), renewed)
                    continue
                if not job.is_last_attempt:
                    change_jobs(connection, is_job(key), as_claimed(job, worker, now, lease))
                    return _require(get_job(connection, key))
                failed = as_ended(JobState.FAILED, now, WORKER_ENDED)
                change_jobs(connection, is_job(key), failed)
        return None

    def change_mark(self) -> Callable[[], object]:
        """Like `Database.change_mark`."""
        return self._database.change_mark()

    def lanes_due(self, now: datetime) -> set[Lane]:
        """Lanes with a job that may be claimed."""
        moments = {"now": now, "set_back": now + SET_BACK}
        with self._database.read() as connection:
            return {Lane(lane) for lane in connection.scalars(_LANES_DUE, moments)}

    def is_waiting(self, lane: Lane, now: datetime, *, before: int) -> bool:
        """Whether a lane has a job with a priority below `before` that could be claimed now."""
        query = sa.select(jobs.c.kind).where(
            IS_UNFINISHED,
            jobs.c.lane == lane,
            jobs.c.priority < before,
            is_due(now),
        )
        with self._database.read() as connection:
            return connection.execute(query.limit(1)).first() is not None

    def is_held(self, job: Job) -> bool:
        """Whether the worker that claimed `job` still holds it, and the video exists."""
        query = sa.select(jobs.c.kind).where(is_held(job))
        with self._database.read() as connection:
            return connection.execute(query).first() is not None

    def heartbeat(self, job: Job, progress: float, now: datetime, lease: timedelta) -> bool:
        """Renew the lease and store the progress; False if the job is lost and must stop now.

        A job is lost if it was cancelled, if another worker took it over, or if its video is gone.
        """
        values = {"progress": progress, "updated_at": now, "due_at": now + lease}
        return self._update(is_held(job), values) > 0

    def finish(self, job: Job, now: datetime, *, again_after: timedelta | None = None) -> bool:
        """Record that a claimed job is done; False if it is lost, as for `heartbeat`.

        A job renewed since its claim is queued again; a job of a `FLEETING` step is deleted. A
        periodic job is due `again_after`.
        """
        if again_after is not None:
            return self._update(is_held(job), {**as_new(now), "due_at": now + again_after}) > 0
        return self._end(job, {**as_ended(JobState.DONE, now), "progress": 1.0}, now)

    def fail(
        self, job: Job, problem: PlaybackProblem, now: datetime, *, retry_after: timedelta | None
    ) -> bool:
        """Record a failed attempt; False if the job is lost, as for `heartbeat`.

        The next attempt is due after `retry_after`. If that is None, or this was the last attempt,
        the job fails, unless it was renewed since its claim.
        """
        if retry_after is None or job.is_last_attempt:
            return self._end(job, as_ended(JobState.FAILED, now, problem), now)
        return self._update(is_held(job), as_waiting(problem, now, now + retry_after)) > 0

    def postpone(
        self,
        job: Job,
        problem: PlaybackProblem | None,
        now: datetime,
        pause: timedelta,
        *,
        lane: Lane | None = None,
        priority: int | None = None,
    ) -> bool:
        """Return a claimed job to the queue, for example because of a full disk.

        Can move it to another lane or priority. The attempt does not count. False if the job is
        lost, as for `heartbeat`.
        """
        values = as_waiting(problem, now, now + pause) | {"attempts": job.attempts - 1}
        lane, priority = lane or job.lane, job.priority if priority is None else priority
        with self._database.write() as connection:
            if (lane, priority) != (job.lane, job.priority):
                place = as_last_of_client(connection, job.client, lane, priority)
                values |= {"lane": lane, "priority": priority, **place}
            return change_jobs(connection, is_held(job), values) > 0

    def add(
        self,
        kind: str,
        clients: Mapping[str, str],
        lane: Lane,
        now: datetime,
        *,
        is_durable: bool = True,
    ) -> None:
        """Queue a job that is not about a video for each subject, unless it has one.

        `clients` are the subjects, each with its client; `is_durable` is as for `Database.write`.
        """
        with self._database.write(is_durable=is_durable) as connection:
            for subject, client in sorted(clients.items()):  # In one order on all nodes.
                row = {**key_of(subject, kind, ""), **as_new(now), "lane": lane, "priority": 0}
                row |= as_last_of_client(connection, client, lane, 0)
                insert_unless_known(connection, jobs, row)

    def hurry(self, kind: str, now: datetime, *, idle: timedelta = timedelta()) -> None:
        """Make a periodic job due now, if it waits, was idle for this time, and has not failed."""
        is_meant = sa.and_(
            is_job(key_of("", kind, "")),
            is_in([JobState.QUEUED]),
            jobs.c.due_at > now,
            jobs.c.updated_at <= now - idle,
            jobs.c.problem_code.is_(None),
        )
        with self._database.read() as connection:  # Usually it is not.
            if connection.execute(sa.select(jobs.c.kind).where(is_meant)).first() is None:
                return
        self._update(is_meant, {"due_at": now})

    def release(self, worker: str, now: datetime) -> int:
        """Requeue the jobs of a worker that stops; returns how many. Attempts do not count."""
        values = as_waiting(None, now, now) | {"attempts": jobs.c.attempts - 1}
        is_its_own = sa.and_(IS_UNFINISHED, jobs.c.worker == worker)
        return self._update(is_its_own, values)

    def cancel(self, upload_id: UploadId, step: str, argument: str, now: datetime) -> bool:
        """Cancel a waiting or running job; False if there is none. Its worker notices soon."""
        may_end = is_in(sources(JobState.CANCELLED))
        condition = sa.and_(is_job(key_of(upload_id, step, argument)), may_end)
        return self._update(condition, as_ended(JobState.CANCELLED, now)) > 0

    def retry(
        self, now: datetime, *, upload_id: UploadId | None = None, code: str | None = None
    ) -> int:
        """Requeue failed jobs, of all videos or one, with any problem or one; returns how many."""
        condition = _HAS_FAILED
        if upload_id is not None:
            condition &= jobs.c.subject == upload_id
        if code is not None:
            condition &= jobs.c.problem_code == code
        count = self._update(condition, as_new(now))
        if count:
            self._wake()
        return count

    def find(self, upload_id: UploadId, step: str, argument: str = "") -> Job | None:
        """Returns the job for this step and argument; None if there is none."""
        with self._database.read() as connection:
            return get_job(connection, key_of(upload_id, step, argument))

    def drop(
        self,
        upload_id: UploadId,
        step: str,
        *,
        prefix: str,
        states: Collection[JobState] = tuple(JobState),
    ) -> int:
        """Delete a step's jobs with the argument `prefix` or one below it, such as `prefix/3`.

        Returns how many jobs in these states it deleted. Workers that run one notice soon.
        """
        argument = jobs.c.argument
        is_meant = sa.or_(argument == prefix, argument.startswith(f"{prefix}/", autoescape=True))
        is_of = sa.and_(jobs.c.subject == upload_id, jobs.c.kind == step)
        with self._database.write() as connection:
            found = connection.execute(sa.delete(jobs).where(is_of, is_meant, is_in(states)))
            return found.rowcount

    def drop_beyond(
        self, most: int, step: str, lane: Lane, state: JobState = JobState.QUEUED
    ) -> None:
        """Delete a step's jobs in this lane and state beyond the first `most`."""
        of_state = sa.select(jobs).where(
            IS_UNFINISHED if state is JobState.QUEUED else IS_SHOWN,
            jobs.c.lane == lane,
            jobs.c.kind == step,
            is_in([state]),
        )
        behind = of_state.order_by(*_IN_ORDER).offset(most)
        with self._database.read() as connection:  # Usually there are none.
            found = [from_row(row) for row in connection.execute(behind.limit(BATCH))]
        if not found:
            return
        keys = [is_job(key_of(job.subject, job.kind, job.argument)) for job in found]
        with self._database.write() as connection:
            connection.execute(sa.delete(jobs).where(is_in([state]), sa.or_(*keys)))

    def of_step(self, upload_ids: Collection[UploadId], step: str) -> dict[UploadId, Job]:
        """Returns these videos' jobs for the step without an argument, where there are any."""
        is_wanted = sa.and_(jobs.c.kind == step, jobs.c.argument == "")
        query = sa.select(jobs).where(is_wanted, jobs.c.subject.in_(upload_ids))
        with self._database.read() as connection:
            found = map(from_row, connection.execute(query))
            return {job.upload_id: job for job in found}

    def of(self, upload_id: UploadId, step: str | None = None) -> list[Job]:
        """All jobs of a video, or those of one step, sorted by step and argument."""
        query = sa.select(jobs).where(jobs.c.subject == upload_id)
        if step is not None:
            query = query.where(jobs.c.kind == step)
        with self._database.read() as connection:
            found = connection.execute(query.order_by(jobs.c.kind, jobs.c.argument))
            return [from_row(row) for row in found]

    def counts(self) -> dict[tuple[Lane, JobState], int]:
        """The number of queued, running and failed jobs about videos in each lane, with zeros."""
        columns = (jobs.c.lane, jobs.c.state)
        query = (
            sa.select(*columns, sa.func.count().label("number")).where(IS_SHOWN).group_by(*columns)
        )
        with self._database.read() as connection:
            found = {(row.lane, row.state): row.number for row in connection.execute(query)}
        return {
            (lane, state): found.get((lane, state), 0) for lane in MEDIA_LANES for state in SHOWN
        }

    def unfinished(self, limit: int) -> list[ListedJob]:
        """Running jobs about videos, then waiting ones, most urgent lane first.

        Reads only the head of each lane, regardless of the queue's length.
        """
        is_shown = sa.and_(IS_SHOWN, jobs.c.lane.in_(MEDIA_LANES))
        running = sa.select(jobs).where(is_shown, is_in([JobState.RUNNING]))
        waiting = sa.select(jobs).where(IS_UNFINISHED, is_in([JobState.QUEUED]))
        heads = [waiting.where(jobs.c.lane == lane).order_by(*_IN_ORDER) for lane in MEDIA_LANES]
        return self._listed(*(query.limit(limit) for query in (running, *heads)))[:limit]

    def failures(self, limit: int) -> list[ListedJob]:
        """Jobs that have failed permanently, latest first."""
        failed = sa.select(jobs).where(_HAS_FAILED).order_by(jobs.c.updated_at.desc())
        return self._listed(failed.limit(limit))

    def _listed(self, *queries: sa.Select[Any]) -> list[ListedJob]:
        with self._database.read() as connection:
            found = [row for query in queries for row in connection.execute(query)]
            listed = [from_row(row) for row in found]
            ids = {job.subject for job in listed}
            named = sa.select(uploads.c.id, uploads.c.filename).where(uploads.c.id.in_(ids))
            names = {row.id: row.filename for row in connection.execute(named)}
        # A video may be removed between the two queries.
        return [ListedJob(job, names.get(job.subject, "")) for job in listed]

    def _update(self, condition: Condition, values: Values) -> int:
        with self._database.write() as connection:
            return change_jobs(connection, condition, values)

    def _end(self, job: Job, values: Values, now: datetime) -> bool:
        """End a job, or queue it again if it was renewed since its claim."""
        is_renewed = sa.and_(is_held(job), jobs.c.is_renewed)
        with self._database.write() as connection:
            if change_jobs(connection, is_renewed, as_new(now)) > 0:
                return True
            if values["state"] is JobState.DONE and job.kind in FLEETING:
                return connection.execute(sa.delete(jobs).where(is_held(job))).rowcount > 0
            return change_jobs(connection, is_held(job), values) > 0


def _sender_of_present(connection: sa.Connection, upload_id: UploadId) -> str:
    query = sa.select(uploads.c.state, uploads.c.sender).where(uploads.c.id == upload_id)
    # The lock keeps the record, which the job does not refer to, from being removed before it.
    locked = query.with_for_update(read=True, key_share=True)
    upload = connection.execute(locked).first()
    if upload is None:
        raise UploadNotFound("No upload has this id.")
    if UploadState(upload.state) in GONE:
        raise UploadGone(f"The upload was {upload.state}.")
    sender: str = upload.sender
    return sender


def _require(job: Job | None) -> Job:
    if job is None:
        raise UploadGone("The jobs of the video were dropped.")
    return job
