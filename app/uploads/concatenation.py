"""Concatenates several partial uploads into one file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime

from app.core.errors import (
    LinkClosed,
    LinkFull,
    QuotaExceeded,
    TooLarge,
    UploadGone,
    UploadNotFound,
)
from app.core.lifecycle import GONE, IllegalTransition, UploadState
from app.core.policy import UploadPolicy
from app.core.upload import Upload, UploadId, UploadPart
from app.records.uploads import UploadRecords
from app.storage.base import Store


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

    def __init__(
        self,
        records: UploadRecords,
        store: Store,
        *,
        policy: UploadPolicy,
        clock: Callable[[], datetime],
    ) -> None:
        self._records = records
        self._store = store
        self._policy = policy
        self._clock = clock

    def waiting_for(self, part: Upload) -> list[Upload]:
        """Concatenations that contain `part` and are not published yet."""
        return self._records.waiting_for(part.id)

    def begin(self, upload: Upload) -> Upload:
        """Move the upload to `verifying` and reserve its space, if every part is held by now.

        Raises `TooLarge`, `NoRoom`, `QuotaExceeded`, `LinkFull`, and `UploadGone` if a part has
        ended: that ends the upload.
        """
        states = self._part_states(upload)
        sources = self._sources(upload, states)
        if sources is None:
            return self._waiting(upload, states)
        length = sum(length for _, length in sources)
        self._policy.check_length(length)  # A part's length may have been declared late.
        self._store.staging.reserve(upload.id, length)
        try:
            return self._records.add_parts(upload.id, length, self._clock())
        except (QuotaExceeded, LinkClosed, LinkFull, TooLarge):
            self._store.staging.remove(upload.id)  # It is still `receiving`: the file is empty.
            raise
        except (UploadGone, UploadNotFound):
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
                with suppress(IllegalTransition, UploadNotFound):
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

    def _waiting(self, upload: Upload, states: set[UploadState | None]) -> Upload:
        """Returns the upload's current state; expires it if a part has ended.

        Parts also end when another request has published the upload.
        """
        upload = self._records.get(upload.id)
        if upload.state is UploadState.RECEIVING and states & {*GONE, None}:
            with suppress(IllegalTransition):
                self._records.move(upload.id, UploadState.EXPIRED, self._clock())
            upload = self._records.get(upload.id)
        return upload.require_present()

    def _part_states(self, upload: Upload) -> set[UploadState | None]:
        """The states of the parts; None stands for a part without a record."""
        upload_ids = [part.upload_id for part in self._records.parts(upload.id)]
        states = self._records.states(upload_ids)
        return {states.get(upload_id) for upload_id in upload_ids}

    def _parts(self, upload: Upload) -> list[Upload]:
        return [self._records.get(part.upload_id) for part in self._records.parts(upload.id)]
