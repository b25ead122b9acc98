"""From the last byte to a published file: exactly once, however many requests try."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from typing import NoReturn

from app.domain.errors import UploadGone
from app.domain.events import UploadCompleted
from app.domain.lifecycle import IllegalTransition, UploadState
from app.domain.upload import Upload
from app.records.base import UploadRecords
from app.storage.base import BytesLost, UploadStore

ANSWER_WITHIN_SECONDS = 20.0
"""Proxies give up on a silent server after 30 to 60 s. Publishing across file systems copies, and
may take longer: it then goes on while the client is told `verifying`, and asks again."""

PUBLISHING_THREADS = 4

Listener = Callable[[UploadCompleted], None]


class Completion:
    """Publishes uploads whose bytes are all there."""

    def __init__(
        self,
        records: UploadRecords,
        store: UploadStore,
        *,
        clock: Callable[[], datetime],
        listeners: Sequence[Listener] = (),
    ) -> None:
        self._records = records
        self._store = store
        self._clock = clock
        self._listeners = listeners
        self._pool = ThreadPoolExecutor(PUBLISHING_THREADS, thread_name_prefix="publish")

    def finish(self, upload: Upload) -> Upload:
        """The published upload, or the upload as it stands if that takes long."""
        task = self._pool.submit(self.publish, upload)
        try:
            return task.result(timeout=ANSWER_WITHIN_SECONDS)
        except TimeoutError:
            return self._records.get(upload.id)

    def publish(self, upload: Upload) -> Upload:
        """Publish an upload in `verifying`; harmless if another does so too, or has done.

        Raises `UploadGone` where it was cancelled meanwhile or its bytes are lost.
        """
        try:
            self._store.publish(upload.id, upload.known_length)
        except BytesLost:
            self.give_up(upload)
        try:
            published = self._records.move(upload.id, UploadState.COMPLETE, self._clock())
        except IllegalTransition:
            return self._published_by_another(upload)
        for listener in self._listeners:
            listener(UploadCompleted(published))
        return published

    def give_up(self, upload: Upload) -> NoReturn:
        """End an upload whose bytes the store has lost, so that its client starts afresh."""
        with suppress(IllegalTransition):
            self._records.move(upload.id, UploadState.EXPIRED, self._clock())
            self._store.delete(upload.id)
        self._records.get(upload.id).require_present()
        raise UploadGone("The server has lost the bytes of this upload.")

    def _published_by_another(self, upload: Upload) -> Upload:
        current = self._records.get(upload.id)
        if current.state is not UploadState.COMPLETE:
            self._store.delete(upload.id)
        return current.require_present()
