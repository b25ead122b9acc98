"""Finds the media worker's work in the records: what a lost message, a crash or a deletion left."""

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
"""Uploads looked at in one query, and changed in one transaction."""

RECENT = timedelta(seconds=90)
"""How far back a look at recent uploads goes. What it misses, as when the clock was set, a look at
all of them finds."""

NEED_FFMPEG = frozenset((REMUX, SOUND, PICTURES, WAVEFORM))
"""Steps, one of which every film gets that plays."""

NOT_AWAITED = frozenset((SEGMENTS, RENDITION, EARLY_POSTER))
"""Steps without which a film is ready: other qualities, and what is made while it arrives."""

NOT_INDEXED = PlaybackProblem(
    "not_indexed", "Nobody has looked at this file: its index was cancelled."
)

_ABSENT = frozenset({None, *GONE})


class MediaSweep:
    """Each method can be repeated, and changes its records in one transaction.

    Those that return a number say how many videos they dealt with. If that is `BATCH` there may be
    more: the media worker calls them again, after a pause.
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
        """Queue the first step of complete uploads; with `is_recent`, of those of a minute ago.

        Others, such as all there are after an update, give way to recent ones. A recent file whose
        first bytes are those of no film gets no job: of those, thousands may arrive at once.
        """
        lane = Lane.QUICK if is_recent else Lane.BACKGROUND
        found = self._media.unplanned(BATCH, since=self._since(is_recent=is_recent))
        if no_films := list(filter(self._is_no_film, found)) if is_recent else []:
            self._media.add_unplayable(no_films, NO_FILM, self._clock())
        if found:
            self._media.plan(found, lane, self._clock())
        return len(found)

    def conclude(self, *, is_recent: bool) -> int:
        """Decide about videos whose index or remux failed for good, so that nobody waits for it.

        Those whose job an operator cancelled are only found without `is_recent`.
        """
        ended = {job.upload_id: job for job in self._media.undescribed(BATCH, is_recent=is_recent)}
        if ended:
            found = [self._conclusion(job) for job in ended.values()]
            self._media.conclude(found, self._clock())
        return len(ended)

    def settle(self, only: UploadId | None = None) -> int:
        """Note which films are ready: they play, and nothing more is made of them unasked.

        Of all, which reads them all, or of `only` one. It does not matter how their jobs ended.
        """
        found = self._media.settle(NOT_AWAITED, self._clock(), limit=BATCH, only=only)
        for upload_id in found:
            with suppress(UploadGone, UploadNotFound):
                self._when_ready(upload_id)
        return len(found)

    def plan_unmade(self) -> None:
        """Have videos looked at again for which ffmpeg, or other qualities, may be there now."""
        if self._has_ffmpeg:
            self._media.plan_unmade(NEED_FFMPEG, {NO_FFMPEG, NO_RENDITIONS})

    def forget(self, *, is_recent: bool) -> int:
        """Remove the jobs and files of uploads that were deleted."""
        found = self._media.gone(BATCH, since=self._since(is_recent=is_recent))
        for upload_id in found:
            self._folder.remove(upload_id)
        if found:
            self._media.forget(found)
        return len(found)

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

    def _conclusion(self, job: Job) -> tuple[UploadId, PlaybackState, PlaybackProblem | None]:
        if job.step == INDEX and is_played_as_it_is(self._uploads.get(job.upload_id)):
            return job.upload_id, PlaybackState.PLAYABLE, None
        return job.upload_id, PlaybackState.UNPLAYABLE, job.problem or NOT_INDEXED
