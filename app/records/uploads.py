"""The records of uploads in a relational database, through SQLAlchemy Core."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from app.core.errors import LinkFull, NoRoom, TooLarge, TooManyGaps, UploadNotFound
from app.core.lifecycle import ACTIVE, IllegalTransition, UploadState
from app.core.ranges import ByteRange, RangeSet
from app.core.upload import Upload, UploadId, UploadKind, UploadPart
from app.core.video_list import Position, VideoList, VideoOrder, sort_form
from app.db.engine import Database
from app.db.sql import SharedUpdates
from app.db.tables import (
    HAS_SENDER,
    IS_RESERVING,
    IS_SHA256_WANTED,
    IS_VIDEO,
    UPLOAD,
    Instant,
    jobs,
    uploads,
)
from app.db.tables import parts as parts_table
from app.records import statements

CREATED = "created"

Listener = Callable[[str], None]
"""Called with `CREATED`, or the state that `move` set, after the transaction commits.

Of several callers that try the same step only one succeeds, so each step is reported once, by the
process that took it."""

Observer = Callable[[sa.Connection, Upload | None, Upload | None], None]
"""Called with an upload before and after a change, in the transaction of that change; None if the
upload did not exist before or does not exist after. If it raises, the change is rolled back. Not
called for received bytes unless they change the reservation: that would cost time per chunk."""

AddRows = Callable[[sa.Connection], None]
"""Adds rows of a store to the transaction of a change; what it raises undoes the change."""

_TICK = timedelta(microseconds=1)

_VIDEOS = sa.select(*UPLOAD).where(IS_VIDEO)

_whole = uploads.alias()
_IS_BEING_CONCATENATED = (
    sa.select(parts_table.c.upload_id)
    .join(_whole, _whole.c.id == parts_table.c.upload_id)
    .where(parts_table.c.part_id == uploads.c.id, _whole.c.state == UploadState.VERIFYING)
    .exists()
)


@cache
def _videos_in_order(order: VideoOrder, *, is_of_owner: bool, is_after: bool) -> sa.Select[Any]:
    """`count` videos, those of `owner` alone, and those after a position; built once."""
    key, query = uploads.c[order.column], _VIDEOS
    if is_of_owner:
        query = query.where(uploads.c.owner == sa.bindparam("owner"))
    if is_after:
        place = sa.tuple_(key, uploads.c.id)
        start = sa.tuple_(sa.bindparam("key", type_=key.type), sa.bindparam("upload_id"))
        query = query.where(place < start if order.is_descending else place > start)
    places = [column.desc() if order.is_descending else column for column in (key, uploads.c.id)]
    return query.order_by(*places).limit(sa.bindparam("count"))


def no_listener(_step: str) -> None:
    """For processes that do not count steps."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The latest files received from a sender, and the total number of files and bytes.

    `unfinished` is the number of the sender's uploads in progress.
    """

    files: list[Upload]
    count: int
    bytes: int
    unfinished: int


class UploadRecords:
    """Each call is one transaction; concurrent callers see all of it or nothing."""

    def __init__(
        self,
        database: Database,
        listener: Listener = no_listener,
        observers: Sequence[Observer] = (),
    ) -> None:
        self._database = database
        self._tell = listener
        self._observers = observers
        self._together = SharedUpdates(self._store_unchanged)

    def add(
        self, upload: Upload, parts: Sequence[UploadPart] = (), *, renews_key: bool = False
    ) -> tuple[Upload, bool]:
        """Store a new upload with its ranges unless its owner has one with the same client key.

        `parts` are those of a concatenation, in order. With `renews_key`, the key is first taken
        from an upload that has ended, as by `release_key`.

        Returns the stored upload and whether it is the new one.
        """
        try:
            return self._add(upload, parts, renews_key=renews_key)
        except IntegrityError:
            existing = self.find(upload.owner, upload.client_key)
        if existing is not None:
            return existing, False
        # Another request has just removed it for lack of space: the key is free.
        return self._add(upload, parts, renews_key=renews_key)

    def _add(
        self, upload: Upload, parts: Sequence[UploadPart], *, renews_key: bool
    ) -> tuple[Upload, bool]:
        with self._database.write() as connection:
            if renews_key:
                statements.release_key(connection, upload.owner, upload.client_key)
            statements.add(connection, upload)
            statements.add_parts(connection, upload, parts)
            self._observe_new(connection, upload)
        self._tell(CREATED)
        return upload, True

    def add_all(self, uploads: Sequence[Upload]) -> list[tuple[Upload, bool]]:
        """Store several uploads like `add` with `renews_key`; all or none.

        Of two with the same key, only the first is stored.
        """
        with self._database.write() as connection:
            stored = statements.add_all_unless_known(connection, uploads)
            new = [upload for upload, is_new in stored if is_new]
            for upload in new:
                self._observe(connection, None, upload)
        for _ in new:
            self._tell(CREATED)
        return stored

    def release_key(self, owner: str, client_key: str) -> None:
        """Take the key from an upload that has ended, so that a new upload can use it.

        Does nothing if the upload with that key has not ended, or there is none.
        """
        with self._database.write() as connection:
            statements.release_key(connection, owner, client_key)

    def remove(self, upload_id: UploadId, *, only_if_empty: bool = False) -> bool:
        """Delete the record of an upload and its jobs, if there is one.

        With `only_if_empty`, keeps an upload that has received bytes or is complete, and returns
        False.
        """
        with self._database.write() as connection, suppress(UploadNotFound):
            before = statements.get(connection, upload_id, for_update=True)
            if only_if_empty and (before.received or before.state is not UploadState.RECEIVING):
                return False
            # In the order of `MediaRecords.forget`: the upload's playback goes with it.
            connection.execute(sa.delete(jobs).where(jobs.c.subject == upload_id))
            connection.execute(sa.delete(uploads).where(uploads.c.id == upload_id))
            self._observe(connection, before, None)
        return True

    def get(self, upload_id: UploadId) -> Upload:
        """The upload; raises `UploadNotFound`."""
        with self._database.read() as connection:
            return statements.get(connection, upload_id)

    def get_all(self, upload_ids: Collection[UploadId]) -> dict[UploadId, Upload]:
        """Returns the uploads with these ids; unknown ids are left out."""
        found = self._list(sa.select(*UPLOAD).where(uploads.c.id.in_(upload_ids)))
        return {upload.id: upload for upload in found}

    def find(self, owner: str, client_key: str) -> Upload | None:
        """Returns the owner's upload with this client key; None if there is none."""
        key = {"owner": owner, "client_key": client_key}
        with self._database.read() as connection:
            return statements.first(connection, statements.BY_CLIENT_KEY, key)

    def find_fingerprint(
        self, owner: str, fingerprint: str, length: int, *, sender: str | None = None
    ) -> Upload | None:
        """Returns the owner's newest unfinished or complete upload of a file.

        With `sender`, the newest from that sender.
        """
        file: dict[str, object] = {"owner": owner, "fingerprint": fingerprint, "length": length}
        statement = statements.BY_FINGERPRINT
        if sender is not None:
            file["sender"], statement = sender, statements.BY_FINGERPRINT_AND_SENDER
        with self._database.read() as connection:
            return statements.first(connection, statement, file)

    def find_fingerprints(
        self, owner: str, files: Collection[tuple[str, int]], *, sender: str | None = None
    ) -> dict[tuple[str, int], Upload]:
        """Like `find_fingerprint`, for several files with their lengths, in one query."""
        query = sa.select(*UPLOAD).where(
            uploads.c.owner == owner,
            uploads.c.fingerprint.in_({fingerprint for fingerprint, _ in files}),
            uploads.c.state.in_(statements.USABLE),
        )
        if sender is not None:
            query = query.where(uploads.c.sender == sender)
        found = {  # The newest of several.
            (upload.fingerprint or "", upload.length): upload
            for upload in self._list(query.order_by(uploads.c.created_at))
        }
        return {file: found[file] for file in files if file in found}

    def add_received(
        self,
        upload: Upload,
        span: ByteRange,
        now: datetime,
        *,
        crc32c: int | None = None,
        rows: AddRows | None = None,
    ) -> Upload:
        """Record that the bytes of `span` are durable; the last missing bytes start verification.

        `upload` is as the caller last read it; if that is current, a single statement suffices.
        `rows` adds the store's rows for these bytes, in the transaction that holds the lock of the
        upload's row; what it raises undoes the change.
        Raises `UploadGone` if the upload has since been cancelled or expired. For bytes that an
        upload through a link has not reserved, may raise `QuotaExceeded`, `LinkFull` or
        `TooMuchReserved`.
        """

        def with_received(found: Upload, *, is_ahead: bool) -> Upload:
            present = found.require_present()
            return present.with_received(span, now, is_ahead=is_ahead, crc32c=crc32c)

        after = None
        with suppress(TooManyGaps):  # Another request may have closed gaps since.
            after = with_received(upload, is_ahead=True)
        is_reserved = after is not None and _reservation(after) == _reservation(upload)
        if after and is_reserved and self._store_if_unchanged(after, upload, rows):
            return after
        return self._apply_locked(upload, with_received, rows=rows)

    def reserve(self, upload: Upload, more_bytes: int, now: datetime) -> Upload:
        """Reserve space for the next bytes of an upload through a link.

        Raises like `add_received` unless all `more_bytes` fit now. Does nothing for other uploads:
        they hold their whole length already.
        """
        needed = upload.received.total + more_bytes
        if upload.reserved is None or (needed <= upload.reserved and not upload.is_stalled):
            return upload

        def reserving(found: Upload, *, is_ahead: bool) -> Upload:
            is_receiving = found.require_present().state is UploadState.RECEIVING
            return found.reserving(now, is_ahead=is_ahead) if is_receiving else found

        return self._apply_locked(upload, reserving, claimed_bytes=needed)

    def _apply_locked(
        self,
        upload: Upload,
        change: _Reserving,
        *,
        claimed_bytes: int = 0,
        rows: AddRows | None = None,
    ) -> Upload:
        """Apply `change` to the row as it is now, locked; if space is short, reserve none ahead.

        For uploads that another request has changed, and for reservations that must grow.
        """
        for is_ahead in (True, False):
            try:
                return self._change(
                    upload.id,
                    partial(change, is_ahead=is_ahead),
                    claimed_bytes=claimed_bytes,
                    rows=rows,
                )
            except (NoRoom, LinkFull, TooLarge):
                if upload.reserved is None or not is_ahead:
                    raise
        raise AssertionError("one of the two has returned or raised")

    def stall(self, upload_id: UploadId, cutoff: datetime) -> None:
        """Release what an upload through a link reserves beyond its bytes, if idle since `cutoff`.

        Does nothing if the upload was active since then or has ended.
        """
        with suppress(UploadNotFound):
            self._change(
                upload_id, lambda found: found.stalled() if found.active_at <= cutoff else found
            )

    def reserving(self, limit: int, *, idle_since: datetime) -> list[Upload]:
        """Uploads through links that reserve more than their bytes and are idle since that time."""
        return self._list(
            sa.select(*UPLOAD)
            .where(IS_RESERVING, uploads.c.state == UploadState.RECEIVING)
            .where(uploads.c.is_stalled == sa.false(), uploads.c.active_at <= idle_since)
            .order_by(uploads.c.active_at)
            .limit(limit)
        )

    def unfinished_of(self, senders: str, limit: int) -> list[Upload]:
        """Uploads of senders with this prefix that still need bytes or must be concatenated.

        Leaves out the parts of a file in `verifying`: they are about to become that file.
        """
        is_theirs = (uploads.c.sender >= senders) & (uploads.c.sender < senders + "~")
        needs_more = uploads.c.state.in_([UploadState.RECEIVING, UploadState.HELD])
        found = sa.select(*UPLOAD).where(HAS_SENDER, is_theirs, needs_more, ~_IS_BEING_CONCATENATED)
        return self._list(found.limit(limit))

    def add_parts(self, upload_id: UploadId, length: int, now: datetime) -> Upload:
        """Record that all parts of a concatenation are held, and move it to `verifying`.

        `length` is their total length in bytes. Does nothing if the upload has moved on already;
        raises `UploadGone` if it has ended.
        """

        def with_parts(found: Upload) -> Upload:
            is_waiting = found.require_present().state is UploadState.RECEIVING
            return found.with_parts(length, now) if is_waiting else found

        return self._change(upload_id, with_parts)

    def parts(self, upload_id: UploadId) -> list[UploadPart]:
        """The parts of a concatenation, in order; empty for any other upload."""
        query = (
            sa.select(parts_table)
            .where(parts_table.c.upload_id == upload_id)
            .order_by(parts_table.c.position)
        )
        with self._database.read() as connection:
            return [UploadPart(row.part_id, row.reference) for row in connection.execute(query)]

    def waiting_for(self, part_id: UploadId) -> list[Upload]:
        """Concatenations that contain this upload and are not published yet."""
        return self._wholes_of(part_id, UploadState.RECEIVING, UploadState.VERIFYING)

    def made_of(self, part_id: UploadId) -> list[Upload]:
        """Complete concatenations that contain this upload."""
        return self._wholes_of(part_id, UploadState.COMPLETE)

    def forget_received(self) -> None:
        """Mark every unfinished upload as empty and move all of them back to `receiving`."""
        with self._database.write() as connection:
            connection.execute(
                sa.update(uploads)
                .where(uploads.c.state.in_(ACTIVE))
                .values(received=RangeSet(), sums=None, crc32c=None, progress=0)
            )
            connection.execute(
                sa.update(uploads)
                .where(uploads.c.state.in_([UploadState.HELD, UploadState.VERIFYING]))
                .values(state=UploadState.RECEIVING)
            )

    def touch(self, upload_id: UploadId, now: datetime) -> None:
        """Record that an unfinished upload was active at `now`, unless it was active later.

        Does nothing if the upload has ended or is unknown.
        """
        with self._database.write() as connection:
            connection.execute(
                sa.update(uploads)
                .where(
                    uploads.c.id == upload_id,
                    uploads.c.state.in_(ACTIVE),
                    uploads.c.active_at < now,
                )
                .values(active_at=now)
            )

    def shift_activity(self, later: timedelta, now: datetime, *, videos_later: timedelta) -> None:
        """Shift the last activity of videos by `videos_later`, of all other uploads by `later`.

        Both may be zero. Afterwards no activity is later than `now`. A video's last activity is its
        publication.
        """
        active_at = uploads.c.active_at
        with self._database.write() as connection:
            for shift, of_videos in ((later, False), (videos_later, True)):
                states = [
                    each for each in UploadState if (each is UploadState.COMPLETE) == of_videos
                ]
                change = sa.update(uploads).where(
                    uploads.c.state.in_(states)
                )  # The index needs a state.
                if not shift:
                    change = change.where(active_at > now)
                shifted = sa.type_coerce(active_at, sa.BigInteger) + shift // timedelta(
                    microseconds=1
                )
                latest = sa.case((active_at > now - shift, sa.literal(now, Instant)), else_=shifted)
                connection.execute(change.values(active_at=latest))

    def declare_length(self, upload_id: UploadId, length: int, now: datetime) -> Upload:
        """Record the length of an upload created without one; may move it to `verifying`.

        Raises `UploadConflict` if it has another length, `UploadGone` if it has ended.
        """
        return self._change(
            upload_id,
            lambda found: found.require_present().with_length(length, now),
            claimed_bytes=length,
        )

    def move(
        self,
        upload_id: UploadId,
        target: UploadState,
        now: datetime,
        *,
        idle_since: datetime | None = None,
    ) -> Upload:
        """Move the upload to another state; of several concurrent callers exactly one succeeds.

        Raises `IllegalTransition` if the state table does not allow the step, or if the upload was
        active after `idle_since`.
        """

        def moved(found: Upload) -> Upload:
            if idle_since is not None and found.active_at > idle_since:
                raise IllegalTransition(f"the upload was active at {found.active_at}")
            return found.moved_to(target, now)

        after = self._change(upload_id, moved)
        self._tell(after.state)
        return after

    def move_all(
        self, upload_ids: Sequence[UploadId], target: UploadState, now: datetime
    ) -> list[Upload]:
        """Move several uploads to the same state, all or none; raises like `move`.

        Their times are a microsecond apart, so that lists sorted by time keep their order.
        """
        with self._database.write() as connection:
            if self._database.is_remote:
                statements.lock(connection, upload_ids)
            moved = [
                self._apply(
                    connection,
                    upload_id,
                    partial(Upload.moved_to, target=target, now=now + _TICK * number),
                )
                for number, upload_id in enumerate(upload_ids)
            ]
        for upload in moved:
            self._tell(upload.state)
        return moved

    def rename(self, upload_id: UploadId, filename: str) -> Upload:
        """Rename an upload; raises `UploadGone` if it has ended."""
        with self._database.write() as connection:
            before = statements.get(connection, upload_id, for_update=True).require_present()
            connection.execute(
                sa.update(uploads)
                .where(uploads.c.id == upload_id)
                .values(statements.names(filename))
            )
            return replace(before, filename=filename)

    def forget_key(self, upload_id: UploadId) -> None:
        """Free the client key of an upload; its id becomes its key."""
        self._set(upload_id, client_key=upload_id)

    def set_sha256(self, upload_id: UploadId, digest: str) -> None:
        """Store the SHA-256 (hexadecimal) of a complete upload."""
        self._set(upload_id, sha256=digest, is_sha256_wanted=False)

    def want_sha256(self, upload_ids: Collection[UploadId]) -> None:
        """Put uploads at the front of `without_sha256`, even those that have a CRC32C."""
        with self._database.write() as connection:
            connection.execute(
                sa.update(uploads)
                .where(uploads.c.id.in_(upload_ids), uploads.c.sha256.is_(None))
                .values(is_sha256_wanted=True)
            )

    def sent(self, owner: str, sender: str, limit: int) -> Sent:
        """Returns totals of what a sender has sent, and the latest `limit` files received."""
        files = sa.select(*UPLOAD).where(
            uploads.c.owner == owner,
            uploads.c.sender == sender,
            uploads.c.kind != UploadKind.PARTIAL,
        )
        arrived = files.where(  # Including those deleted later.
            uploads.c.state.in_((UploadState.COMPLETE, UploadState.DELETED)),
            uploads.c.published_at.is_not(None),
        )
        if sender:
            arrived = arrived.where(HAS_SENDER)  # Has an index.
        waiting = files.where(uploads.c.state.in_(ACTIVE))
        with self._database.read() as connection:
            count, length = connection.execute(_totals_of(arrived)).one()
            unfinished, _ = connection.execute(_totals_of(waiting)).one()
        latest = arrived.order_by(uploads.c.published_at.desc(), uploads.c.id).limit(limit)
        return Sent(self._list(latest), count, int(length or 0), unfinished)

    def active(self, owner: str | None, limit: int, *, sender: str | None = None) -> list[Upload]:
        """Unfinished uploads, newest first; of all owners or senders where those are None."""
        query = sa.select(*UPLOAD).where(uploads.c.state.in_(ACTIVE))
        if owner is not None:
            query = query.where(uploads.c.owner == owner)
        if sender is not None:
            query = query.where(uploads.c.sender == sender)
        return self._list(query.order_by(uploads.c.created_at.desc(), uploads.c.id).limit(limit))

    def arriving(self, since: datetime, limit: int) -> list[Upload]:
        """Uploads of all owners that have received bytes since then; latest first."""
        return self._list(
            sa.select(*UPLOAD)
            .where(uploads.c.state == UploadState.RECEIVING, uploads.c.active_at >= since)
            .order_by(uploads.c.active_at.desc())
            .limit(limit)
        )

    def has_changed(self, since: datetime) -> bool:
        """Whether any upload has received bytes or was completed since then."""
        states = (UploadState.RECEIVING, UploadState.VERIFYING, UploadState.COMPLETE)
        query = sa.select(uploads.c.id).where(
            uploads.c.state.in_(states), uploads.c.active_at >= since
        )
        with self._database.read() as connection:
            return connection.execute(query.limit(1)).first() is not None

    def count_active(self) -> dict[UploadState, int]:
        """The number of unfinished uploads in each state, of all owners."""
        states = uploads.c.state
        query = sa.select(states, sa.func.count().label("number")).where(states.in_(ACTIVE))
        with self._database.read() as connection:
            rows = connection.execute(query.group_by(states)).all()
        found = {row.state: row.number for row in rows}
        return {state: found.get(state, 0) for state in sorted(ACTIVE)}

    def videos(
        self, owner: str | None, wanted: VideoList, limit: int, after: Position | None = None
    ) -> list[Upload]:
        """Complete uploads that match `wanted`, in its order, after a position.

        Without an owner, those of all owners.
        """
        query = _videos_in_order(
            wanted.order, is_of_owner=owner is not None, is_after=after is not None
        )
        for word in wanted.words:
            query = query.where(uploads.c.search_name.contains(word, autoescape=True))
        values: dict[str, Any] = {"owner": owner, "count": limit}
        if after is not None:
            values |= {"key": after.key, "upload_id": after.upload_id}
        return self._list(query, values)

    def beside(self, owner: str, stem: str, endings: Sequence[str], *, limit: int) -> list[Upload]:
        """The owner's complete uploads named `stem` plus an ending, sorted by name.

        There may be a part between the two that begins with a letter: "film.srt" and "film.en.srt"
        match. Ignores case and accents.
        """
        first, last = sort_form(f"{stem}.a"), sort_form(f"{stem}.z") + b"\xff"
        has_ending = [uploads.c.search_name.endswith(each, autoescape=True) for each in endings]
        is_near = uploads.c.sort_name.between(first, last)
        query = _VIDEOS.where(uploads.c.owner == owner, is_near, sa.or_(*has_ending))
        return self._list(query.order_by(uploads.c.sort_name, uploads.c.id).limit(limit))

    def older_videos(self, owner: str, cutoff: datetime, *, limit: int) -> list[Upload]:
        """The owner's complete uploads last active at or before `cutoff`; oldest first."""
        active_at = uploads.c.active_at
        query = _VIDEOS.where(uploads.c.owner == owner, active_at <= cutoff)
        return self._list(query.order_by(active_at, uploads.c.id).limit(limit))

    def in_state(
        self, state: UploadState, limit: int, *, idle_since: datetime | None = None
    ) -> list[Upload]:
        """Uploads in a state, idle since that time; longest idle first."""
        query = sa.select(*UPLOAD).where(uploads.c.state == state)
        if idle_since is not None:
            query = query.where(uploads.c.active_at <= idle_since)
        return self._list(query.order_by(uploads.c.active_at).limit(limit))

    def to_expire(self, state: UploadState, limit: int, *, idle_since: datetime) -> list[Upload]:
        """Like `in_state`, without the parts of a file in `verifying`."""
        query = sa.select(*UPLOAD).where(uploads.c.state == state, ~_IS_BEING_CONCATENATED)
        query = query.where(uploads.c.active_at <= idle_since)
        return self._list(query.order_by(uploads.c.active_at).limit(limit))

    def to_publish(
        self, limit: int, *, idle_since: datetime, now: datetime, longest: timedelta
    ) -> list[Upload]:
        """Uploads in `verifying`, idle since that time, whose next attempt is due.

        Those never tried come first. No attempt is due later than `longest` from `now`, even if the
        clock was set back.
        """
        retry_at, active_at = uploads.c.retry_at, uploads.c.active_at
        return self._list(
            sa.select(*UPLOAD)
            .where(uploads.c.state == UploadState.VERIFYING, active_at <= idle_since)
            .where(sa.or_(retry_at.is_(None), retry_at <= now, retry_at > now + longest))
            .order_by(retry_at.is_not(None), retry_at, active_at)
            .limit(limit)
        )

    def retry_at(self, upload_id: UploadId, moment: datetime) -> None:
        """Exclude an upload from `to_publish` until then."""
        self._set(upload_id, retry_at=moment)

    def without_sha256(self, limit: int, *, idle_since: datetime | None = None) -> list[Upload]:
        """Complete uploads without a SHA-256: first those wanted, then those without a CRC32C.

        If `idle_since` is given, then those with a CRC32C that are idle since that time. Each group
        is oldest first.
        """
        missing = (
            sa.select(*UPLOAD)
            .where(uploads.c.state == UploadState.COMPLETE, uploads.c.sha256.is_(None))
            .order_by(uploads.c.active_at)
        )
        kinds = [missing.where(IS_SHA256_WANTED), missing.where(uploads.c.crc32c.is_(None))]
        if idle_since is not None:
            kinds.append(missing.where(uploads.c.active_at <= idle_since))
        found: dict[UploadId, Upload] = {}
        for kind in kinds:
            if len(found) < limit:
                found |= {upload.id: upload for upload in self._list(kind.limit(limit))}
        return list(found.values())[:limit]

    def states(self, upload_ids: Collection[UploadId]) -> dict[UploadId, UploadState]:
        """Returns the states of the given uploads; unknown ids are left out."""
        query = sa.select(uploads.c.id, uploads.c.state).where(uploads.c.id.in_(upload_ids))
        with self._database.read() as connection:
            return {UploadId(row.id): UploadState(row.state) for row in connection.execute(query)}

    def _wholes_of(self, part_id: UploadId, *states: UploadState) -> list[Upload]:
        made_of_it = sa.select(parts_table.c.upload_id).where(parts_table.c.part_id == part_id)
        query = sa.select(*UPLOAD).where(uploads.c.id.in_(made_of_it), uploads.c.state.in_(states))
        return self._list(query)

    def _set(self, upload_id: UploadId, **values: object) -> None:
        with self._database.write() as connection:
            connection.execute(sa.update(uploads).where(uploads.c.id == upload_id).values(**values))

    def _list(
        self, query: sa.Select[Any], values: Mapping[str, object] | None = None
    ) -> list[Upload]:
        with self._database.read() as connection:
            return [statements.from_row(row) for row in connection.execute(query, values)]

    def _change(
        self,
        upload_id: UploadId,
        change: Callable[[Upload], Upload],
        *,
        claimed_bytes: int = 0,
        rows: AddRows | None = None,
    ) -> Upload:
        """Like `_apply`, in a transaction of its own."""
        with self._database.write() as connection:
            return self._apply(
                connection, upload_id, change, claimed_bytes=claimed_bytes, rows=rows
            )

    def _apply(
        self,
        connection: sa.Connection,
        upload_id: UploadId,
        change: Callable[[Upload], Upload],
        *,
        claimed_bytes: int = 0,
        rows: AddRows | None = None,
    ) -> Upload:
        """Apply `change` to the upload and store the result; if it raises, nothing is changed.

        Observers must also accept that it holds `claimed_bytes`, even if it reserves less.
        """
        before = statements.get(connection, upload_id, for_update=True)
        after = change(before)
        if after is not before:
            statements.store(connection, after)
            if rows is not None:
                rows(connection)
            claim = after.claiming(claimed_bytes) if claimed_bytes else after
            if _what_counts(before) != _what_counts(claim):
                self._observe(connection, before, claim)
            if claim is not after:
                self._observe(connection, claim, after)
        return after

    def _observe_new(self, connection: sa.Connection, upload: Upload) -> None:
        """Show observers a new upload; they must also accept its whole length."""
        claim = upload.claiming(upload.length or 0)
        self._observe(connection, None, claim)
        if claim is not upload:
            self._observe(connection, claim, upload)

    def _observe(
        self, connection: sa.Connection, before: Upload | None, after: Upload | None
    ) -> None:
        """Show observers a change made in this transaction."""
        for observe in self._observers:
            observe(connection, before, after)

    def _store_if_unchanged(
        self, after: Upload, before: Upload, rows: AddRows | None = None
    ) -> bool:
        """Store the upload unless it has changed since it was read; returns whether it did."""
        if self._database.is_remote and rows is None:
            return self._together.make((after, before))
        with self._database.write() as connection:
            is_stored = statements.store_if_unchanged(connection, after, before)
            if is_stored and rows is not None:
                rows(connection)
            return is_stored

    def _store_unchanged(self, changes: Sequence[tuple[Upload, Upload]]) -> list[bool]:
        with self._database.one_statement() as connection:
            return statements.store_unchanged(connection, changes)


class _Reserving(Protocol):
    def __call__(self, found: Upload, *, is_ahead: bool) -> Upload: ...


def _totals_of(found: sa.Select[Any]) -> sa.Select[int, Any]:
    """The number of uploads that a query finds, and their total length."""
    rows = found.subquery()
    return sa.select(sa.func.count(), sa.func.sum(rows.c.length))


def _reservation(upload: Upload) -> tuple[int | None, bool]:
    return upload.reserved, upload.is_stalled


def _what_counts(upload: Upload) -> tuple[object, ...]:
    return upload.state, upload.length, upload.reserved, upload.is_stalled
