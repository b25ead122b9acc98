"""Publishes uploads after their last byte: exactly once, even if several requests try.

A concatenation is published once all of its parts have arrived, which may be after its own request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TypeVar

from app.core import errors
from app.core.lifecycle import GONE, IllegalTransition, UploadState
from app.core.upload import Upload, UploadId, UploadKind, UploadPart
from app.db.context import Context
from app.ingest.checksum import FileTooShort, digest_of
from app.ingest.slots import without_slot
from app.ingest.stages import Stage, StageClock, add_seconds, timed_by
from app.records.uploads import UploadRecords
from app.storage.base import BytesLost, Store

ANSWER_WITHIN_SECONDS = 20.0
"""Proxies time out after 30 to 60 s without a response. Publishing across file systems copies the
file and may take longer: it then continues in the background; the client gets `verifying` and
polls."""

SHORT_BYTES = 32 * 1024 * 1024
"""Files up to this length are published in the thread of their request: even hashing takes only a
fraction of a second, and they do not queue behind longer files."""

PUBLISHING_THREADS = 4
"""Number of longer files that a process publishes in parallel without reading them."""

READING_THREADS = 4
"""Number of longer files that a process reads in parallel before publishing: those with a digest to
verify, and concatenations."""

T = TypeVar("T")
U = TypeVar("U")

log = logging.getLogger(__name__)


class Completion:
    """Publishes uploads whose bytes have all arrived."""

    answer_within_seconds = ANSWER_WITHIN_SECONDS
    short_bytes = SHORT_BYTES

    def __init__(self, ctx: Context, records: UploadRecords, store: Store) -> None:
        self._records = records
        self._store = store
        self._clock = ctx.clock
        self._concatenation = Concatenation(ctx, records, store)
        self._publishing = ThreadPoolExecutor(PUBLISHING_THREADS, thread_name_prefix="publish")
        self._reading = ThreadPoolExecutor(READING_THREADS, thread_name_prefix="read")

    def finish(self, upload: Upload) -> Upload:
        """Publish the upload; returns its current state if publishing takes long or must wait.

        Raises like `publish`, and `UploadGone` if it has ended.

        If a held part is the last one of a concatenation, that is also published, in the
        background.
        """
        if upload.state is UploadState.HELD:
            for whole in self._records.waiting_for(upload.id):
                # After a failure, the next request for the concatenation tries again. It is
                # `verifying` before it is published, so that it survives a crash.
                with self._told_of_failure(whole):
                    begun = self._concatenation.begin(whole)
                    if begun.state is UploadState.VERIFYING:
                        self._reading.submit(self._publish_whole, begun)
            return upload
        if upload.state is UploadState.RECEIVING and upload.kind is UploadKind.CONCATENATION:
            upload = self._concatenation.begin(upload)
        if upload.state is not UploadState.VERIFYING:
            return upload.require_present()
        if upload.known_length <= self.short_bytes:
            return self.publish(upload)
        # Publishing reads the whole file, or just renames it.
        is_read = upload.repr_digest is not None or upload.kind is UploadKind.CONCATENATION
        pool = self._reading if is_read else self._publishing
        return self._result_in_time(pool, self.publish, upload) or self._present(upload.id)

    def publish(self, upload: Upload) -> Upload:
        """Publish an upload in `verifying`; safe if another request publishes it too.

        Raises `UploadGone` if it has since been cancelled or its bytes are lost, and
        `DigestMismatch` if they do not match the client's digest: that ends the upload.
        """
        try:
            if upload.kind is UploadKind.CONCATENATION:
                self._concatenation.assemble(upload)
            self._check_digest(upload)
            with Stage.PUBLISH:
                self._store.library.publish(upload.id, upload.known_length)
        except (BytesLost, FileTooShort):
            return self.give_up(upload)
        try:
            published = self._records.move(upload.id, UploadState.COMPLETE, self._clock())
        except IllegalTransition:  # Another request has published it, or it has ended.
            current = self._records.get(upload.id)
            if current.state is not UploadState.COMPLETE:
                self._store.library.delete(upload.id)
            return current.require_present()
        if upload.kind is UploadKind.CONCATENATION:
            self._concatenation.release(upload)
        return published

    def finish_all(self, uploads: Sequence[Upload]) -> list[Upload | errors.UploadError]:
        """Publish several synced uploads in `verifying` at the cost of one; returns all outcomes.

        Like `finish`, returns the uploads in their current state if publishing takes long.
        """
        if not uploads:
            return []
        if sum(upload.known_length for upload in uploads) <= self.short_bytes:
            return self._publish_all(uploads)
        outcomes = self._result_in_time(self._publishing, self._publish_all, uploads)
        return outcomes or [self._present_or_error(upload.id) for upload in uploads]

    def _present(self, upload_id: UploadId) -> Upload:
        return self._records.get(upload_id).require_present()

    def _present_or_error(self, upload_id: UploadId) -> Upload | errors.UploadError:
        try:
            return self._present(upload_id)
        except errors.UploadError as error:
            return error

    def _result_in_time(
        self, pool: ThreadPoolExecutor, work: Callable[[U], T], subject: U
    ) -> T | None:
        """Returns the result of `work`; None if it takes long and continues in the background."""
        clock = StageClock()
        task = pool.submit(timed_by(clock, work), subject)
        try:
            with without_slot():
                return task.result(timeout=self.answer_within_seconds)
        except TimeoutError:
            return None
        finally:
            if task.done():
                add_seconds(clock)

    def give_up(self, upload: Upload) -> Upload:
        """Expire an upload whose bytes were lost, so that its client starts over.

        Returns it if another request has completed it by now; otherwise raises `UploadGone`.
        """
        with suppress(IllegalTransition):
            self._records.move(upload.id, UploadState.EXPIRED, self._clock())
            self._store.library.delete(upload.id)
        return self._present(upload.id)

    def _publish_all(self, uploads: Sequence[Upload]) -> list[Upload | errors.UploadError]:
        try:
            with Stage.PUBLISH:
                self._store.library.publish_all(
                    [(upload.id, upload.known_length) for upload in uploads]
                )
            upload_ids = [upload.id for upload in uploads]
            published = self._records.move_all(upload_ids, UploadState.COMPLETE, self._clock())
        except (BytesLost, IllegalTransition, errors.UploadError):
            # One of them was cancelled or lost its bytes: publish the others one by one.
            outcomes: list[Upload | errors.UploadError] = []
            for upload in uploads:
                try:
                    outcomes.append(self.publish(upload))
                except errors.UploadError as one_error:
                    outcomes.append(one_error)
            return outcomes
        return list(published)

    def _publish_whole(self, upload: Upload) -> None:
        with self._told_of_failure(upload):
            self.publish(upload)

    @contextmanager
    def _told_of_failure(self, upload: Upload) -> Iterator[None]:
        try:
            yield
        except errors.UploadError as error:
            log.warning("parts cannot be concatenated: %s", error, extra={"upload_id": upload.id})

    def _check_digest(self, upload: Upload) -> None:
        if upload.repr_digest is None:
            return
        algorithm, _, expected = upload.repr_digest.partition(":")
        try:
            file = self._store.staging.open(upload.id)
        except BytesLost:
            return  # Another request has checked and published it; if lost, publishing raises.
        with file:
            found = digest_of(file, algorithm, upload.known_length)
        if found != expected:
            with suppress(IllegalTransition):
                self._records.move(upload.id, UploadState.CANCELLED, self._clock())
                self._store.library.delete(upload.id)
            raise errors.DigestMismatch(f"The {algorithm} digest of the file does not match.")
        if algorithm == "sha256":
            self._records.set_sha256(upload.id, found)


# ---- concatenations ------------------------------------------------------------------------------

# Concatenates several partial uploads into one file.


def made_before(records: UploadRecords, owner: str, parts: Sequence[UploadPart]) -> list[Upload]:
    """Complete files made from the same parts in the same order; the parts have since expired."""
    wanted = [part.upload_id for part in parts]
    return [
        whole
        for whole in (records.made_of(wanted[0]) if wanted else ())
        if whole.owner == owner and [part.upload_id for part in records.parts(whole.id)] == wanted
    ]


class Concatenation:
    """The steps of a concatenation; each can be repeated by any request."""

    def __init__(self, ctx: Context, records: UploadRecords, store: Store) -> None:
        self._records = records
        self._store = store
        self._policy = ctx.settings.policy
        self._clock = ctx.clock

    def begin(self, upload: Upload) -> Upload:
        """Move the upload to `verifying` and reserve its space, if every part is held by now.

        Raises `TooLarge`, `NoRoom`, `QuotaExceeded`, `LinkFull`, and `UploadGone` if a part has
        ended: that ends the upload.
        """
        states = self._part_states(upload)
        sources = self._sources(upload, states)
        if sources is None:
            upload = self._records.get(upload.id)
            # Parts also end when another request has published the upload.
            if upload.state is UploadState.RECEIVING and states & {*GONE, None}:
                with suppress(IllegalTransition):
                    self._records.move(upload.id, UploadState.EXPIRED, self._clock())
                upload = self._records.get(upload.id)
            return upload.require_present()
        length = sum(length for _, length in sources)
        self._policy.check_length(length)  # A part's length may have been declared late.
        try:
            self._store.staging.reserve(upload.id, length)
            return self._records.add_parts(upload.id, length, self._clock())
        except (
            errors.NoRoom,
            errors.QuotaExceeded,
            errors.LinkClosed,
            errors.LinkFull,
            errors.TooLarge,
        ):
            # Unless another request has begun it, the file is empty.
            if self._records.get(upload.id).state is UploadState.RECEIVING:
                self._store.staging.remove(upload.id)
            raise
        except (errors.UploadGone, errors.UploadNotFound):
            self._store.library.delete(upload.id)
            raise

    def assemble(self, upload: Upload) -> None:
        """Copy the bytes of the parts into the upload; raises `BytesLost` if some are gone."""
        sources = self._sources(upload, self._part_states(upload))
        self._store.library.concatenate(upload.id, sources or self._lengths(upload))

    def release(self, upload: Upload) -> None:
        """Expire the parts of a published upload, except those that other concatenations need."""
        for part in self._parts(upload):
            if not self._records.waiting_for(part.id):
                with suppress(IllegalTransition, errors.UploadNotFound):
                    self._records.move(part.id, UploadState.EXPIRED, self._clock())
                    self._store.library.delete(part.id)

    def _sources(
        self, upload: Upload, states: set[UploadState | None]
    ) -> list[tuple[UploadId, int]] | None:
        """Returns the sources to copy, with lengths: the parts, or an earlier file made of them.

        Returns None if a part is unfinished or gone.
        """
        if states == {UploadState.HELD}:
            return self._lengths(upload)
        earlier = made_before(self._records, upload.owner, self._records.parts(upload.id))
        found = [(whole.id, whole.known_length) for whole in earlier if whole.id != upload.id]
        return found[:1] or None

    def _lengths(self, upload: Upload) -> list[tuple[UploadId, int]]:
        return [(part.id, part.known_length) for part in self._parts(upload)]

    def _part_states(self, upload: Upload) -> set[UploadState | None]:
        """The states of the parts; None stands for a part without a record."""
        upload_ids = [part.upload_id for part in self._records.parts(upload.id)]
        states = self._records.states(upload_ids)
        return {states.get(upload_id) for upload_id in upload_ids}

    def _parts(self, upload: Upload) -> list[Upload]:
        return [self._records.get(part.upload_id) for part in self._records.parts(upload.id)]
