"""Films that can be played while they still arrive: their index came first.

Our page and client send it first. For any other client a film that begins with its index will do.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count as count_from
from math import inf

from app.core.errors import UploadError
from app.core.jobs import Lane
from app.core.playback import PlaybackState
from app.core.ranges import ByteRange
from app.core.upload import Upload, UploadId, UploadKind
from app.video.index.boxes import LongIndex, NotIndexable, ReadAt
from app.video.index.entries import LONG_INDEX, SHORT_INDEX, TOO_MANY_SAMPLES
from app.video.index.movie import read_movie
from app.video.make.pictures import EARLY_POSTER
from app.video.make.remux import INDEXED_TYPES
from app.video.make.steps import StepTools
from app.video.serve.facts import Facts, Manifest
from app.video.serve.film_files import MANIFEST, is_playable, keep_streams
from app.video.serve.folder import read_whole
from app.video.serve.source import reader

RECENT = timedelta(seconds=90)
"""Only uploads of which something has just arrived are looked at; at the first look, all.

A request notes the time before a commit that may wait for SQLite's lock for `BUSY_SECONDS`. With a
shorter span, what it adds would be too old once it can be seen, and the film would be missed.
"""

BEFORE_ALL = datetime(1970, 1, 1, tzinfo=UTC)

MOST_AT_ONCE = 50
"""Uploads looked at in one go, the latest first."""

MOST_READS = 2000
"""A film that consists of more pieces is looked at once, when it is complete."""

POSTER_PRIORITY = 50
"""After the indexes of films that are complete."""

SEGMENTS_OF_POSTER = 2
"""As many of HLS must have arrived: their key frames leave a choice if the first one is black."""

GROWTH = 1.5
"""An index that describes more samples than bytes have arrived is counted again once there are this
many times as many."""

REMEMBERED = 1000
"""Uploads of which what was found out is kept in memory; of others it is found out again."""


log = logging.getLogger(__name__)


class NotArrived(Exception):
    """Bytes that the index needs are not there yet."""


class Arrivals:
    """Looks for such films; the media worker calls it often."""

    def __init__(self, tools: StepTools) -> None:
        self._tools = tools
        self._refused: OrderedDict[UploadId, float] = OrderedDict()
        """Files that have no index to wait for."""
        self._begins_at: OrderedDict[UploadId, float] = OrderedDict()
        """How many bytes must have arrived before a file is looked at again."""
        self._poster_reaches: OrderedDict[UploadId, float] = OrderedDict()
        """How many bytes a poster takes; infinity if none is to be made, or not again."""
        self._has_looked = False

    def look(self) -> bool:
        """Make the films playable whose index has arrived since the last time.

        All whose index is short, and one of the others, the shortest that has arrived; whether
        there are more to try at once. If none of these could be done, they wait for the next look.
        """
        since = self._tools.clock() - RECENT if self._has_looked else BEFORE_ALL
        found = self._tools.uploads.arriving(since, MOST_AT_ONCE)
        self._has_looked = True
        films = [upload for upload in found if self._may_be_film(upload)]
        described = self._described(films)
        long: list[tuple[int, Upload]] = []
        for upload in films:
            if upload.id in described:
                self._safely(self._order_poster, upload)
            elif entries := self._safely(self._try, upload):
                long.append((entries, upload))
        try_long = partial(self._try, most_entries=LONG_INDEX)
        for tried, (_, upload) in enumerate(sorted(long, key=lambda each: each[0]), start=1):
            if self._safely(try_long, upload) is not None:
                return tried < len(long)
        return False

    def _described(self, films: list[Upload]) -> set[UploadId]:
        """Those whose film is known: `_describe` may have failed after it had added a row."""
        known = self._tools.media.of([upload.id for upload in films]) if films else {}
        return {key for key, one in known.items() if one.state is not PlaybackState.WAITING}

    def _may_be_film(self, upload: Upload) -> bool:
        is_whole = upload.kind is UploadKind.FILE and upload.length is not None
        if not is_whole or upload.content_type not in INDEXED_TYPES or upload.id in self._refused:
            return False
        return upload.received.total >= self._begins_at.get(upload.id, 0)

    def _safely(self, act: Callable[[Upload], int | None], upload: Upload) -> int | None:
        """What `act` returns; None if the next look does it."""
        try:
            return act(upload)
        except UploadError:
            return None  # It has ended, or the next look does it.
        except Exception:  # No upload may keep the worker from the others.
            log.exception("an arriving film cannot be looked at", extra={"upload_id": upload.id})
            self._refuse(upload.id)
            return 0

    def _try(self, upload: Upload, most_entries: int = SHORT_INDEX) -> int | None:
        """Make it playable if its index has arrived; the entries of an index that is longer.

        None if bytes of it are missing.
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
            except (LongIndex, NotIndexable) as error:
                return self._put_off(upload, error)
            if is_playable(movie):
                keep_streams(movie, upload.id, self._tools.folder, read_at=read_at)
                self._describe(upload, Facts.of(movie))
            else:
                self._refuse(upload.id)
        return 0

    def _put_off(self, upload: Upload, error: LongIndex | NotIndexable) -> int:
        """Note when to try again, if at all; as `_try`."""
        if isinstance(error, LongIndex) and error.entries <= LONG_INDEX:
            return error.entries
        if isinstance(error, NotIndexable) and error.code == TOO_MANY_SAMPLES:
            # It has more samples than bytes that have arrived, until now.
            _remember(self._begins_at, upload.id, GROWTH * upload.received.total)
        else:
            self._refuse(upload.id)
        return 0

    def _describe(self, upload: Upload, facts: Facts) -> None:
        now = self._tools.clock()
        self._tools.media.add(upload.id, now, is_planned=False)
        self._tools.media.describe(
            upload.id, PlaybackState.PLAYABLE, now, facts=facts.to_json(), problem=None
        )

    def _order_poster(self, upload: Upload) -> int:
        """Queue it once enough of the film's beginning has arrived; 0."""
        reach = self._poster_reaches.get(upload.id)
        if reach is None:
            reach = self._poster_reach(upload.id)
            _remember(self._poster_reaches, upload.id, reach)
        if upload.offset < reach:
            return 0
        lane, now = Lane.QUICK, self._tools.clock()
        self._tools.jobs.enqueue(
            upload.id, EARLY_POSTER, lane=lane, priority=POSTER_PRIORITY, now=now
        )
        _remember(self._poster_reaches, upload.id, inf)
        return 0

    def _poster_reach(self, upload_id: UploadId) -> float:
        if self._tools.ffmpeg.ffmpeg is None:
            return inf
        try:
            manifest = Manifest.from_json(read_whole(self._tools.folder, upload_id, MANIFEST))
        except FileNotFoundError:
            return inf
        if (picture := manifest.picture) is None:
            return inf
        return picture.reaches[min(SEGMENTS_OF_POSTER, len(picture.reaches)) - 1]

    def _refuse(self, upload_id: UploadId) -> None:
        """Leave it until it is complete."""
        _remember(self._refused, upload_id, inf)


def _reader_of_arrived(upload: Upload, read_at: ReadAt) -> ReadAt:
    """Reads what has arrived; raises `NotArrived` for the rest."""
    reads = count_from(1)

    def read_arrived(offset: int, count: int) -> bytes:
        end = min(offset + count, upload.known_length)
        if next(reads) > MOST_READS:
            raise NotIndexable("too_many_boxes", "The film has too many pieces.")
        if not upload.received.covers(ByteRange(offset, max(offset, end))):
            raise NotArrived
        return read_at(offset, count)

    return read_arrived


def _remember(notes: OrderedDict[UploadId, float], upload_id: UploadId, value: float) -> None:
    notes[upload_id] = value
    if len(notes) > REMEMBERED:
        notes.popitem(last=False)
