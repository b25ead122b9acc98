"""Keeps renditions within their disk limit: the least recently watched are evicted."""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath

from app.core.errors import NoRoom
from app.core.jobs import ENDED, Job
from app.core.playback import Bundle
from app.core.upload import UploadId
from app.db.jobs import JobRecords
from app.video.make.steps import Heartbeat
from app.video.make.worker import Step
from app.video.serve.folder import MadeFiles
from app.video.serve.renditions import RENDITION, SEGMENTS, rendition_file, rendition_folder

FOLDERS = frozenset({"rungs", "renditions"})
"""In the folder of a video."""

LEAST_FREE_SHARE, LEAST_FREE_BYTES = 0.1, 10 << 30
"""Free disk space, whichever is less: below it, renditions are evicted in favour of uploads."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _CachedRendition:
    """Files of one rendition of a video; `watched_at` in seconds since 1970."""

    upload_id: UploadId
    quality: int
    size: int
    watched_at: float


class RenditionCache:
    """The renditions of all videos in a folder."""

    def __init__(
        self, folder: MadeFiles, jobs: JobRecords, *, most_bytes: int, least_free_bytes: int
    ) -> None:
        """`most_bytes` is 0 for no limit; `least_free_bytes` is the space reserved for uploads."""
        self._folder = folder
        self._jobs = jobs
        self._most_bytes = most_bytes
        self._least_free_bytes = least_free_bytes
        self._may_have_grown = True

    def watching(self, step: Step) -> Step:
        """Wraps a step: after it, the cache may have grown.

        If the step lacks disk space, evicts a rendition for its next attempt.
        """

        def run(job: Job, beat: Heartbeat) -> None:
            try:
                step(job, beat)
            except NoRoom:
                self.trim(wanted_bytes=1)
                raise
            finally:
                self._may_have_grown = True

        return run

    def trim(self, wanted_bytes: int = 0) -> int:
        """Evict whole renditions until the rest fits; returns how many were removed.

        Renditions that are being encoded are kept. Reads the entry of every file, 20 000 of them in
        0.2 s, or of none if enough space is free and nothing was made since the last call.
        """
        is_limited = self._most_bytes and self._may_have_grown
        wanted = self._folder.lacking_bytes(self._least_free_bytes, wanted_bytes)
        if not is_limited and wanted <= 0:
            return 0
        self._may_have_grown = False
        kept = sorted(self._kept(), key=lambda each: each.watched_at)
        size = sum(each.size for each in kept)
        excess = max(size - (self._most_bytes or size), wanted)
        removed = 0
        for each in kept:
            if excess <= 0:
                break
            if not self._is_being_made(each):
                self._remove(each)
                excess -= each.size
                removed += 1
        self._may_have_grown |= excess > 0  # Renditions being made may be evicted next time.
        return removed

    def _kept(self) -> Iterator[_CachedRendition]:
        found: defaultdict[tuple[UploadId, int], list[Bundle]] = defaultdict(list)
        for bundle in self._folder.bundles(FOLDERS):
            stem = PurePath(bundle.name).stem
            if stem.isdecimal():
                found[bundle.upload_id, int(stem)].append(bundle)
        for (upload_id, quality), bundles in found.items():
            size = sum(bundle.size for bundle in bundles)
            # The time of the segments, if there are any: the whole file may be joined later.
            times = {bundle.name: bundle.used_at for bundle in bundles}
            watched_at = times.get(rendition_folder(quality), bundles[0].used_at)
            yield _CachedRendition(upload_id, quality, size, watched_at)

    def _is_being_made(self, kept: _CachedRendition) -> bool:
        return any(
            job.state not in ENDED
            and job.step in {SEGMENTS, RENDITION}
            and job.argument.partition("/")[0] == str(kept.quality)
            for job in self._jobs.of(kept.upload_id)
        )

    def _remove(self, kept: _CachedRendition) -> None:
        for name in (rendition_file(kept.quality), rendition_folder(kept.quality)):
            self._folder.discard(kept.upload_id, name)
        detail = "%dp makes room, %.1f MB: others were watched later"
        log.info(detail, kept.quality, kept.size / 1e6, extra={"upload_id": kept.upload_id})


def least_free_bytes(folder: Path) -> int:
    """Bytes to keep free on the disk of a folder, which need not exist yet."""
    disk = os.statvfs(next(path for path in (folder, *folder.parents) if path.exists()))
    return min(round(disk.f_blocks * disk.f_frsize * LEAST_FREE_SHARE), LEAST_FREE_BYTES)
