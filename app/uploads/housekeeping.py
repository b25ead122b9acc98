"""Background jobs on uploads: expiry, recovery after crashes, digests."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from itertools import islice

from app.core.crc32c import in_base64
from app.core.errors import ServerBusy, StorageFailed, UploadError, UploadGone, UploadNotFound
from app.core.jobs import DIGESTS, SWEEP, Lane
from app.core.lifecycle import ACTIVE, GONE, IllegalTransition, UploadState
from app.core.ranges import ByteRange
from app.core.upload import Upload, UploadId, UploadKind, parse_upload_id
from app.db.context import Context
from app.db.jobs import JobRecords
from app.ingest.checksum import digests_of
from app.records.uploads import UploadRecords
from app.storage.base import Store
from app.storage.machine import IdleClock
from app.uploads.completion import Completion

BATCH = 100
"""Number of records read in one transaction."""

STUCK_AFTER = timedelta(seconds=30)
"""An upload that stays in `verifying` this long was interrupted by a crash. If it is merely slow, a
second attempt to publish it waits for the first and does no harm."""

LONGEST_PAUSE = timedelta(hours=1)
"""Limit of the backoff between attempts to publish an upload. The pause is as long as the upload
has been idle, so that it doubles up to this limit."""

START = timedelta(seconds=60)
"""A server that dies while checking the clocks blocks the sweeps of others for this long."""

DIGEST_BATCH = 8
"""Number of files whose digests are computed in one run, while no upload arrives."""

QUIET = timedelta(minutes=5)
"""Time without received bytes after which files with a CRC32C also get their SHA-256."""

LONGEST_WITHOUT_SHA256 = timedelta(days=1)
"""Age at which they get it on a server that is never quiet."""

REMEMBER_GONE = timedelta(days=30)
"""How long requests for an ended upload get 410 instead of 404."""

log = logging.getLogger(__name__)


class Housekeeping:
    """Each method runs one job once; the background worker repeats them."""

    batch = BATCH
    digest_batch = DIGEST_BATCH

    def __init__(
        self,
        ctx: Context,
        records: UploadRecords,
        store: Store,
        *,
        completion: Completion,
        idle_clock: IdleClock,
    ) -> None:
        self._settings = ctx.settings
        self._clock = ctx.clock
        self._jobs = JobRecords(ctx.database)
        self._is_alone = not ctx.database.is_remote
        self._new_id = ctx.new_id
        self._records = records
        self._store = store
        self._completion = completion
        self._idle_clock = idle_clock
        self._expiry = timedelta(seconds=ctx.settings.expiry_seconds)
        self._unreadable: set[UploadId] = set()

    def sweep(self) -> datetime:
        """Expire idle uploads, remove orphaned files and old records.

        Runs each job even if another fails: on a full disk one may still free space. Runs none if a
        jump of the clock cannot be recorded. Returns the time of `allow_for_clock`. Only one of
        several nodes needs to call it.
        """
        now = self.allow_for_clock()
        jobs: dict[str, Callable[[], None]] = {
            "expiry": lambda: self.expire(now),
            "removing orphans": self.remove_orphans,
            "giving space back": self.give_space_back,
            "forgetting old records": lambda: self.forget(now),
        }
        for name, job in jobs.items():
            try:
                job()
            except UploadError as error:
                log.error("%s failed: %s", name, error)
        return now

    def start(self) -> None:
        """Run `allow_for_clock` unless another server runs it or has just run it.

        Two servers that do it at the same time would shift the times twice, so this one claims the
        sweep, which does it too.
        """
        name = self._new_id()
        job = self._jobs.claim(Lane.UPKEEP, name, self._clock(), START, [SWEEP])
        if job is not None or self._is_alone:
            self.allow_for_clock()
        self._jobs.release(name, self._clock())

    def allow_for_clock(self) -> datetime:
        """Shift recorded times by the clock's jump and the server's downtime; returns the time now.

        A jump of the clock makes neither uploads idle nor videos old. Time that the server was off
        does not make uploads idle, beyond what `IdleClock` counts; but videos must be deleted on
        time, so they do get older. If the clock was set back, no activity stays in the future: such
        an upload would not expire until the clock gets there again.
        """
        check = self._idle_clock.look()
        if check.uncounted:
            log.warning(
                "the clock was set, or the server was off: %+.0f s do not count as idle time",
                check.uncounted.total_seconds(),
            )
            self._store.inspection.shift_activity(check.uncounted)
        self._records.shift_activity(
            max(check.uncounted, timedelta(0)),
            check.reading.wall,
            videos_later=max(check.jump, timedelta(0)),
        )
        self._idle_clock.keep(check.reading)
        return check.reading.wall

    def expire(self, now: datetime | None = None) -> None:
        """Expire every upload that was idle for the expiry time, and free its space.

        `now`, here and below, defaults to the clock's time.
        """
        cutoff = (now or self._clock()) - self._expiry
        for state in (UploadState.RECEIVING, UploadState.HELD):
            while found := self._records.to_expire(state, self.batch, idle_since=cutoff):
                for upload in found:
                    with suppress(IllegalTransition, UploadNotFound, UploadGone):
                        self._expire_idle(upload, cutoff)

    def _expire_idle(self, upload: Upload, cutoff: datetime) -> None:
        """Expire the upload, unless its concatenation or another part of it is active."""
        family = list[Upload]()
        if upload.kind is not UploadKind.FILE:
            is_whole = upload.kind is UploadKind.CONCATENATION
            family = [upload] if is_whole else self._records.waiting_for(upload.id)
            for part in [part for whole in family for part in self._records.parts(whole.id)]:
                with suppress(UploadNotFound):
                    family.append(self._records.get(part.upload_id))
        times = [member.active_at for member in family if member.state in ACTIVE]
        last = max(times, default=cutoff)
        if last > cutoff:
            self._records.touch(upload.id, last)
        else:
            self.expire_one(upload.id, idle_since=cutoff)

    def expire_one(self, upload_id: UploadId, *, idle_since: datetime | None = None) -> None:
        """Expire one upload and free its space, unless it was active after the given time.

        Raises `UploadNotFound`, and `IllegalTransition` unless it is unfinished.
        """
        self._records.move(upload_id, UploadState.EXPIRED, self._clock(), idle_since=idle_since)
        self._store.library.delete(upload_id)
        log.info("upload expired", extra={"upload_id": upload_id})

    def finish_stuck(self, now: datetime | None = None) -> None:
        """Call `finish` for all that `stuck` returns, one after another."""
        for upload in self.stuck(now):
            self.finish(upload, now)

    def stuck(self, now: datetime | None = None) -> list[Upload]:
        """Uploads whose publishing was interrupted or has failed so far, if they are due.

        Each node calls this often, so that it takes over from one that has died within seconds.
        Leaves out what another one publishes now: waiting for that would hold up the others.
        """
        now = now or self._clock()
        due = self._records.to_publish(
            self.batch, idle_since=now - STUCK_AFTER, now=now, longest=LONGEST_PAUSE
        )
        busy = self._store.library.being_published([upload.id for upload in due])
        return [upload for upload in due if upload.id not in busy]

    def finish(self, upload: Upload, now: datetime | None = None) -> None:
        """Publish a stuck upload, unless another node does; after a failure, try again later.

        Expires one that still cannot be published after being idle for the expiry time, unless a
        server is only too busy.
        """
        now, being_published = now or self._clock(), self._store.library.being_published
        if being_published([upload.id]):
            return
        try:
            self._completion.publish(upload)
        except UploadError as error:
            if being_published([upload.id]):
                return
            log.warning("upload cannot be published: %s", error, extra={"upload_id": upload.id})
            is_over = upload.active_at <= now - self._expiry
            if is_over and not isinstance(error, ServerBusy):
                with suppress(IllegalTransition, UploadNotFound, UploadGone):
                    self._expire_idle(upload, now - self._expiry)
            else:
                pause = min(now - upload.active_at, LONGEST_PAUSE)
                self._records.retry_at(upload.id, now + pause)

    def remove_orphans(self) -> None:
        """Remove staged files of ended uploads, left behind by a crash between two steps.

        A file without a record may belong to another server that shares the folder, so it is
        removed only once it has been idle for the expiry time.
        """
        idle = {file.key: file.idle_seconds for file in self._store.inspection.staged()}
        for key, state in self._states(idle):
            is_foreign = state is None and idle[key] <= self._expiry.total_seconds()
            if state not in ACTIVE and not is_foreign:
                self._store.staging.remove(key)
                log.info("orphan removed", extra={"upload_id": key})

    def give_space_back(self) -> None:
        """Release reservations of uploads that received no bytes in time.

        Empty uploads of members stay, and reserve their space again when the first byte arrives;
        without accounts they keep it. Uploads through links expire if they are empty, and otherwise
        keep only their received bytes reserved, so that anonymous clients cannot block a quota or a
        link with claimed lengths.
        """
        longest = self._settings.reservation_seconds
        files = list(self._store.inspection.staged())
        idle = [file.key for file in files if file.idle_seconds > longest]
        written = {file.key for file in files if file.idle_seconds <= longest}
        cutoff = self._clock() - timedelta(seconds=longest)
        while found := self._records.reserving(self.batch, idle_since=cutoff):
            for upload in found:
                with suppress(IllegalTransition, UploadNotFound, UploadGone):
                    # Bytes with a digest are recorded only at the end of their request: a file that
                    # is being written may still be waiting for that.
                    if not upload.received and upload.id not in written:
                        self._expire_idle(upload, cutoff)
                    self._records.stall(upload.id, cutoff)
        give_back = self._store.staging.give_back
        if self._settings.is_open or give_back is None:
            return
        for upload_id, state in self._states(idle):
            empty = self._empty(upload_id) if state is UploadState.RECEIVING else None
            if empty is not None and empty.reserved is None:
                # Checked again once no writer can start: a writer records its bytes before it ends.
                give_back(upload_id, partial(self._is_empty, upload_id))

    def _is_empty(self, upload_id: UploadId) -> bool:
        return self._empty(upload_id) is not None

    def _empty(self, upload_id: UploadId) -> Upload | None:
        """Returns the upload if it has a length and waits for its first byte."""
        with suppress(UploadNotFound):
            upload = self._records.get(upload_id)
            is_waiting = upload.state is UploadState.RECEIVING and not upload.received
            return upload if is_waiting and upload.length else None
        return None

    def remove_deleted(self) -> None:
        """Remove published files of uploads that were cancelled or deleted.

        Reads the whole library, so it runs only when a worker starts and once a day. Leaves files
        without a record alone.
        """
        self._remove_published(GONE)

    def forget_unsynced(self) -> None:
        """After a power cut, restart all unfinished uploads, since their bytes may be lost.

        This includes uploads that were published but not yet recorded as complete: while their file
        is in the library, clients could not send it again.
        """
        self._records.forget_received()
        self._remove_published(ACTIVE)

    def _remove_published(self, states: frozenset[UploadState]) -> None:
        for key, state in self._states(self._store.inspection.published()):
            if state in states:
                self._store.library.delete(key)

    def forget(self, now: datetime | None = None) -> None:
        """Delete the records of uploads that ended long ago."""
        cutoff = (now or self._clock()) - REMEMBER_GONE
        for state in GONE:
            for upload in self._records.in_state(state, self.batch, idle_since=cutoff):
                self._records.remove(upload.id)

    def digest(self) -> int:
        """Compute missing SHA-256 digests of a few published files; returns how many.

        Files with a CRC32C wait until their SHA-256 is requested, no bytes arrive, or a day has
        passed. In a bucket they wait until it is requested, since every byte must be fetched.
        """
        for count in range(self.digest_batch):
            upload = self._without_digest()  # Before each file: bytes may have begun to arrive.
            if upload is None:
                return count
            self._digest_one(upload)
        return self.digest_batch

    def look_for_digests(self) -> int:
        """Make the job of `digest` due if there is something to compute; returns 0."""
        if self._without_digest() is not None:
            self._jobs.hurry(DIGESTS, self._clock())
        return 0

    def _without_digest(self) -> Upload | None:
        """The next file to compute a digest of."""

        def first(since: datetime | None) -> Upload | None:
            found = self._records.without_sha256(1 + len(self._unreadable), idle_since=since)
            return next((each for each in found if each.id not in self._unreadable), None)

        if self._settings.storage:
            return first(None)
        now = self._clock()
        upload = first(now - QUIET)
        is_busy = upload is not None and self._records.has_changed(now - QUIET)
        return first(now - LONGEST_WITHOUT_SHA256) if is_busy else upload

    def _digest_one(self, upload: Upload) -> None:
        try:
            with self._store.library.open(upload.id, ByteRange(0, upload.known_length)) as file:
                sha256, crc32c = digests_of(file, ("sha256", "crc32c"), upload.known_length)
            if upload.crc32c not in {None, in_base64(int(crc32c, 16))}:
                raise StorageFailed(
                    "It has changed on the disk since it arrived: its CRC32C differs."
                )
        except (OSError, StorageFailed) as error:
            log.error("video cannot be read: %s", error, extra={"upload_id": upload.id})
            self._unreadable.add(upload.id)
        else:
            self._records.set_sha256(upload.id, sha256)

    def _states(self, keys: Iterable[str]) -> Iterable[tuple[UploadId, UploadState | None]]:
        wanted = (UploadId(key) for key in keys if _is_upload_id(key))
        while upload_ids := list(islice(wanted, self.batch)):
            states = self._records.states(upload_ids)
            yield from ((upload_id, states.get(upload_id)) for upload_id in upload_ids)


def _is_upload_id(key: str) -> bool:
    try:
        parse_upload_id(key)
    except UploadNotFound:
        return False
    return True
