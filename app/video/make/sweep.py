"""Finds work for the media worker in the records: after lost messages, crashes and deletions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice

from app.core.errors import UploadGone, UploadNotFound
from app.core.jobs import INDEX, REMUX, SOUND, Job, Lane
from app.core.lifecycle import GONE
from app.core.playback import PlaybackProblem, PlaybackState
from app.core.upload import UploadId
from app.records.uploads import UploadRecords
from app.video.make.pictures import EARLY_POSTER, PICTURES
from app.video.make.remux import NO_FILM, is_played_as_it_is
from app.video.make.sound import WAVEFORM
from app.video.make.steps import NO_FFMPEG, NO_RENDITIONS
from app.video.serve.folder import MediaFolder
from app.video.serve.renditions import RENDITION, SEGMENTS
from app.video.serve.rows import MediaRecords

BATCH = 100
"""Uploads per query and per transaction."""

RECENT = timedelta(seconds=90)
"""How far back a sweep of recent uploads goes. A sweep of all uploads finds those that it misses,
such as after a clock change."""

NEED_FFMPEG = frozenset((REMUX, SOUND, PICTURES, WAVEFORM))
"""Steps that need ffmpeg; every playable video gets one of them."""

NOT_AWAITED = frozenset((SEGMENTS, RENDITION, EARLY_POSTER))
"""Steps that a ready video may lack: renditions, and the poster made during the upload."""

NOT_INDEXED = PlaybackProblem(
    "not_indexed", "Nobody has looked at this file: its index was cancelled."
)

_ABSENT = frozenset({None, *GONE})


class MediaSweep:
    """Each method is idempotent, and changes its records in one transaction.

    Methods that return a number return the number of videos they processed. If that is `BATCH`,
    there may be more: the media worker calls them again, after a pause.
    """

    def __init__(  # noqa: PLR0913 - called by the composition root alone, with names
        self,
        media: MediaRecords,
        uploads: UploadRecords,
        *,
        folder: MediaFolder,
        clock: Callable[[], datetime],
        has_ffmpeg: bool = False,
        is_no_film: Callable[[UploadId], bool] = lambda _: False,
        when_ready: Callable[[UploadId], object] = lambda _: None,
    ) -> None:
        self._media = media
        self._uploads = uploads
        self._folder = folder
        self._clock = clock
        self._has_ffmpeg = has_ffmpeg
        self._is_no_film = is_no_film
        self._when_ready = when_ready

    def plan(self, *, is_recent: bool) -> int:
        """Queue the first step of complete uploads; with `is_recent`, of recent uploads only.

        Others, such as all uploads after an update, yield to recent ones. A recent file that is
        clearly no video by its first bytes gets no job: thousands of those may arrive at once.
        """
        lane = Lane.QUICK if is_recent else Lane.BACKGROUND
        found = self._media.unplanned(BATCH, since=self._since(is_recent=is_recent))
        if no_films := list(filter(self._is_no_film, found)) if is_recent else []:
            self._media.add_unplayable(no_films, NO_FILM, self._clock())
        if found:
            self._media.plan(found, lane, self._clock())
        return len(found)

    def conclude(self, *, is_recent: bool) -> int:
        """Set the state of videos with a permanently failed step, which would wait forever.

        Jobs cancelled by an operator are only found without `is_recent`.
        """
        ended = {job.upload_id: job for job in self._media.undescribed(BATCH, is_recent=is_recent)}
        if ended:
            found = [self._conclusion(job) for job in ended.values()]
            self._media.conclude(found, self._clock())
        return len(ended)

    def settle(self, only: UploadId | None = None) -> int:
        """Mark videos as ready that are playable and have no automatic steps left.

        Checks all videos, which reads them all, or `only` one. The outcome of their jobs does not
        matter.
        """
        found = self._media.settle(NOT_AWAITED, self._clock(), limit=BATCH, only=only)
        for upload_id in found:
            with suppress(UploadGone, UploadNotFound):
                self._when_ready(upload_id)
        return len(found)

    def plan_unmade(self) -> None:
        """Plan videos again for which ffmpeg or renditions may have become available."""
        if self._has_ffmpeg:
            self._media.plan_unmade(NEED_FFMPEG, {NO_FFMPEG, NO_RENDITIONS})

    def forget(self, *, is_recent: bool) -> int:
        """Remove the jobs and files of deleted uploads."""
        found = self._media.gone(BATCH, since=self._since(is_recent=is_recent))
        for upload_id in found:
            self._folder.remove(upload_id)
        if found:
            self._media.forget(found)
        return len(found)

    def remove_abandoned(self) -> None:
        """Remove the half-made files of killed workers."""
        self._folder.remove_abandoned()

    def remove_strays(self) -> None:
        """Remove the files of deleted videos. Reads the whole folder: only called at start."""
        names = self._folder.videos()
        while upload_ids := list(islice(names, BATCH)):
            states = self._uploads.states(upload_ids)
            for upload_id in upload_ids:
                if states.get(upload_id) in _ABSENT:
                    self._folder.remove(upload_id)

    def remove_if_gone(self, upload_id: UploadId) -> None:
        """Remove files that a step has made of a video that is already deleted."""
        if self._uploads.states([upload_id]).get(upload_id) in _ABSENT:
            self._folder.remove(upload_id)

    def _since(self, *, is_recent: bool) -> datetime | None:
        return self._clock() - RECENT if is_recent else None

    def _conclusion(self, job: Job) -> tuple[UploadId, PlaybackState, PlaybackProblem | None]:
        if job.step == INDEX and is_played_as_it_is(self._uploads.get(job.upload_id)):
            return job.upload_id, PlaybackState.PLAYABLE, None
        return job.upload_id, PlaybackState.UNPLAYABLE, job.problem or NOT_INDEXED
