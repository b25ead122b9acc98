"""The steps that make other qualities of a film: segments that somebody waits for, and whole films.

A segment is made alone, so work that was interrupted goes on where it was: what is there is there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from app.core.errors import NoRoom
from app.core.jobs import Job, JobCancelled, JobFailed, JobYields, Lane
from app.storage.local.folder import disk_errors
from app.video.make.heartbeat import Heartbeat
from app.video.make.rung_maker import NOT_ENCODED, RungMaker, RungMakers
from app.video.make.tools import StepTools
from app.video.make.whole_film import RenditionFile
from app.video.serve.rungs import asked_for, is_stale, rendition_file

READ_AHEAD = 3
"""Segments after the one that was asked for which are made, too, while nobody else waits."""

AWAITED_SECONDS, UNAWAITED_SECONDS = 60, 1800
"""A segment that takes longer is given up: all other viewers wait for it, too."""

ENCODED_SHARE = 0.95
"""Of the progress of a whole film; the rest is putting it together."""

MOST_LEFT_OUT = 20
"""Parts of a film in which nothing can be decoded; with so many, a film cannot be made."""

log = logging.getLogger(__name__)


class Segments:
    """Makes a segment, and some of those that a viewer will want next."""

    def __init__(self, tools: StepTools) -> None:
        self._tools = tools
        self._makers = RungMakers(tools)

    def __call__(self, job: Job, beat: Heartbeat) -> None:
        """Do the job, unless nobody waits for it any more."""
        if is_stale(job.priority, self._tools.clock()):
            log.info("%s: nobody has asked for long", job, extra={"upload_id": job.upload_id})
            return
        quality, first = asked_for(job.argument)
        with self._makers.of(job.upload_id, quality) as maker:
            if not 1 <= first <= len(maker.cuts):
                raise JobFailed("no_segment", "The film has no such segment.", is_final=True)
            if not maker.has(first):
                maker.make(first, beat.stop, wall_seconds=AWAITED_SECONDS)
            self._read_ahead(maker, first, beat)

    def _read_ahead(self, maker: RungMaker, first: int, beat: Heartbeat) -> None:
        for number in range(first + 1, min(first + READ_AHEAD, len(maker.cuts)) + 1):
            beat((number - first) / (READ_AHEAD + 1))
            if Lane.ON_DEMAND in self._tools.jobs.lanes_due(self._tools.clock()):
                return
            try:
                if not maker.has(number):
                    maker.make(number, beat.stop, wall_seconds=AWAITED_SECONDS)
            except JobFailed:
                return  # Whoever asks for that one is told.


class Rendition:
    """Makes all segments of a rung, and one MP4 file of them and the film's sound."""

    def __init__(self, tools: StepTools) -> None:
        self._tools = tools
        self._makers = RungMakers(tools)

    def __call__(self, job: Job, beat: Heartbeat) -> None:
        """Do the job. It makes way for more urgent ones of its lane after each segment."""
        folder = self._tools.folder
        with self._makers.of(job.upload_id, int(job.argument)) as maker:
            self._make_segments(maker, job, beat)
            whole = RenditionFile.of(maker)
            with folder.scratch_folder(whole.size) as scratch:
                made = scratch / "rendition.mp4"
                with _each_full_disk_counts(), disk_errors():
                    whole.write(made, lambda: beat(ENCODED_SHARE))
                folder.keep(made, maker.video_id, rendition_file(maker.rung.quality))
            self._require_held(job, maker)

    def _make_segments(self, maker: RungMaker, job: Job, beat: Heartbeat) -> None:
        """A part of the film in which nothing can be decoded is left out."""
        count = len(maker.cuts)
        for number in range(1, count + 1):
            beat(ENCODED_SHARE * (number - 1) / count)
            if maker.has(number) or number in maker.left_out:
                continue
            self._make_or_leave_out(maker, number, beat)
            # After a segment, so that it gets on whatever waits.
            if self._tools.jobs.is_waiting(job.lane, self._tools.clock(), before=job.priority):
                raise JobYields

    def _make_or_leave_out(self, maker: RungMaker, number: int, beat: Heartbeat) -> None:
        try:
            maker.make(number, beat.stop, wall_seconds=UNAWAITED_SECONDS)
        except JobFailed as error:
            if error.problem.code != NOT_ENCODED:
                raise
            maker.leave_out(number)
            if len(maker.left_out) >= min(MOST_LEFT_OUT, len(maker.cuts)):
                maker.forget_left_out()
                raise
            reason, quality = error.problem.detail, maker.rung.quality
            extra = {"upload_id": maker.video_id}
            log.warning("%dp goes without part %d: %s", quality, number, reason, extra=extra)

    def _require_held(self, job: Job, maker: RungMaker) -> None:
        """Who cancels the job removes the file; it may have been kept just after that."""
        if not self._tools.jobs.is_held(job):
            self._tools.folder.discard(maker.video_id, rendition_file(maker.rung.quality))
            raise JobCancelled(str(job))


@contextmanager
def _each_full_disk_counts() -> Iterator[None]:
    """There was room at first: that the disk fills up all the same costs an attempt."""
    try:
        yield
    except NoRoom as error:
        raise JobFailed(error.code, str(error)) from error
