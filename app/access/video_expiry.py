"""Videos of projects that keep them for some time only."""

from __future__ import annotations

import logging
from contextlib import suppress
from datetime import datetime, timedelta

from app.access import audit
from app.access.audit import AuditAction
from app.access.projects import Project, Projects
from app.access.recent import Recent
from app.core.access import Caller, CallerKind, Scope
from app.core.errors import UploadError, UploadGone, UploadNotFound
from app.core.upload import Upload
from app.db.context import Context
from app.records.uploads import UploadRecords
from app.uploads.library import VideoLibrary

MOST_AT_ONCE = 100
"""Videos of a project that one sweep deletes: an operator who has mistyped the time sees it in the
log before all are gone."""

SERVER = Caller(kind=CallerKind.ANONYMOUS, name="expiry")
"""Who deletes them, in the audit log."""

log = logging.getLogger(__name__)


class VideoExpiry:
    """Says when videos expire, and deletes them then, as a person would.

    The time of a video counts from `active_at`: its publication, moved on by what the clock skipped
    when it was set. It goes on while the server is off. `published_at` is never moved.
    """

    def __init__(
        self,
        ctx: Context,
        records: UploadRecords,
        library: VideoLibrary,
    ) -> None:
        self._ctx = ctx
        self._projects = Projects(ctx)
        self._records = records
        self._library = library
        self._recent = Recent(self._find)

    def expires(self, video: Upload) -> datetime | None:
        """When a video will be deleted; None for never."""
        project = self._recent.get(video.owner)
        if project is None or project.video_seconds is None:
            return None
        return video.active_at + timedelta(seconds=project.video_seconds)

    def sweep(self, now: datetime) -> None:
        """Delete what has expired, a limited number of each project.

        `now` is the time for which `Housekeeping.allow_for_clock` has allowed.
        """
        for project in self._projects.find():
            if project.video_seconds is None:
                continue
            cutoff = now - timedelta(seconds=project.video_seconds)
            for video in self._records.older_videos(project.id, cutoff, limit=MOST_AT_ONCE):
                with suppress(UploadGone, UploadNotFound):
                    self._library.delete(Scope(project.id), video.id)
                    log.info("video expired", extra={"upload_id": video.id})
                    audit.note(
                        self._ctx.acting(SERVER),
                        AuditAction.VIDEO_DELETED,
                        f"video:{video.id}",
                        project=video.owner,
                        filename=video.filename,
                    )

    def _find(self, project_id: str) -> Project | None:
        with suppress(UploadError):
            return self._projects.get(project_id)
        return None
