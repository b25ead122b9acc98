"""Videos of projects that keep them for some time only."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

from app.domain.access import Caller, CallerKind, Scope
from app.domain.audit import AuditAction
from app.domain.errors import UploadError, UploadGone, UploadNotFound
from app.domain.upload import Upload
from app.domain.video_list import VideoList, VideoOrder
from app.identity.audit import AuditLog
from app.identity.recent import Recent
from app.records.identity.projects import Project, ProjectRecords
from app.uploads.library import VideoLibrary

MOST_AT_ONCE = 100
"""Videos of a project that one sweep deletes: an operator who has mistyped the time sees it in the
log before all are gone."""

SERVER = Caller(kind=CallerKind.NOBODY, name="expiry")
"""Who deletes them, in the audit log."""

log = logging.getLogger(__name__)


class VideoExpiry:
    """Says when videos expire, and deletes them then, as a person would."""

    def __init__(
        self,
        projects: ProjectRecords,
        library: VideoLibrary,
        audit: AuditLog,
        clock: Callable[[], datetime],
    ) -> None:
        self._projects = projects
        self._library = library
        self._audit = audit
        self._clock = clock
        self._recent = Recent(self._find)

    def expires(self, video: Upload) -> datetime | None:
        """When a video will be deleted; None for never."""
        project = self._recent.get(video.owner)
        if project is None or project.video_seconds is None or video.published_at is None:
            return None
        return video.published_at + timedelta(seconds=project.video_seconds)

    def sweep(self) -> None:
        """Delete what has expired, a limited number of each project."""
        for project in self._projects.find():
            if project.video_seconds is not None:
                self._sweep(project, self._clock() - timedelta(seconds=project.video_seconds))

    def _sweep(self, project: Project, cutoff: datetime) -> None:
        oldest = VideoList.parse("", VideoOrder.OLDEST)
        scope = Scope(project.id)
        for video in self._library.page(scope, oldest, limit=MOST_AT_ONCE).videos:
            if video.published_at is None or video.published_at > cutoff:
                return
            with suppress(UploadGone, UploadNotFound):
                self._library.delete(scope, video.id)
                self._tell(video)

    def _tell(self, video: Upload) -> None:
        log.info("video expired", extra={"upload_id": video.id})
        self._audit.note(
            AuditAction.VIDEO_DELETED,
            f"video:{video.id}",
            caller=SERVER,
            project=video.owner,
            details={"filename": video.filename},
        )

    def _find(self, project_id: str) -> Project | None:
        with suppress(UploadError):
            return self._projects.get(project_id)
        return None
