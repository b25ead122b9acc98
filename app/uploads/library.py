"""Published uploads: list, look at, read, delete."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import RawIOBase

from app.domain.errors import InvalidRequest, NoRoom, UploadGone, UploadNotFound
from app.domain.lifecycle import IllegalTransition, UploadState
from app.domain.ranges import ByteRange
from app.domain.upload import Upload, UploadId, parse_upload_id
from app.records.base import UploadRecords
from app.storage.base import SharingStore

MAX_PAGE = 200
"""Most videos on one page; more are cut to it."""

log = logging.getLogger(__name__)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class VideoPage:
    """Some videos, newest first; `next_cursor` names where the next page goes on, if any."""

    videos: list[Upload]
    next_cursor: str | None


class VideoLibrary:
    """What the pages, the API and delivery do with complete uploads."""

    def __init__(
        self, records: UploadRecords, store: SharingStore, *, clock: Callable[[], datetime]
    ) -> None:
        self._records = records
        self._store = store
        self._clock = clock

    def page(self, owner: str, *, limit: int, cursor: str | None = None) -> VideoPage:
        """A page of at most `limit` videos; raises `InvalidRequest` for a cursor not from here."""
        limit = max(1, min(limit, MAX_PAGE))
        before = None if cursor is None else _parse_cursor(cursor)
        found = self._records.videos(owner, limit + 1, before)
        videos = found[:limit]
        return VideoPage(videos, _cursor(videos[-1]) if len(found) > limit else None)

    def all(self, owner: str) -> Iterator[Upload]:
        """Every video, newest first, read page by page: one published meanwhile is left out."""
        cursor = None
        while True:
            page = self.page(owner, limit=MAX_PAGE, cursor=cursor)
            yield from page.videos
            if (cursor := page.next_cursor) is None:
                return

    def get(self, owner: str, upload_id: UploadId) -> Upload:
        """A complete upload; raises `UploadNotFound` or `UploadGone`."""
        upload = self._records.get(upload_id)
        if upload.owner != owner:
            raise UploadNotFound("No video has this id.")
        if upload.require_present().state is not UploadState.COMPLETE:
            raise UploadNotFound("The upload is not complete yet.")
        return upload

    def open(self, upload: Upload, span: ByteRange) -> RawIOBase:
        """The bytes of a video from `span.start` on."""
        try:
            return self._store.open(upload.id, span)
        except FileNotFoundError as error:
            raise _gone(upload, error) from error

    def hand_over(self, upload: Upload) -> None:
        """Let a server of this program's group read the file itself; raises `UploadGone`."""
        try:
            self._store.let_group_read(upload.id)
        except FileNotFoundError as error:
            raise _gone(upload, error) from error

    def delete(self, owner: str, upload_id: UploadId) -> None:
        """Remove a video and its file; raises as `get` does."""
        upload = self.get(owner, upload_id)
        try:
            self._move_to_deleted(upload)
        except IllegalTransition as error:
            raise UploadGone("The video was deleted.") from error
        self._store.delete(upload.id)

    def _move_to_deleted(self, upload: Upload) -> None:
        try:
            self._records.move(upload.id, UploadState.DELETED, self._clock())
        except NoRoom:
            # The file goes first where its room may be what the record lacks. Deleting is the only
            # step left to a complete upload, so nothing is lost that could have been kept.
            self._store.delete(upload.id)
            self._records.move(upload.id, UploadState.DELETED, self._clock())


def _gone(video: Upload, error: FileNotFoundError) -> UploadGone:
    log.error("video cannot be opened: %s", error.strerror, extra={"upload_id": video.id})
    return UploadGone("The file of this video is no longer there.")


def _cursor(video: Upload) -> str:
    published_at = video.published_at or video.active_at
    return f"{(published_at - _EPOCH) // timedelta(microseconds=1)}.{video.id}"


def _parse_cursor(text: str) -> tuple[datetime, UploadId]:
    microseconds, _, upload_id = text.partition(".")
    try:
        moment = _EPOCH + timedelta(microseconds=int(microseconds))
        return moment, parse_upload_id(upload_id)
    except (ValueError, OverflowError, UploadNotFound) as error:
        raise InvalidRequest("The cursor is not one of this server's.") from error
