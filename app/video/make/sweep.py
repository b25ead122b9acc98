"""Finds media jobs: in the records, and among the uploads that receive bytes."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count as count_from
from itertools import islice
from math import inf

from app.core.errors import UploadError, UploadGone, UploadNotFound
from app.core.jobs import INDEX, REMUX, SOUND, Lane
from app.core.lifecycle import GONE
from app.core.playback import PlaybackProblem, PlaybackState
from app.core.ranges import ByteRange
from app.core.upload import Upload, UploadId, UploadKind
from app.db.jobs import BATCH
from app.records.uploads import UploadRecords
from app.video.index.boxes import LongIndex, NotIndexable, ReadAt
from app.video.index.movie import read_movie
from app.video.index.samples import LONG_INDEX, SHORT_INDEX, TOO_MANY_SAMPLES
from app.video.make.indexing import INDEXED_TYPES, NO_VIDEO, is_played_as_it_is
from app.video.make.pictures import EARLY_POSTER, PICTURES
from app.video.make.sound import WAVEFORM
from app.video.make.steps import NO_FFMPEG, NO_RENDITIONS, StepTools
from app.video.make.video_files import is_playable, keep_streams
from app.video.serve.derived_files import DerivedFiles
from app.video.serve.facts import MANIFEST, Facts, Manifest
from app.video.serve.renditions import RENDITION, SEGMENTS
from app.video.serve.rows import MediaRecords
from app.video.serve.source import reader

RECENT = timedelta(seconds=90)
"""How far back recent uploads go. A sweep of all uploads finds those that this misses, such as
after a clock change.

A request takes the time before a commit that may wait `BUSY_SECONDS` for SQLite's lock. With a
shorter span, its row would be too old once it is visible, and the upload would be missed.
"""

NEED_FFMPEG = frozenset((REMUX, SOUND, PICTURES, WAVEFORM))
"""Steps that need ffmpeg; every playable video gets one of them."""

NOT_AWAITED = frozenset((SEGMENTS, RENDITION, EARLY_POSTER))
"""Steps that a ready video may lack: renditions, and the poster made during the upload."""

NOT_INDEXED = PlaybackProblem("not_indexed", "This file was not examined: its index was cancelled.")

_ABSENT = frozenset({None, *GONE})


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaSweep:
    """Each method is idempotent, and changes its records in one transaction.

    Methods that return a number return the number of videos they processed. If that is `BATCH`,
    there may be more: they are called again after a pause.
    """

    media: MediaRecords
    uploads: UploadRecords
    files: DerivedFiles
    clock: Callable[[], datetime]
    has_ffmpeg: bool = False
    is_no_video: Callable[[UploadId], bool] = lambda _: False
    when_ready: Callable[[UploadId], object] = lambda _: None

    def plan(self, *, is_recent: bool) -> int:
        """Queue the first step of complete uploads; with `is_recent`, of recent uploads only.

        Others, such as all uploads after an update, yield to recent ones. A recent file that is
        clearly no video by its first bytes gets no job: thousands of those may arrive at once.
        """
        lane = Lane.QUICK if is_recent else Lane.BACKGROUND
        found = self.media.unplanned(BATCH, since=self._since(is_recent=is_recent))
        if no_videos := list(filter(self.is_no_video, found)) if is_recent else []:
            self.media.add_unplayable(no_videos, NO_VIDEO, self.clock())
        if found:
            self.media.plan(found, lane, self.clock())
        return len(found)

    def conclude(self, *, is_recent: bool) -> int:
        """Set the state of videos with a permanently failed step, which would wait forever.

        Jobs cancelled by an operator are only found without `is_recent`.
        """
        ended = {job.upload_id: job for job in self.media.undescribed(BATCH, is_recent=is_recent)}
        if ended:
            found: list[tuple[UploadId, PlaybackState, PlaybackProblem | None]] = []
            for upload_id, job in ended.items():
                if job.kind == INDEX and is_played_as_it_is(self.uploads.get(upload_id)):
                    found.append((upload_id, PlaybackState.PLAYABLE, None))
                else:
                    problem = job.problem or NOT_INDEXED
                    found.append((upload_id, PlaybackState.UNPLAYABLE, problem))
            self.media.conclude(found, self.clock())
        return len(ended)

    def settle(self, only: UploadId | None = None) -> int:
        """Mark videos as ready that are playable and have no automatic steps left.

        Checks all videos, which reads them all, or `only` one. The outcome of their jobs does not
        matter.
        """
        found = self.media.settle(NOT_AWAITED, self.clock(), limit=BATCH, only=only)
        for upload_id in found:
            with suppress(UploadGone, UploadNotFound):
                self.when_ready(upload_id)
        return len(found)

    def plan_unmade(self) -> None:
        """Plan videos again for which ffmpeg or renditions may have become available."""
        if self.has_ffmpeg:
            self.media.plan_unmade(NEED_FFMPEG, {NO_FFMPEG, NO_RENDITIONS})

    def forget(self, *, is_recent: bool) -> int:
        """Remove the jobs and files of deleted uploads."""
        found = self.media.gone(BATCH, since=self._since(is_recent=is_recent))
        if found:
            self.files.remove(found)
            self.media.forget(found)
        return len(found)

    def remove_abandoned(self) -> None:
        """Remove the half-made files of killed workers, and discarded files."""
        self.files.remove_abandoned()

    def remove_strays(self) -> None:
        """Remove the files of deleted videos. Reads the whole table: only called at start."""
        videos = iter(self.files.videos())
        while upload_ids := list(islice(videos, BATCH)):
            states = self.uploads.states(upload_ids)
            absent = [each for each in upload_ids if states.get(each) in _ABSENT]
            if absent:
                self.files.remove(absent)

    def remove_if_gone(self, upload_id: UploadId) -> None:
        """Remove files that a step has made of a video that is already deleted."""
        if self.uploads.states([upload_id]).get(upload_id) in _ABSENT:
            self.files.remove([upload_id])

    def _since(self, *, is_recent: bool) -> datetime | None:
        return self.clock() - RECENT if is_recent else None


# ---- arriving videos -----------------------------------------------------------------------------

# Videos that can be played during their upload: their index arrived first.
#
# Our page and client send it first. With any other client, the file must begin with its index.


BEFORE_ALL = datetime(1970, 1, 1, tzinfo=UTC)

MOST_AT_ONCE = 50
"""Uploads per check, latest first."""

MOST_READS = 2000
"""A video that needs more reads is only checked when it is complete."""

POSTER_PRIORITY = 50
"""After the indexes of complete videos."""

SEGMENTS_OF_POSTER = 2
"""HLS segments that must have arrived: their key frames give a choice if the first is black."""

GROWTH = 1.5
"""An index that describes more samples than received bytes is checked again when the number of
received bytes has grown by this factor."""

REMEMBERED = 1000
"""Uploads with results that are cached in memory; others are checked again."""


log = logging.getLogger(__name__)


class NotArrived(Exception):
    """Bytes that the index needs have not arrived yet."""


class Arrivals:
    """Finds such videos; the job worker calls it after each change."""

    def __init__(self, tools: StepTools) -> None:
        self._tools = tools
        self._refused: OrderedDict[UploadId, float] = OrderedDict()
        """Files without an index to wait for."""
        self._begins_at: OrderedDict[UploadId, float] = OrderedDict()
        """Bytes that must have arrived before a file is checked again."""
        self._poster_reaches: OrderedDict[UploadId, float] = OrderedDict()
        """Bytes that a poster needs; infinity if none is to be made, or not again."""
        self._has_looked = False

    def look(self) -> bool:
        """Make videos playable if their index has arrived since the last call.

        All with a short index, and one of the others, with the shortest index that has arrived.
        Returns whether there are more to try at once. If none of the others could be read, they
        wait for the next call.
        """
        since = self._tools.clock() - RECENT if self._has_looked else BEFORE_ALL
        found = self._tools.uploads.arriving(since, MOST_AT_ONCE)
        self._has_looked = True
        videos = [
            upload
            for upload in found
            if upload.kind is UploadKind.FILE
            and upload.length is not None
            and upload.content_type in INDEXED_TYPES
            and upload.id not in self._refused
            and upload.received.total >= self._begins_at.get(upload.id, 0)
        ]
        known = self._tools.media.of([upload.id for upload in videos]) if videos else {}
        # `_try` may have failed between adding a row and describing it.
        described = {key for key, one in known.items() if one.state is not PlaybackState.WAITING}
        long: list[tuple[int, Upload]] = []
        for upload in videos:
            if upload.id in described:
                self._safely(self._order_poster, upload)
            elif entries := self._safely(self._try, upload):
                long.append((entries, upload))
        try_long = partial(self._try, most_entries=LONG_INDEX)
        for tried, (_, upload) in enumerate(sorted(long, key=lambda each: each[0]), start=1):
            if self._safely(try_long, upload) is not None:
                return tried < len(long)
        return False

    def _safely(self, act: Callable[[Upload], int | None], upload: Upload) -> int | None:
        """Returns the result of `act`; None if the next call retries it."""
        try:
            return act(upload)
        except UploadError:
            return None  # The upload has ended, or the next call retries it.
        except Exception:  # No upload may block the worker.
            log.exception("an arriving video cannot be examined", extra={"upload_id": upload.id})
            self._refuse(upload.id)
            return 0

    def _try(self, upload: Upload, most_entries: int = SHORT_INDEX) -> int | None:
        """Make an upload playable if its index has arrived.

        Returns the number of entries if the index is longer than `most_entries`, else 0; None if
        bytes of the index are missing.
        """
        with closing(self._tools.source.open(upload)) as source:
            read_at = reader(source)
            try:
                movie = read_movie(
                    _reader_of_arrived(upload, read_at),
                    upload.known_length,
                    most_entries=most_entries,
                    arrived=upload.received.total,
                )
            except NotArrived:
                return None
            except LongIndex as error:
                if error.entries <= LONG_INDEX:
                    return error.entries
                self._refuse(upload.id)
                return 0
            except NotIndexable as error:
                if error.code == TOO_MANY_SAMPLES:
                    # So far, it has more samples than received bytes.
                    _remember(self._begins_at, upload.id, GROWTH * upload.received.total)
                else:
                    self._refuse(upload.id)
                return 0
            if is_playable(movie):
                keep_streams(movie, upload.id, self._tools.files, read_at=read_at)
                self._tools.media.add(upload.id, self._tools.clock(), is_planned=False)
                self._tools.describe(upload.id, PlaybackState.PLAYABLE, Facts.of(movie))
            else:
                self._refuse(upload.id)
        return 0

    def _order_poster(self, upload: Upload) -> int:
        """Queue the poster once enough of the start of the video has arrived; returns 0."""
        reach = self._poster_reaches.get(upload.id)
        if reach is None:
            reach = inf
            if self._tools.ffmpeg.ffmpeg is not None:
                with suppress(FileNotFoundError):
                    stored = self._tools.files.read(upload.id, MANIFEST)
                    if (picture := Manifest.from_json(stored).picture) is not None:
                        wanted = min(SEGMENTS_OF_POSTER, len(picture.reaches))
                        reach = picture.reaches[wanted - 1]
            _remember(self._poster_reaches, upload.id, reach)
        if upload.offset < reach:
            return 0
        lane, now = Lane.QUICK, self._tools.clock()
        self._tools.jobs.enqueue(
            upload.id, EARLY_POSTER, lane=lane, priority=POSTER_PRIORITY, now=now
        )
        _remember(self._poster_reaches, upload.id, inf)
        return 0

    def _refuse(self, upload_id: UploadId) -> None:
        """Ignore an upload until it is complete."""
        _remember(self._refused, upload_id, inf)


def _reader_of_arrived(upload: Upload, read_at: ReadAt) -> ReadAt:
    """A reader of received bytes; raises `NotArrived` for the rest."""
    reads = count_from(1)

    def read_arrived(offset: int, count: int) -> bytes:
        end = min(offset + count, upload.known_length)
        if next(reads) > MOST_READS:
            raise NotIndexable("too_many_boxes", "The video has too many pieces.")
        if not upload.received.covers(ByteRange(offset, max(offset, end))):
            raise NotArrived
        return read_at(offset, count)

    return read_arrived


def _remember(notes: OrderedDict[UploadId, float], upload_id: UploadId, value: float) -> None:
    notes[upload_id] = value
    if len(notes) > REMEMBERED:
        notes.popitem(last=False)
