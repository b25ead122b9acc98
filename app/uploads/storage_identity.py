"""Ties the records to the files they describe.

A server with a wrong storage setting would not find the files, and would end every unfinished
upload. So the records store the setting, and a bucket has a mark with the id of the library: each
process compares both when it starts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from app.core.errors import UploadError
from app.core.video_list import VideoList
from app.db.context import Context
from app.db.nodes import SharedValues
from app.records.uploads import UploadRecords

if TYPE_CHECKING:
    from app.storage.s3.bucket import BucketMark

PLACE = "storage"
LIBRARY = "library"
"""Names of shared values: the location of the files, and the id in their mark."""

MOVED = "moved to another database"
"""Replaces the location once the records were copied: another database now owns the files."""

RESTORE = "Restore the setting."

REMEDY = (
    f"{RESTORE} Or, if you have moved the files, stop every server of this library and run "
    "`flask --app wsgi storage adopt`."
)

log = logging.getLogger(__name__)


class WrongStorage(Exception):
    """The files of the library are elsewhere; the message says where and what to do."""


class StorageIdentity:
    """Checks that the storage in the settings has the files that the records describe.

    `mark` is the bucket's mark. Folders have none, since they may be moved. `is_in_bucket` returns
    whether the catalog of buckets has a file.
    """

    def __init__(
        self,
        ctx: Context,
        records: UploadRecords,
        *,
        mark: BucketMark | None,
        is_in_bucket: Callable[[], bool],
    ) -> None:
        self._records = records
        self._values = SharedValues(ctx.database)
        self._place = ctx.settings.storage
        self._mark = mark
        self._is_in_bucket = is_in_bucket
        self._new_id = ctx.new_id

    def require(self) -> None:
        """Raise `WrongStorage` if the files are elsewhere; the first start records their location.

        Accepts a bucket whose mark cannot be read: no file seems to be missing from it.
        """
        known = self._values.get(PLACE)
        is_new = known is None or (
            known != MOVED
            and not self._values.are_shared  # Other nodes may be adding the first files.
            and not self._describe_files()
        )
        if known is None:  # An older version was in use.
            self._require_kind()
        elif not is_new:
            self._require_place(known)
        library = self._library()
        try:
            self._require_mark(library, is_new=is_new)
        except UploadError as error:
            log.warning("cannot tell whether these are the files of this library: %s", error)
            return
        if is_new and self._values.are_shared:
            self._require_place(self._values.agree(PLACE, lambda: self._place))
        elif is_new:
            self._values.put(PLACE, self._place)

    def adopt(self, *, replaces_mark: bool = False) -> None:
        """Record the location in the settings as that of the files; no server may be running.

        With `replaces_mark`, even if they have the mark of another library; otherwise that raises
        `WrongStorage`. Also raises errors of the bucket.
        """
        self._require_kind()
        self._require_mark(self._library(), is_new=True, replaces=replaces_mark)
        self._values.put(PLACE, self._place)

    def require_records(self) -> None:
        """Raise `WrongStorage` if `leave` was called: these records are out of date."""
        if self._values.get(PLACE) == MOVED:
            self._require_place(MOVED)

    def leave(self) -> None:
        """Reject servers and commands from now on: the records are in another database."""
        self._values.put(PLACE, MOVED)

    def _library(self) -> str:
        return self._values.agree(LIBRARY, self._new_id)

    def _describe_files(self) -> bool:
        """Whether the records have uploads or videos."""
        return bool(self._records.active(None, 1) or self._records.videos(None, VideoList(), 1))

    def _require_kind(self) -> None:
        """Raise `WrongStorage` unless the files are of the kind in the settings: bucket or folders.

        Only files in a bucket have rows in its catalog, and without rows they cannot be found.
        """
        if not self._describe_files():
            return
        is_in_bucket = self._is_in_bucket()
        if is_in_bucket != bool(self._place):
            where = "a bucket" if is_in_bucket else "folders"
            raise WrongStorage(
                f"The files of this library are in {where}, but SLUICE_STORAGE "
                f"{self._told_place()}. {RESTORE}"
            )

    def _told_place(self) -> str:
        return f"is {self._place}" if self._place else "is empty"

    def _require_place(self, known: str) -> None:
        if known == MOVED:
            raise WrongStorage(
                "The records of this library were moved to another database by `database copy`: "
                "set SLUICE_DATABASE_URL to that one. Or, if it is not used and these records are "
                "to be used again, run `flask --app wsgi storage adopt`."
            )
        if known != self._place:
            raise WrongStorage(
                f"The files of this library are in {known or 'folders'}, but SLUICE_STORAGE "
                f"{self._told_place()}. {REMEDY if known and self._place else RESTORE}"
            )

    def _require_mark(self, library: str, *, is_new: bool, replaces: bool = False) -> None:
        if self._mark is None:
            return
        found = self._mark.read()
        if found == library:
            return
        if (found is None and is_new) or replaces:
            self._mark.write(library)
            found = self._mark.read()  # Two libraries may start in one bucket at the same time.
            if found == library:
                return
        if found is None:
            raise WrongStorage(
                f"{self._place} does not have the mark of this library: it was emptied, or "
                f"SLUICE_STORAGE and SLUICE_S3_ENDPOINT lead elsewhere. {REMEDY}"
            )
        raise WrongStorage(
            f"{self._place} has the files of another library. Set SLUICE_STORAGE to a folder of "
            "its own in the bucket. Or, if these are the files of this one, stop every server that "
            "uses them and run `flask --app wsgi storage adopt --replace-mark`."
        )
