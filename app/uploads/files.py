"""Whole files, each sent in one request, whose length is known only at the end."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from io import RawIOBase
from typing import Literal

from app.core.access import Scope, is_through_link
from app.core.crc32c import in_base64
from app.core.errors import BodyStalled, UploadError, UploadGone
from app.core.lifecycle import IllegalTransition, UploadState
from app.core.policy import Allowance, UploadPolicy, no_allowance
from app.core.ranges import ByteRange, RangeSet
from app.core.upload import Upload, UploadId, parse_upload_id
from app.ingest.checksum import digest_of
from app.ingest.copy import BodyLimits
from app.ingest.slots import without_slot
from app.ingest.source import BodySource
from app.ingest.stages import Stage, stage
from app.records.uploads import UploadRecords
from app.storage.base import BytesLost, Store
from app.storage.compare import has_same_bytes
from app.uploads.completion import Completion
from app.uploads.quotas import ProjectQuotas
from app.uploads.service import derived_key, whose

DIGEST_AT_ONCE_BYTES = 32 * 1024 * 1024
"""The checksum of longer files is left to the background worker, as for files sent in chunks: the
answer need not wait for it."""

CHECKED_FIRST_BYTES = 1024 * 1024
"""Longer files are held against the quota before they arrive. For shorter ones the look-up would
cost as much as it saves: their record refuses them."""

FORM_BYTES = 1024 * 1024
"""What a form may hold besides its file when its length is held against the quota."""


Algorithm = Literal["sha256", "crc32c"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedFile:
    """A file that has arrived but has no record yet; `length` in bytes.

    `checksum` is that of `algorithm`, in hexadecimal.
    """

    id: UploadId
    scope: Scope
    filename: str
    length: int
    algorithm: Algorithm
    checksum: Future[str] | None
    fingerprint: str | None = None


_Sent = tuple[str, str | None, str, int]
"""The project, sender, fingerprint and length of a file that was sent before."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Where a file is kept: in a new upload, or an earlier one with the same fingerprint."""

    upload: Upload
    is_new: bool


class WholeFiles:
    """Receives files first and records them afterwards, whole or not at all.

    The checksum of one file is computed while the next one arrives, on another core.
    """

    def __init__(  # noqa: PLR0913 - called by the composition root alone, with names
        self,
        records: UploadRecords,
        store: Store,
        *,
        completion: Completion,
        policy: UploadPolicy,
        quotas: ProjectQuotas,
        limits: BodyLimits,
        clock: Callable[[], datetime],
        new_id: Callable[[], str],
        allowance: Allowance = no_allowance,
    ) -> None:
        self._records = records
        self._store = store
        self._completion = completion
        self._policy = policy
        self._quotas = quotas
        self._limits = limits
        self._clock = clock
        self._new_id = new_id
        self._allowance = allowance
        # With cached_property, two threads could create one each (Python 3.12).
        self._digesting = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="digest")

    def receive(
        self,
        source: BodySource,
        *,
        scope: Scope,
        filename: str,
        room: int = 0,
        most_bytes: int | None = None,
        algorithm: Algorithm = "sha256",
    ) -> ReceivedFile:
        """Store all of `source`, after reserving `room` bytes; then `keep` or `drop` it.

        A new file is held against what its sender and project have left. A chunk of a known upload,
        which was, may have `most_bytes`. Raises what `Chunks.append` raises, and leaves nothing
        behind.
        """
        filename = self._policy.check_filename(filename)
        is_new = most_bytes is None
        most = self._allowance(scope.sender, filename, upload_id=None) if is_new else most_bytes
        policy = self._policy.within(most)
        policy.check_length(source.remaining or 0)
        told_bytes = source.remaining or room
        if is_new:
            self._check_quota(scope.target(), source.remaining or room - FORM_BYTES)
        upload_id = parse_upload_id(self._new_id())
        try:
            if room:
                # The bodies of strangers hold no more of the disk than has arrived.
                self._store.staging.reserve(
                    upload_id,
                    min(room, policy.max_length),
                    allocates=not is_through_link(scope.sender),
                )
            length = self._store_body(upload_id, source, policy=policy)
            if is_new and not told_bytes:
                # Not twice: of the chunks of a file that are sent at the same time, the first to
                # arrive takes the room of all.
                self._check_quota(scope.target(), length)
            source.finish()
        except BaseException:
            self._store.library.delete(upload_id)
            raise
        return ReceivedFile(
            id=upload_id,
            scope=scope,
            filename=filename,
            length=length,
            algorithm=algorithm,
            checksum=self._begin_digest(upload_id, length, algorithm),
        )

    def _store_body(self, upload_id: UploadId, source: BodySource, *, policy: UploadPolicy) -> int:
        """Receive all of `source`, and return its length in bytes."""
        limit = policy.max_length + 1 if source.remaining is None else source.remaining
        length = self._store.staging.receive(upload_id, source, limit, self._limits)
        policy.check_length(length)
        return length

    def _check_quota(self, project: str, length: int) -> None:
        if length > CHECKED_FIRST_BYTES:
            self._quotas.check(project, length)

    def keep(self, file: ReceivedFile) -> Upload:
        """Record the file as an upload that is complete, and publish it."""
        (outcome,) = self.keep_all([file])
        if isinstance(outcome, UploadError):
            raise outcome
        return outcome.upload

    def keep_all(self, files: Sequence[ReceivedFile]) -> list[Kept | UploadError]:
        """Keep several files for about the cost of one; returns all outcomes.

        A file with the fingerprint and length of one that is stored, or being stored, is dropped
        in favour of the earlier one. Raises if none can be kept.
        """
        try:
            # Before the records: after a power cut none may claim bytes that are missing.
            self._store.staging.sync([file.id for file in files])
            earlier = self._earlier(files)
            stored = self._add_all([self._upload_of(file, earlier) for file in files])
        except BaseException as error:
            if len(files) > 1 and isinstance(error, UploadError) and not error.retryable:
                return [self._keep_alone(file) for file in files]  # Others may still fit.
            for file in files:
                # Its record may be stored all the same, if only the answer to COMMIT was lost:
                # another request may have published the file, and then it stays.
                self._store.staging.remove(file.id)
            if isinstance(error, BytesLost):
                raise _removed() from error
            raise
        return self._finish(files, stored)

    def _keep_alone(self, file: ReceivedFile) -> Kept | UploadError:
        try:
            return self.keep_all([file])[0]
        except UploadError as error:
            return error

    def open(self, file: ReceivedFile) -> RawIOBase:
        """The file, from its first byte."""
        try:
            return self._store.staging.open_complete(file.id, file.length)
        except BytesLost as error:
            raise _removed() from error

    def is_in(self, file: ReceivedFile, upload: Upload, start: int) -> bool:
        """Whether the upload has the bytes of the file at `start`."""
        with self.open(file) as ours:
            with suppress(BytesLost):  # It may have just been published.
                return self._store.staging.contains(upload.id, start, ours, file.length)
            ours.seek(0)
            with self._open_published(upload, start) as stored:
                return has_same_bytes(ours, stored, file.length)

    def _open_published(self, upload: Upload, start: int) -> RawIOBase:
        try:
            return self._store.library.open(upload.id, ByteRange(start, upload.known_length))
        except FileNotFoundError as error:
            raise UploadGone("The upload was removed while it was compared.") from error

    def drop(self, file: ReceivedFile) -> None:
        """Remove the file."""
        self._store.library.delete(file.id)

    def _begin_digest(
        self, upload_id: UploadId, length: int, algorithm: Algorithm
    ) -> Future[str] | None:
        if length > DIGEST_AT_ONCE_BYTES:
            return None
        return self._digesting.submit(self._digest, upload_id, length, algorithm)

    def _digest(self, upload_id: UploadId, length: int, algorithm: Algorithm) -> str:
        with self._store.staging.open_complete(upload_id, length) as file:
            return digest_of(file, algorithm, length)

    def _earlier(self, files: Sequence[ReceivedFile]) -> dict[_Sent, Upload]:
        """Uploads with the fingerprints of these files, by one query for all of a sender."""
        wanted: dict[tuple[str, str | None], set[tuple[str, int]]] = {}
        for file in files:
            if file.fingerprint is not None:
                whose_files = wanted.setdefault((file.scope.target(), file.scope.finds_of), set())
                whose_files.add((file.fingerprint, file.length))
        return {
            (*place, *sent): upload
            for place, those in wanted.items()
            for sent, upload in self._records.find_fingerprints(
                place[0], those, sender=place[1]
            ).items()
        }

    def _upload_of(self, file: ReceivedFile, known: Mapping[_Sent, Upload]) -> Upload:
        """A new upload for the file, or the existing one with its fingerprint."""
        if file.fingerprint is not None:
            place = file.scope.target(), file.scope.finds_of
            earlier = known.get((*place, file.fingerprint, file.length))
            if earlier is not None and earlier.state is UploadState.COMPLETE:
                return earlier
        now, checksum = self._clock(), _awaited(file.checksum)
        is_sha256 = file.algorithm == "sha256"
        return Upload(
            id=file.id,
            owner=file.scope.target(),
            sender=file.scope.sender,
            filename=file.filename,
            length=file.length,
            client_key=_key_of(file),
            fingerprint=file.fingerprint,
            created_at=now,
            active_at=now,
            state=UploadState.VERIFYING,
            received=RangeSet.of([ByteRange(0, file.length)]),
            sha256=checksum if is_sha256 else None,
            crc32c=None if is_sha256 or checksum is None else in_base64(int(checksum, 16)),
        )

    def _add_all(self, uploads: Sequence[Upload]) -> list[Upload]:
        """The uploads as recorded, each the new one or an earlier one with its key.

        An earlier one that lost its bytes in a power cut (see `storage/machine.py`) is replaced.
        """
        stored = [upload for upload, _ in self._records.add_all(uploads)]
        lost = [upload for upload in stored if upload.state is UploadState.RECEIVING]
        for upload in lost:
            with suppress(IllegalTransition):  # Another request has done it.
                self._records.move(upload.id, UploadState.EXPIRED, self._clock())
            self._store.library.delete(upload.id)
        return [upload for upload, _ in self._records.add_all(uploads)] if lost else stored

    def _finish(
        self, files: Sequence[ReceivedFile], stored: Sequence[Upload]
    ) -> list[Kept | UploadError]:
        own = {file.id for file in files}
        fresh = {upload.id: upload for upload in stored if upload.id in own}
        finished = dict(zip(fresh, self._completion.finish_all([*fresh.values()]), strict=True))
        outcomes: list[Kept | UploadError] = []
        for file, upload in zip(files, stored, strict=True):
            outcome = finished.get(upload.id) or self._finish_one(upload)
            is_new = upload.id == file.id
            if not is_new and isinstance(outcome, UploadGone):
                # The earlier one has lost its bytes, or was cancelled: this one replaces it.
                outcomes.append(self._keep_alone(file))
                continue
            if not is_new:
                self.drop(file)
            outcomes.append(outcome if isinstance(outcome, UploadError) else Kept(outcome, is_new))
        return outcomes

    def _finish_one(self, upload: Upload) -> Upload | UploadError:
        try:
            return self._completion.finish(upload)
        except UploadError as error:
            return error


def _removed() -> BodyStalled:
    """Housekeeping removes files without a record once they are idle for the expiry time."""
    return BodyStalled("The body was idle for longer than its file is kept.")


def _awaited(digest: Future[str] | None) -> str | None:
    if digest is None:
        return None
    if digest.done():
        return digest.result()
    with stage(Stage.HASH), without_slot():
        return digest.result()


def _key_of(file: ReceivedFile) -> str:
    """One key for one fingerprint and length: of two requests at once, one stores the file."""
    if file.fingerprint is None or file.scope.is_crowd:
        return file.id
    return derived_key("file", file.length, file.fingerprint, *whose(file.scope))
