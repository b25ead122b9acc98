"""The lifecycle of uploads, from creation to end, except for their bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from app.core import errors
from app.core.access import Scope, is_through_link
from app.core.lifecycle import GONE, IllegalTransition, UploadState
from app.core.policy import (
    UNNAMED,
    Allowance,
    check_client_key,
    check_fingerprint,
    no_allowance,
)
from app.core.upload import (
    LEAST_AHEAD_BYTES,
    Upload,
    UploadId,
    UploadKind,
    UploadPart,
    parse_upload_id,
)
from app.db.context import Context
from app.ingest.checksum import is_comparable
from app.records.uploads import Sent, UploadRecords
from app.storage.base import Store
from app.uploads.completion import Completion, made_before

CANCELLED_AT_ONCE = 100
"""Number of uploads that one query reads in order to cancel them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewUpload:
    """A client's description of a file that it is going to send; `length` in bytes.

    `scope` defines the target project and the sender; the other fields are those of `Upload`. Name
    and length are None if not known yet.
    """

    scope: Scope
    filename: str | None
    length: int | None
    client_key: str | None = None
    fingerprint: str | None = None
    kind: UploadKind = UploadKind.FILE
    metadata: str | None = None
    repr_digest: str | None = None


class UploadService:
    """Client operations on uploads, except sending bytes: see `Chunks` and `WholeFiles`."""

    def __init__(
        self,
        ctx: Context,
        records: UploadRecords,
        store: Store,
        *,
        completion: Completion,
        allowance: Allowance = no_allowance,
    ) -> None:
        self._records = records
        self._store = store
        self._completion = completion
        self._policy = ctx.settings.policy
        self._clock = ctx.clock
        self._new_id = ctx.new_id
        self._allowance = allowance

    def create(self, new: NewUpload) -> tuple[Upload, bool]:
        """Create an upload and reserve its space; returns it, and whether it is new.

        Returns an earlier upload if the client key is known, or if the fingerprint matches a file
        that is unfinished or complete. Raises `TooLarge`, `NoRoom`, `TypeNotAllowed`,
        `InvalidRequest`, `UploadConflict` if the earlier one has another length, `UploadGone` if it
        has ended.
        """
        upload = self._upload_of(new)
        if new.fingerprint is not None and new.length is not None:
            existing = self._records.find_fingerprint(
                new.scope.target(), new.fingerprint, new.length, sender=new.scope.finds_of
            )
            if existing is not None:
                return existing, False
        is_derived = new.client_key is None and upload.client_key != upload.id
        stored, is_new = self._records.add(upload, renews_key=is_derived)
        if is_new:
            try:
                self._store.staging.reserve(
                    stored.id, stored.length or 0, allocates=stored.reserved is None
                )
            except BaseException:
                # Keep the upload if the client has repeated the request and sent bytes.
                if self._records.remove(stored.id, only_if_empty=True):
                    self._store.library.delete(stored.id)
                raise
        return _same_length(stored.require_present(), new.length), is_new

    def concatenate(self, new: NewUpload, parts: Sequence[UploadPart]) -> Upload:
        """Concatenate partial uploads in order; some of them may still be unfinished.

        The file is published once every part is complete, and the parts then expire. Repeating the
        request returns the same file, unless that has ended and the parts have not. With other
        names for the parts or the file it makes another file; once the parts have expired, it is
        copied from the earlier file made of them. Raises like `create`, and `InvalidRequest` for
        uploads that are not partial.
        """
        # A client that lost the response may repeat the request after the parts have expired.
        names = [part.reference for part in parts]
        key = derived_key("parts", new.filename, new.metadata, *names)
        upload = self._records.find(new.scope.target(), new.scope.key(key))
        if upload is None or upload.state in GONE:
            self._check_parts(new.scope, parts)
            whole = replace(new, client_key=key, kind=UploadKind.CONCATENATION, length=None)
            upload, _ = self._records.add(self._upload_of(whole), parts, renews_key=True)
        return self._completion.finish(upload.require_present())

    def parts(self, upload: Upload) -> list[UploadPart]:
        """The parts of a concatenation, in order."""
        return self._records.parts(upload.id)

    def length_of_parts(self, upload: Upload) -> int | None:
        """The length that a concatenation will have; None while a part's length is unknown."""
        lengths = [self._records.get(part.upload_id).length for part in self.parts(upload)]
        known = [length for length in lengths if length is not None]
        return sum(known) if len(known) == len(lengths) else None

    def rename(self, upload: Upload, filename: str) -> Upload:
        """Name an upload that was created without a name; raises like `create` for a bad name."""
        name = self._policy.check_filename(filename)
        self._allowance(upload.sender, name, upload_id=upload.id)
        return self._records.rename(upload.id, name)

    def get(self, scope: Scope, upload_id: UploadId) -> Upload:
        """The upload; raises `UploadNotFound`, `NotAllowed` or `UploadGone`."""
        return scope.require(self._records.get(upload_id)).require_present()

    def get_all(self, scope: Scope, upload_ids: Sequence[UploadId]) -> list[Upload]:
        """Returns the uploads that `get` would return, in the order of the ids."""
        known = self._records.get_all(upload_ids)
        found = []
        for upload_id in dict.fromkeys(upload_ids):
            with suppress(KeyError, errors.UploadNotFound, errors.NotAllowed, errors.UploadGone):
                found.append(scope.require(known[upload_id]).require_present())
        return found

    def find(self, scope: Scope, client_key: str, length: int) -> Upload | None:
        """Returns the upload with a client's key; raises `UploadConflict` if its length differs."""
        upload = self.called(scope, client_key)
        return None if upload is None else _same_length(upload, length)

    def called(self, scope: Scope, client_key: str) -> Upload | None:
        """Returns the upload with a client's key, of any length; raises `UploadGone`."""
        key = scope.key(check_client_key(client_key))
        upload = self._records.find(scope.target(), key)
        return None if upload is None else upload.require_present()

    def release_key(self, scope: Scope, client_key: str) -> None:
        """Release the key of an upload that has ended, so that a new one can use it."""
        self._records.release_key(scope.target(), scope.key(client_key))

    def forget_key(self, upload: Upload) -> None:
        """Release the key of an upload that stays: its client no longer needs the key."""
        self._records.forget_key(upload.id)

    def active(self, scope: Scope, limit: int) -> list[Upload]:
        """Unfinished uploads, newest first."""
        return self._records.active(scope.project, limit, sender=scope.finds_of)

    def sent(self, scope: Scope, limit: int) -> Sent:
        """Returns totals of what the client has sent to its project, and the latest `limit` files.

        Returns zeros if several people may share that sender.
        """
        if scope.project is None or scope.is_crowd:
            return Sent([], 0, 0, 0)
        return self._records.sent(scope.project, scope.sender, limit)

    def count_active(self) -> dict[UploadState, int]:
        """The number of unfinished uploads in each state, of all owners."""
        return self._records.count_active()

    def cancel(self, scope: Scope, upload_id: UploadId) -> Upload:
        """Cancel an upload and free its space; returns it as it was before.

        Raises `UploadComplete` if it is complete already, and `ServerBusy` for a part of a file
        that is being published: the request for that file may have been answered.
        """
        upload = self.get(scope, upload_id)
        wholes = self._records.waiting_for(upload.id)
        if any(whole.state is UploadState.VERIFYING for whole in wholes):
            raise errors.ServerBusy("The file that this is a part of is being stored.")
        try:
            self._records.move(upload.id, UploadState.CANCELLED, self._clock())
        except IllegalTransition as error:
            self.get(scope, upload_id)
            raise errors.UploadComplete("The upload is complete: delete its video.") from error
        self._store.library.delete(upload.id)
        return upload

    def cancel_all(self, senders: str) -> None:
        """Cancel the unfinished uploads of senders with this prefix, and free their space."""
        while found := self._records.unfinished_of(senders, CANCELLED_AT_ONCE):
            for upload in found:
                with suppress(IllegalTransition, errors.UploadNotFound):
                    self._records.move(upload.id, UploadState.CANCELLED, self._clock())
                    self._store.library.delete(upload.id)

    def _upload_of(self, new: NewUpload) -> Upload:
        """Returns a new upload, not stored yet; raises the policy's errors, and `NotAllowed`."""
        if new.filename is None or (new.kind is UploadKind.PARTIAL and not new.filename):
            filename = UNNAMED  # A partial upload never becomes a video, so it needs no name.
        else:
            filename = self._policy.check_filename(new.filename)
        self._policy.check_length(new.length or 0)
        if new.fingerprint is not None:
            check_fingerprint(new.fingerprint)
        if new.repr_digest is not None and not is_comparable(new.repr_digest):
            raise errors.InvalidRequest("The digest of the file is not one the server can compare.")
        # An upload through a link reserves only some bytes before its first one.
        is_ahead = new.kind is not UploadKind.CONCATENATION and is_through_link(new.scope.sender)
        upload_id, now = parse_upload_id(self._new_id()), self._clock()
        if new.client_key is not None:
            client_key = new.scope.key(check_client_key(new.client_key))
        elif new.fingerprint is not None and new.length is not None and not new.scope.is_crowd:
            client_key = derived_key("sending", new.length, new.fingerprint, *whose(new.scope))
        else:
            client_key = upload_id
        return Upload(
            id=upload_id,
            owner=new.scope.target(),
            sender=new.scope.sender,
            filename=filename,
            length=new.length,
            client_key=client_key,
            fingerprint=new.fingerprint,
            created_at=now,
            active_at=now,
            kind=new.kind,
            metadata=new.metadata,
            repr_digest=new.repr_digest,
            reserved=min(new.length or 0, LEAST_AHEAD_BYTES) if is_ahead else None,
        )

    def _check_parts(self, scope: Scope, parts: Sequence[UploadPart]) -> None:
        try:
            uploads = [self.get(scope, part.upload_id) for part in parts]
        except (errors.UploadGone, errors.UploadNotFound):
            if not made_before(self._records, scope.target(), parts):
                raise
            return
        if not uploads or any(upload.kind is not UploadKind.PARTIAL for upload in uploads):
            raise errors.InvalidRequest("Only partial uploads can be concatenated.")
        self._policy.check_length(sum(upload.length or 0 for upload in uploads))


def derived_key(purpose: str, *facts: object) -> str:
    """Derive a client key from facts that identify a file among those of its owner.

    A key belongs to only one upload, so of several simultaneous requests only one creates it.
    """
    text = "\0".join(str(fact) for fact in facts)
    return f"{purpose}:{hashlib.sha256(text.encode()).hexdigest()}"


def whose(scope: Scope) -> list[str]:
    """Extra facts that keep keys apart between senders who can find only their own files."""
    return [scope.sender] if scope.is_private else []


def _same_length(upload: Upload, length: int | None) -> Upload:
    if upload.length != length:
        raise errors.UploadConflict(
            f"The upload was created with {upload.length} bytes, not with {length}."
        )
    return upload
