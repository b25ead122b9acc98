"""Stores changes of uploads atomically, and shows observers each change."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import Connection

from app.core.upload import Upload, UploadId
from app.db.engine import Database
from app.db.sql import SharedUpdates
from app.records import statements

Observer = Callable[[Connection, Upload | None, Upload | None], None]
"""Called with an upload before and after a change, in the transaction of that change; None if the
upload did not exist before or does not exist after. If it raises, the change is rolled back. Not
called for received bytes unless they change the reservation: that would cost time per chunk."""


class UploadChanges:
    """Building blocks of the transactions in `UploadRecords`."""

    def __init__(self, database: Database, observers: Sequence[Observer]) -> None:
        self._database = database
        self._observers = observers
        self._together = SharedUpdates(self._store_unchanged)

    def apply(
        self,
        connection: Connection,
        upload_id: UploadId,
        change: Callable[[Upload], Upload],
        *,
        claimed_bytes: int = 0,
    ) -> Upload:
        """Apply `change` to the upload and store the result; if it raises, nothing is changed.

        Observers must also accept that it holds `claimed_bytes`, even if it reserves less.
        """
        before = statements.get(connection, upload_id, for_update=True)
        after = change(before)
        if after is not before:
            statements.store(connection, after)
            claim = after.claiming(claimed_bytes) if claimed_bytes else after
            if _what_counts(before) != _what_counts(claim):
                self.observe(connection, before, claim)
            if claim is not after:
                self.observe(connection, claim, after)
        return after

    def observe_new(self, connection: Connection, upload: Upload) -> None:
        """Show observers a new upload; they must also accept its whole length."""
        claim = upload.claiming(upload.length or 0)
        self.observe(connection, None, claim)
        if claim is not upload:
            self.observe(connection, claim, upload)

    def observe(self, connection: Connection, before: Upload | None, after: Upload | None) -> None:
        """Show observers a change made in this transaction."""
        for observe in self._observers:
            observe(connection, before, after)

    def store_if_unchanged(self, after: Upload, before: Upload) -> bool:
        """Store the upload unless it has changed since it was read; returns whether it did."""
        if self._database.is_remote:
            return self._together.make((after, before))
        with self._database.write() as connection:
            return statements.store_if_unchanged(connection, after, before)

    def _store_unchanged(self, changes: Sequence[tuple[Upload, Upload]]) -> list[bool]:
        with self._database.one_statement() as connection:
            return statements.store_unchanged(connection, changes)


def _what_counts(upload: Upload) -> tuple[object, ...]:
    return upload.state, upload.length, upload.reserved, upload.is_stalled
