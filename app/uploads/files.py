"""Receives whole files, each sent in one request, whose length is known only at the end."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from io import RawIOBase
from typing import Literal

from app.core.access import Scope, is_through_link
from app.core.crc32c import in_base64
from app.core.errors import BodyStalled, ServerBusy, UploadError, UploadGone
from app.core.lifecycle import IllegalTransition, UploadState
from app.core.policy import Allowance, no_allowance
from app.core.ranges import ByteRange, RangeSet
from app.core.upload import Upload, UploadId, parse_upload_id
from app.db.context import Context
from app.ingest.checksum import digest_of
from app.ingest.copy import BodyLimits
from app.ingest.slots import without_slot
from app.ingest.source import BodySource
from app.ingest.stages import Stage
from app.records.uploads import UploadRecords
from app.storage.base import BytesLost, Store, has_same_bytes
from app.uploads.completion import Completion
from app.uploads.quotas import ProjectQuotas
from app.uploads.service import derived_key, whose

DIGEST_AT_ONCE_BYTES = 32 * 1024 * 1024
"""The background worker computes the checksum of longer files, as for files sent in chunks, so that
the response does not wait for it."""

CHECKED_FIRST_BYTES = 1024 * 1024
"""Longer files are checked against the quota before they arrive. For shorter files the query would
cost as much as it saves: they are rejected when they are recorded."""

FORM_BYTES = 1024 * 1024
"""Bytes assumed for a form's other fields when its length is checked against the quota."""


Algorithm = Literal["sha256", "crc32c"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedFile:
    """A file that was received but has no record yet; `length` in bytes.

    `checksum` is computed with `algorithm`, in hexadecimal.
    """

    id: UploadId
    scope: Scope
    filename: str
    length: int
    algorithm: Algorithm
    checksum: Future[str] | None
    fingerprint: str | None = None


_Sent = tuple[str, str | None, str, int]
"""The project, sender, fingerprint and length of an earlier file."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The upload that stores a file: a new one, or an earlier one with the same fingerprint."""

    upload: Upload
    is_new: bool


class WholeFiles:
    """Receives files first and records them afterwards, each as a whole or not at all.

    The checksum of one file is computed on another core while the next one arrives.
    """

    def __init__(
        self,
        ctx: Context,
        records: UploadRecords,
        store: Store,
        *,
        completion: Completion,
        quotas: ProjectQuotas,
        allowance: Allowance = no_allowance,
    ) -> None:
        self._records = records
        self._store = store
        self._completion = completion
        self._policy = ctx.settings.policy
        self._quotas = quotas
        self._limits = BodyLimits.of(ctx.settings)
        self._clock = ctx.clock
        self._new_id = ctx.new_id
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
        """Reserve `room` bytes and store all of `source`; then `keep` or `drop` the file.

        Checks a new file against the remaining allowance of its sender and project. A chunk of an
        existing upload, already checked, may have `most_bytes`. Raises like `Chunks.append`, and
        then leaves no file behind.
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
                # A body through a link takes no more disk space than its received bytes.
                self._store.staging.reserve(
                    upload_id,
                    min(room, policy.max_length),
                    allocates=not is_through_link(scope.sender),
                )
            limit = policy.max_length + 1 if source.remaining is None else source.remaining
            length = self._store.staging.receive(upload_id, source, limit, self._limits)
            policy.check_length(length)
            if is_new and not told_bytes:
                # Check once: the first of several parallel chunks reserves space for all.
                self._check_quota(scope.target(), length)
            source.finish()
        except BaseException:
            self._store.library.delete(upload_id)
            raise
        checksum = None
        if length <= DIGEST_AT_ONCE_BYTES:
            checksum = self._digesting.submit(self._digest, upload_id, length, algorithm)
        return ReceivedFile(
            id=upload_id,
            scope=scope,
            filename=filename,
            length=length,
            algorithm=algorithm,
            checksum=checksum,
        )

    def _check_quota(self, project: str, length: int) -> None:
        if length > CHECKED_FIRST_BYTES:
            self._quotas.check(project, length)

    def keep(self, file: ReceivedFile) -> Upload:
        """Record the file as a complete upload and publish it."""
        (outcome,) = self.keep_all([file])
        if isinstance(outcome, UploadError):
            raise outcome
        return outcome.upload

    def keep_all(self, files: Sequence[ReceivedFile]) -> list[Kept | UploadError]:
        """Keep several files at about the cost of one; returns all outcomes.

        Drops a file if an earlier one with the same fingerprint and length is stored, or being
        stored; in the second case its outcome is `ServerBusy` if that takes long. Raises if none
        can be kept.
        """
        try:
            # Sync before recording: after a power cut no record may claim missing bytes.
            self._store.staging.sync([file.id for file in files])
            earlier = self._earlier(files)
            stored = self._add_all([self._upload_of(file, earlier) for file in files])
        except BaseException as error:
            if len(files) > 1 and isinstance(error, UploadError) and not error.retryable:
                return [self._keep_alone(file) for file in files]  # Others may still fit.
            for file in files:
                # The record may exist after all, if only the response to COMMIT was lost. Another
                # request may then have published the file, and a published file stays.
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
        """Open the file at its first byte."""
        try:
            return self._store.staging.open(file.id)
        except BytesLost as error:
            raise _removed() from error

    def is_in(self, file: ReceivedFile, upload: Upload, start: int) -> bool:
        """Whether the upload has the same bytes as the file at `start`."""
        with self.open(file) as ours:
            try:
                stored = self._store.staging.open(upload.id)
                stored.seek(start)
            except BytesLost:  # It may have just been published.
                stored = self._opened(upload, start)
            with stored:
                return has_same_bytes(ours, stored, file.length)

    def _opened(self, upload: Upload, start: int) -> RawIOBase:
        try:
            return self._store.library.open(upload.id, ByteRange(start, upload.known_length))
        except FileNotFoundError as error:
            raise UploadGone("The upload was removed while it was compared.") from error

    def drop(self, file: ReceivedFile) -> None:
        """Remove the file."""
        self._store.library.delete(file.id)

    def _digest(self, upload_id: UploadId, length: int, algorithm: Algorithm) -> str:
        with self._store.staging.open(upload_id) as file:
            return digest_of(file, algorithm, length)

    def _earlier(self, files: Sequence[ReceivedFile]) -> dict[_Sent, Upload]:
        """Uploads with the fingerprints of these files, in one query per sender."""
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
        """Returns a new upload for the file, or the existing one with its fingerprint."""
        if file.fingerprint is not None:
            place = file.scope.target(), file.scope.finds_of
            earlier = known.get((*place, file.fingerprint, file.length))
            if earlier is not None and earlier.state is UploadState.COMPLETE:
                return earlier
        now, checksum = self._clock(), _awaited(file.checksum)
        is_sha256, client_key = file.algorithm == "sha256", str(file.id)
        if file.fingerprint is not None and not file.scope.is_crowd:
            # Of two simultaneous requests with one key, one stores the file.
            client_key = derived_key("file", file.length, file.fingerprint, *whose(file.scope))
        return Upload(
            id=file.id,
            owner=file.scope.target(),
            sender=file.scope.sender,
            filename=file.filename,
            length=file.length,
            client_key=client_key,
            fingerprint=file.fingerprint,
            created_at=now,
            active_at=now,
            state=UploadState.VERIFYING,
            received=RangeSet.of([ByteRange(0, file.length)]),
            sha256=checksum if is_sha256 else None,
            crc32c=None if is_sha256 or checksum is None else in_base64(int(checksum, 16)),
        )

    def _add_all(self, uploads: Sequence[Upload]) -> list[Upload]:
        """Record the uploads; returns each as the new one or an earlier one with the same key.

        Replaces an earlier one that lost its bytes in a power cut (see `storage/machine.py`).
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
            outcome = finished.get(upload.id)
            if outcome is None:
                try:
                    outcome = self._completion.finish(upload)
                except UploadError as error:
                    outcome = error
            is_new = upload.id == file.id
            if not is_new and isinstance(outcome, UploadGone):
                # The earlier one has lost its bytes or was cancelled: this one replaces it.
                outcomes.append(self._keep_alone(file))
                continue
            if not is_new:
                self.drop(file)
                if isinstance(outcome, Upload) and outcome.state is not UploadState.COMPLETE:
                    # Its bytes may turn out to be lost, and this file was the only other copy.
                    outcome = ServerBusy("An earlier request still stores this file.")
            outcomes.append(outcome if isinstance(outcome, UploadError) else Kept(outcome, is_new))
        return outcomes


def _removed() -> BodyStalled:
    """The error for a removed file: housekeeping removes files without a record after expiry."""
    return BodyStalled("The body was idle for longer than its file is kept.")


def _awaited(digest: Future[str] | None) -> str | None:
    if digest is None:
        return None
    if digest.done():
        return digest.result()
    with Stage.HASH, without_slot():
        return digest.result()
