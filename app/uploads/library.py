"""Published uploads: list, get, read, rename, delete."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from io import RawIOBase

from app.core.access import Reach, Scope
from app.core.errors import InvalidRequest, NoRoom, UploadGone, UploadNotFound
from app.core.lifecycle import IllegalTransition, UploadState
from app.core.policy import clean_filename
from app.core.ranges import ByteRange
from app.core.upload import Upload, UploadId
from app.core.video_list import VideoList
from app.db.context import Context
from app.records.uploads import UploadRecords
from app.storage.base import Library

MAX_PAGE = 200
"""Most videos on one page; larger limits are reduced to this."""

SIGNED_SECONDS = 900
"""How long a signed URL is valid. A download that starts in time runs to its end; a client that
resumes requests a new URL."""

NEWEST_FIRST = VideoList()

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VideoPage:
    """One page of videos; `next_cursor` points to the next page, if there is one."""

    videos: list[Upload]
    next_cursor: str | None


class VideoLibrary:
    """Operations on complete uploads, for the pages, the API and delivery."""

    max_page = MAX_PAGE

    def __init__(self, ctx: Context, records: UploadRecords, store: Library) -> None:
        self._records = records
        self._store = store
        self._policy = ctx.settings.policy
        self._clock = ctx.clock

    def want_sha256(self, *videos: Upload) -> None:
        """Request the SHA-256 of videos that lack it; computed soon, or once they are complete."""
        if without := [video.id for video in videos if video.sha256 is None]:
            self._records.want_sha256(without)

    def page(
        self,
        scope: Scope,
        wanted: VideoList = NEWEST_FIRST,
        *,
        limit: int,
        cursor: str | None = None,
    ) -> VideoPage:
        """Returns at most `limit` of the wanted videos, from `cursor` on.

        Paging lists every video once, even if others are added or deleted between pages. Only a
        video renamed between pages can be missed or listed twice, if sorted by name or in a search.
        Returns no videos unless the scope includes all of them. Raises `InvalidRequest` for a
        cursor from another list.
        """
        if scope.reach is not Reach.ALL:
            return VideoPage([], None)
        limit = max(1, min(limit, self.max_page))
        after = None if cursor is None else wanted.parse_cursor(cursor)
        found = self._records.videos(scope.project, wanted, limit + 1, after)
        videos = found[:limit]
        return VideoPage(videos, wanted.cursor_after(videos[-1]) if len(found) > limit else None)

    def all(self, scope: Scope) -> Iterator[Upload]:
        """Yields every video, newest first; leaves out videos published during the iteration."""
        cursor = None
        while True:
            page = self.page(scope, limit=self.max_page, cursor=cursor)
            yield from page.videos
            if (cursor := page.next_cursor) is None:
                return

    def get(self, scope: Scope, upload_id: UploadId) -> Upload:
        """Returns a complete upload; raises `UploadNotFound`, `NotAllowed` or `UploadGone`."""
        upload = scope.require(self._records.get(upload_id))
        if upload.require_present().state is not UploadState.COMPLETE:
            raise UploadNotFound("The upload is not complete yet.")
        return upload

    def open(self, upload: Upload, span: ByteRange) -> RawIOBase:
        """Open the bytes of a video from `span.start` on; raises `UploadGone`."""
        try:
            return self._store.open(upload.id, span)
        except FileNotFoundError as error:
            raise _gone(upload, error) from error

    def hand_over(self, upload: Upload) -> bool:
        """Let a server in this process's group read the file; raises `UploadGone`.

        Returns False and does nothing if the file is not on a disk of this machine.
        """
        if self._store.let_group_read is None:
            return False
        try:
            self._store.let_group_read(upload.id)
        except FileNotFoundError as error:
            raise _gone(upload, error) from error
        return True

    def signed_url(self, upload: Upload, *, content_type: str, disposition: str) -> str | None:
        """Returns a URL at which the store serves the file, with these headers, to any client.

        Valid for `SIGNED_SECONDS`, even if the video is then deleted or hidden. Returns None if the
        store does not support such URLs; raises `UploadGone`.
        """
        if self._store.sign_url is None:
            return None
        try:
            return self._store.sign_url(
                upload.id, SIGNED_SECONDS, content_type=content_type, disposition=disposition
            )
        except FileNotFoundError as error:
            raise _gone(upload, error) from error

    def rename(self, scope: Scope, upload_id: UploadId, filename: str) -> Upload:
        """Rename a video; returns it. Raises like `get`, `InvalidRequest`, `TypeNotAllowed`.

        The content type always follows from the name.
        """
        if not clean_filename(filename):
            raise InvalidRequest("The new name is empty.")
        name = self._policy.check_filename(filename)
        return self._records.rename(self.get(scope, upload_id).id, name)

    def delete(self, scope: Scope, upload_id: UploadId) -> Upload:
        """Delete a video and its file; returns the video as it was before. Raises like `get`."""
        upload = self.get(scope, upload_id)
        try:
            self._move_to_deleted(upload)
        except IllegalTransition as error:
            raise UploadGone("The video was deleted.") from error
        self._store.delete(upload.id)
        return upload

    def _move_to_deleted(self, upload: Upload) -> None:
        try:
            self._records.move(upload.id, UploadState.DELETED, self._clock())
        except NoRoom:
            # Delete the file first: the record may need its space. The only step from `complete` is
            # to `deleted`, so this loses nothing that could have been kept.
            self._store.delete(upload.id)
            self._records.move(upload.id, UploadState.DELETED, self._clock())


def _gone(video: Upload, error: FileNotFoundError) -> UploadGone:
    log.error("video cannot be opened: %s", error.strerror, extra={"upload_id": video.id})
    return UploadGone("The file of this video is no longer there.")
