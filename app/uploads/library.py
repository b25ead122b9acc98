"""Published uploads: list, look at, read, rename, delete."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from io import RawIOBase

from app.core.access import Reach, Scope
from app.core.errors import InvalidRequest, NoRoom, UploadGone, UploadNotFound
from app.core.lifecycle import IllegalTransition, UploadState
from app.core.policy import UploadPolicy, clean_filename
from app.core.ranges import ByteRange
from app.core.upload import Upload, UploadId
from app.core.video_list import VideoList
from app.records.uploads import UploadRecords
from app.storage.base import Library, SignUrl

MAX_PAGE = 200
"""Most videos on one page; larger requests are cut to this."""

SIGNED_SECONDS = 900
"""How long a signed URL is valid. A download that started in time runs to its end; a client that
resumes comes here again."""

NEWEST_FIRST = VideoList()

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VideoPage:
    """Some videos of a list; `next_cursor` names the page after them, if there is one."""

    videos: list[Upload]
    next_cursor: str | None


class VideoLibrary:
    """What the pages, the API and delivery do with complete uploads."""

    max_page = MAX_PAGE

    def __init__(
        self,
        records: UploadRecords,
        store: Library,
        *,
        policy: UploadPolicy,
        clock: Callable[[], datetime],
        let_group_read: Callable[[str], None] | None = None,
        sign_url: SignUrl | None = None,
    ) -> None:
        """With `let_group_read` or `sign_url`, other programs can send the files too."""
        self._records = records
        self._store = store
        self._policy = policy
        self._clock = clock
        self._let_group_read = let_group_read
        self._sign_url = sign_url

    def want_sha256(self, *videos: Upload) -> None:
        """Have their SHA-256 computed soon, or once they are complete, unless it is on record."""
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
        """At most `limit` of the wanted videos, from `cursor` on.

        Paging lists every video once, whatever is added or deleted meanwhile; only one that is
        renamed meanwhile can be missed or listed twice, in the order of names or in a search.
        Who may not see all videos finds none. Raises `InvalidRequest` for a cursor that is not from
        this list.
        """
        if scope.reach is not Reach.ALL:
            return VideoPage([], None)
        limit = max(1, min(limit, self.max_page))
        after = None if cursor is None else wanted.parse_cursor(cursor)
        found = self._records.videos(scope.project, wanted, limit + 1, after)
        videos = found[:limit]
        return VideoPage(videos, wanted.cursor_after(videos[-1]) if len(found) > limit else None)

    def all(self, scope: Scope) -> Iterator[Upload]:
        """Every video, newest first, page by page; one published meanwhile is left out."""
        cursor = None
        while True:
            page = self.page(scope, limit=self.max_page, cursor=cursor)
            yield from page.videos
            if (cursor := page.next_cursor) is None:
                return

    def get(self, scope: Scope, upload_id: UploadId) -> Upload:
        """A complete upload; raises `UploadNotFound`, `NotAllowed` or `UploadGone`."""
        upload = scope.require(self._records.get(upload_id))
        if upload.require_present().state is not UploadState.COMPLETE:
            raise UploadNotFound("The upload is not complete yet.")
        return upload

    def open(self, upload: Upload, span: ByteRange) -> RawIOBase:
        """The bytes of a video from `span.start` on."""
        try:
            return self._store.open(upload.id, span)
        except FileNotFoundError as error:
            raise _gone(upload, error) from error

    def hand_over(self, upload: Upload) -> bool:
        """Let a server in this program's group read the file itself; raises `UploadGone`.

        Returns False, and does nothing, if it is not on a disk of this machine.
        """
        if self._let_group_read is None:
            return False
        try:
            self._let_group_read(upload.id)
        except FileNotFoundError as error:
            raise _gone(upload, error) from error
        return True

    def signed_url(self, upload: Upload, *, content_type: str, disposition: str) -> str | None:
        """A URL at which the store sends the file, with these headers, to whoever has the URL.

        It is valid for `SIGNED_SECONDS`, even if the video is deleted or hidden meanwhile. None if
        the store has no such URLs; raises `UploadGone`.
        """
        if self._sign_url is None:
            return None
        try:
            return self._sign_url(
                upload.id, SIGNED_SECONDS, content_type=content_type, disposition=disposition
            )
        except FileNotFoundError as error:
            raise _gone(upload, error) from error

    def rename(self, scope: Scope, upload_id: UploadId, filename: str) -> Upload:
        """The video under its new name; raises as `get` does, `InvalidRequest`, `TypeNotAllowed`.

        Its content type always follows from its name.
        """
        if not clean_filename(filename):
            raise InvalidRequest("The new name is empty.")
        name = self._policy.check_filename(filename)
        return self._records.rename(self.get(scope, upload_id).id, name)

    def delete(self, scope: Scope, upload_id: UploadId) -> Upload:
        """Remove a video and its file; what it was. Raises as `get` does."""
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
            # Delete the file first: the record may need its space. A complete upload can only be
            # deleted, so nothing is lost that could have been kept.
            self._store.delete(upload.id)
            self._records.move(upload.id, UploadState.DELETED, self._clock())


def _gone(video: Upload, error: FileNotFoundError) -> UploadGone:
    log.error("video cannot be opened: %s", error.strerror, extra={"upload_id": video.id})
    return UploadGone("The file of this video is no longer there.")
