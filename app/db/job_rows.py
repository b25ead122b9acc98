"""Jobs as rows: the conditions for changes, and the values of each change."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, func, insert, or_, select, update

from app.core.jobs import ENDED, Job, JobState, Lane
from app.core.lifecycle import GONE
from app.core.playback import PlaybackProblem
from app.core.upload import UploadId
from app.db.tables import IS_UNFINISHED, media_jobs, uploads

LONGEST_WAIT = timedelta(hours=1)
"""Longest delay of a job. One due later dates from before the clock was set back: it is due now."""

Values = Mapping[str, Any]
Condition = ColumnElement[bool]


def key_of(upload_id: UploadId, step: str, argument: str) -> dict[str, Any]:
    """The columns that identify a job."""
    return {"upload_id": upload_id, "step": step, "argument": argument}


def is_job(key: Values) -> Condition:
    """Whether a row has this key."""
    return and_(*(media_jobs.c[name] == value for name, value in key.items()))


def is_in(states: Collection[JobState]) -> Condition:
    """Whether a job is in one of these states."""
    return media_jobs.c.state.in_(sorted(states))


def is_due(now: datetime) -> Condition:
    """Whether a job may be claimed: its delay or its lease has ended."""
    return or_(media_jobs.c.due_at <= now, media_jobs.c.due_at > now + LONGEST_WAIT)


def is_held(job: Job) -> Condition:
    """Whether the row still has the claim of `job`, and its video exists."""
    is_present = (
        select(uploads.c.id)
        .where(uploads.c.id == media_jobs.c.upload_id, uploads.c.state.not_in(sorted(GONE)))
        .exists()
    )
    return and_(
        is_job(key_of(job.upload_id, job.step, job.argument)),
        is_in([JobState.RUNNING]),
        media_jobs.c.worker == job.worker,
        media_jobs.c.attempts == job.attempts,
        is_present,
    )


def client_of(sender: str) -> str:
    """Returns the client of an upload's `sender`; all users of an upload link are one client."""
    return ":".join(sender.split(":")[:2])


def as_last_of_client(
    connection: Connection, client: str, lane: Lane, priority: int
) -> dict[str, Any]:
    """Values of a job that is queued behind the other jobs of its client.

    Its turn is that of the first job in the queue, or the one after the client's last job. So the
    next job of each client runs before the second job of any client.
    """
    is_beside = and_(IS_UNFINISHED, media_jobs.c.lane == lane, media_jobs.c.priority == priority)
    turns = select(func.min(media_jobs.c.turn)).where(is_beside)
    own = select(func.max(media_jobs.c.turn)).where(is_beside, media_jobs.c.client == client)
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


def get(connection: Connection, key: Values, *, for_update: bool = False) -> Job | None:
    """Returns the job with this key; None if there is none."""
    query = select(media_jobs).where(is_job(key))
    row = connection.execute(query.with_for_update() if for_update else query).first()
    return None if row is None else from_row(row)


def change(connection: Connection, condition: Condition, values: Values) -> int:
    """Update the rows that match the condition; returns how many."""
    return connection.execute(update(media_jobs).where(condition).values(**values)).rowcount


def queue_all(
    connection: Connection, upload_ids: Collection[UploadId], step: str, wanted: Values
) -> None:
    """Renew or queue this step for several videos, like `JobRecords.enqueue` for one.

    `wanted` are the values of a new job besides its key and its turn. Takes at most seven
    statements for videos of one client, since it holds the write lock that uploads wait for.
    Renewed jobs keep their turns.
    """
    of_step = and_(media_jobs.c.step == step, media_jobs.c.argument == "")
    query = select(media_jobs).where(of_step, media_jobs.c.upload_id.in_(upload_ids))
    known = {row.upload_id: from_row(row) for row in connection.execute(query.with_for_update())}
    new = [upload_id for upload_id in upload_ids if upload_id not in known]
    if new:
        senders = select(uploads.c.id, uploads.c.sender).where(uploads.c.id.in_(new))
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
        connection.execute(insert(media_jobs), added)
    alike: dict[tuple[tuple[str, Any], ...], list[UploadId]] = {}
    for upload_id, job in known.items():
        changes = asked_again(job, wanted, renew=True)
        alike.setdefault(tuple(changes.items()), []).append(upload_id)
    for values, changed in alike.items():
        if values:
            change(connection, and_(of_step, media_jobs.c.upload_id.in_(changed)), dict(values))


def from_row(row: Any) -> Job:
    """Returns the job in a row of the table."""
    values = dict(row._mapping)
    code, detail = values.pop("problem_code"), values.pop("problem_detail")
    values["problem"] = None if code is None else PlaybackProblem(code, detail)
    values["lane"], values["state"] = Lane(values["lane"]), JobState(values["state"])
    return Job(**values)
