"""Finds the media worker's work in the records: what a lost message, a crash or a deletion left."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice

from app.domain.errors import UploadGone, UploadNotFound
from app.domain.jobs import INDEX, Lane
from app.domain.lifecycle import GONE
from app.domain.upload import UploadId
from app.media.folder import MediaFolder
from app.records.jobs import JobRecords
from app.records.media import MediaRecords
from app.records.uploads import UploadRecords

BATCH = 100
"""Uploads looked at in one query."""

RECENT = timedelta(seconds=90)
"""How far back a look at recent uploads goes. What it misses, as when the clock was set, a look at
all of them finds."""

_ABSENT = frozenset({None, *GONE})


class MediaSweep:
    """Each method can be repeated; the media worker calls them, and at once again for more."""

    def __init__(
        self,
        jobs: JobRecords,
        media: MediaRecords,
        uploads: UploadRecords,
        *,
        folder: MediaFolder,
        clock: Callable[[], datetime],
    ) -> None:
        self._jobs = jobs
        self._media = media
        self._uploads = uploads
        self._folder = folder
        self._clock = clock

    def plan(self, *, is_recent: bool) -> bool:
        """Queue the first step of complete uploads; with `is_recent`, of those of a minute ago.

        Whether there may be more. Others, such as all there are after an update, give way to
        recent ones.
        """
        lane = Lane.QUICK if is_recent else Lane.BACKGROUND
        found = self._media.unplanned(BATCH, since=self._since(is_recent=is_recent))
        for upload_id in found:
            with suppress(UploadGone, UploadNotFound):  # Deleted meanwhile.
                self._plan(upload_id, lane)
        return len(found) == BATCH

    def forget(self, *, is_recent: bool) -> bool:
        """Remove the jobs and files of uploads that were deleted; whether there may be more."""
        found = self._media.gone(BATCH, since=self._since(is_recent=is_recent))
        for upload_id in found:
            self._folder.remove(upload_id)
            self._jobs.forget(upload_id)
            self._media.forget(upload_id)
        return len(found) == BATCH

    def remove_abandoned(self) -> None:
        """Remove what killed workers left half-made."""
        self._folder.remove_abandoned()

    def remove_strays(self) -> None:
        """Remove the files of videos that are gone. Reads the whole folder: for a start."""
        names = self._folder.videos()
        while upload_ids := list(islice(names, BATCH)):
            states = self._uploads.states(upload_ids)
            for upload_id in upload_ids:
                if states.get(upload_id) in _ABSENT:
                    self._folder.remove(upload_id)

    def remove_if_gone(self, upload_id: UploadId) -> None:
        """Remove what a step has made of a video that was deleted meanwhile."""
        if self._uploads.states([upload_id]).get(upload_id) in _ABSENT:
            self._folder.remove(upload_id)

    def _since(self, *, is_recent: bool) -> datetime | None:
        return self._clock() - RECENT if is_recent else None

    def _plan(self, upload_id: UploadId, lane: Lane) -> None:
        now = self._clock()
        # In this order: after a crash between the two, both happen again.
        self._jobs.enqueue(upload_id, INDEX, lane=lane, priority=0, now=now, renew=True)
        self._media.add(upload_id, now, is_planned=True)
