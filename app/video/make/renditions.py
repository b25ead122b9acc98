"""The steps that encode renditions, segments on demand and whole videos, and the cache of both.

Segments are encoded independently, so interrupted work resumes: existing segments are kept.
"""

from __future__ import annotations

import hashlib
import logging
import os
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from io import RawIOBase
from pathlib import Path, PurePath
from threading import Event
from typing import Self

from app.core.errors import NoRoom
from app.core.jobs import ENDED, Heartbeat, Job, JobCancelled, JobFailed, JobYields, Lane, Step
from app.core.lifecycle import UploadState
from app.core.playback import Bundle, Made, Outdated
from app.core.upload import UploadId
from app.db.jobs import JobRecords
from app.storage.local.folder import disk_errors
from app.video.index.boxes import LongIndex, NotIndexable, ReadAt
from app.video.index.movie import Movie, read_movie
from app.video.index.muxing import interleaved, moved
from app.video.index.samples import LONG_INDEX, MAX_ENTRIES
from app.video.index.segments import RenditionCuts, segmented_video
from app.video.index.tracks import Track
from app.video.make.encoder import Encoder, recipe
from app.video.make.steps import StepTools, as_job_errors, needing_index
from app.video.make.video_files import encoded_sounds, keep_streams
from app.video.serve.derived_files import MARK, DerivedFiles
from app.video.serve.derived_objects import Evictable, evict
from app.video.serve.facts import (
    MANIFEST,
    SOUND_FILE,
    Manifest,
    Stream,
    plays_audio,
    plays_segmented_audio,
)
from app.video.serve.ladder import RenditionFormat, ladder
from app.video.serve.renditions import (
    RENDITION,
    SEGMENTS,
    asked_for,
    initialization_file,
    is_stale,
    left_out,
    left_out_file,
    rendition_file,
    rendition_folder,
    segment_file,
)
from app.video.serve.source import copy_pieces, length_of, reader

READ_AHEAD = 3
"""Segments after the requested one that are also encoded, while no other request waits."""

AWAITED_SECONDS, UNAWAITED_SECONDS = 60, 1800
"""A segment that takes longer is aborted: all other viewers wait for it, too."""

ENCODED_SHARE = 0.95
"""Share of encoding in the progress of a whole video; the rest is joining the segments."""

MOST_LEFT_OUT = 20
"""Parts of a video that cannot be decoded; with this many, the rendition fails."""

log = logging.getLogger(__name__)


def encode_segments(makers: RenditionMakers, job: Job, beat: Heartbeat) -> None:
    """Encode a segment, and some of the segments that the viewer will need next.

    Does nothing if no client waits for it any more.
    """
    jobs, clock = makers.tools.jobs, makers.tools.clock
    if is_stale(job.priority, clock()):
        log.info("%s: not requested for long", job, extra={"upload_id": job.upload_id})
        return
    quality, first = asked_for(job.argument)
    with makers.of(job.upload_id, quality) as maker:
        if not 1 <= first <= len(maker.cuts):
            raise JobFailed("no_segment", "The video has no such segment.", is_final=True)
        if not maker.has(first):
            maker.make(first, beat.stop, wall_seconds=AWAITED_SECONDS)
        for number in range(first + 1, min(first + READ_AHEAD, len(maker.cuts)) + 1):
            beat((number - first) / (READ_AHEAD + 1))
            if Lane.ON_DEMAND in jobs.lanes_due(clock()):
                return
            try:
                if not maker.has(number):
                    maker.make(number, beat.stop, wall_seconds=AWAITED_SECONDS)
            except JobFailed:
                return  # A request for that segment gets the error.


def encode_video(makers: RenditionMakers, job: Job, beat: Heartbeat) -> None:
    """Encode all segments of a rendition, and join them with the audio in one MP4 file.

    Yields to more urgent jobs of its lane after each segment.
    """
    files, jobs, clock = makers.tools.files, makers.tools.jobs, makers.tools.clock
    with makers.of(job.upload_id, int(job.argument)) as maker:
        count, name = len(maker.cuts), rendition_file(maker.rendition.quality)
        for number in range(1, count + 1):
            beat(ENCODED_SHARE * (number - 1) / count)
            if maker.has(number) or number in maker.left_out:
                continue
            _make_or_leave_out(maker, number, beat)
            # After a segment, so that it makes progress even if other jobs always wait.
            if jobs.is_waiting(job.lane, clock(), before=job.priority):
                raise JobYields
        with maker.adding() as mark:
            whole = RenditionFile.of(maker)
            with files.scratch.folder(whole.size) as scratch:
                made = scratch / "rendition.mp4"
                try:
                    with disk_errors():
                        whole.write(made, lambda: beat(ENCODED_SHARE))
                except NoRoom as error:  # There was space at first, so the attempt counts.
                    raise JobFailed(error.code, str(error)) from error
                files.keep(maker.video_id, {name: made}, beside=mark)
        # Cancelling the job removes the file; remove it if it was kept just after that.
        if not jobs.is_held(job):
            files.discard(maker.video_id, name)
            raise JobCancelled(str(job))


def _make_or_leave_out(maker: RenditionMaker, number: int, beat: Heartbeat) -> None:
    """Encode a segment; a part that cannot be decoded is left out."""
    try:
        maker.make(number, beat.stop, wall_seconds=UNAWAITED_SECONDS)
    except JobFailed as error:
        if error.problem.code != NOT_ENCODED:
            raise
        maker.leave_out(number)
        if len(maker.left_out) >= min(MOST_LEFT_OUT, len(maker.cuts)):
            maker.forget_left_out()
            raise
        reason, quality = error.problem.detail, maker.rendition.quality
        extra = {"upload_id": maker.video_id}
        log.warning("%dp goes without part %d: %s", quality, number, reason, extra=extra)


# ---- segments ------------------------------------------------------------------------------------

# Encodes segments of renditions, and makes sure that all segments of a rendition match.


NOT_ENCODED = "not_encoded"
"""The code of a job that failed because of the video's content, and would fail again."""

TOO_LARGE = "too_large"
"""The code of a job that would have to decode too much of the video."""

SEGMENTS_LOST = "segments_lost", "Segments were removed in the meantime."

MOST_EXCERPT_BYTES = 1 << 30
"""Source bytes decoded for one segment; a segment that needs more, or more than the whole video
has, is not encoded. Four seconds of ProRes 4444 in 4K have 0.9 GB."""

MOST_ENTRIES = 2 * LONG_INDEX
"""A video with a longer index, of 8 hours or more, has no renditions: the background worker keeps
the index of one video in memory, with 50 bytes per entry."""

CANNOT_BE_CONVERTED = "This part of the video cannot be converted"


@dataclass(frozen=True, slots=True, kw_only=True)
class RenditionMaker:
    """A rendition of a video with an open file. Segments are numbered from 1."""

    tools: StepTools
    video_id: UploadId
    movie: Movie
    cuts: RenditionCuts
    rendition: RenditionFormat
    encoder: str
    read_at: ReadAt

    def has(self, number: int) -> bool:
        """Whether a segment exists."""
        return self.tools.has(self.video_id, segment_file(self.rendition.quality, number))

    @property
    def left_out(self) -> frozenset[int]:
        """The segments that are left out of the whole video."""
        return left_out(self.tools.files, self.video_id, self.rendition.quality)

    def prepare(self) -> None:
        """Remove the rendition's files if they were made with another encoder or other settings."""
        files, folder = self.tools.files, rendition_folder(self.rendition.quality)
        found, is_own = self._mark()
        if not is_own:
            with files.scratch.folder() as scratch, suppress(FileExistsError):
                # If it raises, another maker has just prepared it.
                (scratch / MARK).write_text(self._made_by)
                files.renew(
                    self.video_id, folder, {self._mark_file: scratch / MARK}, instead_of=found
                )

    def make(self, number: int, stop: Event, *, wall_seconds: float) -> None:
        """Encode a segment; raises `JobFailed`, and `JobCancelled` once `stop` is set."""
        quality, files = self.rendition.quality, self.tools.files
        excerpt_bytes = self.cuts.excerpt(number).size
        # Samples may overlap in a hostile video.
        if excerpt_bytes > min(MOST_EXCERPT_BYTES, self.movie.length):
            problem = f"{CANNOT_BE_CONVERTED}: too much would have to be decoded for it."
            raise JobFailed(TOO_LARGE, problem, is_final=True)
        with files.scratch.folder(excerpt_bytes) as scratch:
            encoder = Encoder(self.tools.ffmpeg, scratch, self.read_at, stop, wall_seconds)
            with as_job_errors(NOT_ENCODED, CANNOT_BE_CONVERTED, is_final=True):
                initialization, segment = encoder.encode(self.cuts, number, self.rendition)
            content, name = initialization.read_bytes(), initialization_file(quality)
            with self.adding() as mark:
                # All segments of a rendition share the first initialization segment.
                if files.find(self.video_id, name) is None:
                    made = {name: initialization}
                    with suppress(FileExistsError):  # Another maker has just made it.
                        files.keep(self.video_id, made, beside=mark, is_new=True)
                if files.read(self.video_id, name) != content:
                    problem = "This part of the video was encoded differently from the others."
                    raise JobFailed("encoded_unlike", problem, is_final=True)
                files.keep(self.video_id, {segment_file(quality, number): segment}, beside=mark)

    def leave_out(self, number: int) -> None:
        """Record that a segment cannot be decoded."""
        numbers = sorted({*self.left_out, number})
        text, name = "\n".join(map(str, numbers)), left_out_file(self.rendition.quality)
        with self.adding() as mark, self.tools.files.scratch.folder() as scratch:
            (scratch / "left-out").write_text(text)
            self.tools.files.keep(self.video_id, {name: scratch / "left-out"}, beside=mark)

    def forget_left_out(self) -> None:
        """Delete the list of left out segments, so that a new order tries them again."""
        self.tools.files.discard(self.video_id, left_out_file(self.rendition.quality))

    @contextmanager
    def adding(self) -> Iterator[Made]:
        """Yields the rendition's mark; raises `JobFailed` if the rendition was removed."""
        mark, is_own = self._mark()
        if mark is None or not is_own:
            raise JobFailed(*SEGMENTS_LOST)
        try:
            yield mark
        except Outdated as error:
            raise JobFailed(*SEGMENTS_LOST) from error

    def _mark(self) -> tuple[Made | None, bool]:
        """The rendition's mark, and whether it is of this encoder and its settings.

        Players combine segments, so all must be encoded with the same.
        """
        files = self.tools.files
        try:
            found, file = files.fetch(self.video_id, self._mark_file)
        except FileNotFoundError:
            # A bucket may have lost the object of a file that the table has.
            return files.find(self.video_id, self._mark_file), False
        with closing(file):
            return found, file.readall() == self._made_by.encode()

    @property
    def _mark_file(self) -> str:
        return f"{rendition_folder(self.rendition.quality)}/{MARK}"

    @property
    def _made_by(self) -> str:
        made_with = f"{self.encoder} {recipe(self.cuts, self.rendition)}"
        return hashlib.sha256(made_with.encode()).hexdigest()


@dataclass
class RenditionMakers:
    """Opens videos, and caches the last one: the index of a long video takes 0.5 s."""

    tools: StepTools
    _last: tuple[tuple[UploadId, int], Movie, RenditionCuts] | None = None

    @contextmanager
    def of(self, upload_id: UploadId, quality: int) -> Iterator[RenditionMaker]:
        """Yields a rendition of a complete video; raises `JobFailed` if it is not offered here."""
        tools, video = self.tools, self.tools.uploads.get(upload_id)
        if video.state is not UploadState.COMPLETE:
            raise JobFailed(
                "not_complete", "The video has not been uploaded completely yet.", is_final=True
            )
        with closing(tools.source.open(video)) as source:
            read_at, key = reader(source), (video.id, length_of(source))
            if self._last is None or self._last[0] != key:
                self._last = (key, *self._read(source))
            _, movie, cuts = self._last
            picture = self._picture(video.id, movie, cuts, read_at)
            capability = tools.capability()
            formats = {rendition.quality: rendition for rendition in ladder(picture, capability)}
            if capability is None or quality not in formats:
                problem = "This server does not make this rendition of this video."
                raise JobFailed("not_offered", problem, is_final=True)
            maker = RenditionMaker(
                tools=tools,
                video_id=video.id,
                movie=movie,
                cuts=cuts,
                rendition=formats[quality],
                encoder=capability.encoder,
                read_at=read_at,
            )
            maker.prepare()
            yield maker

    def _read(self, source: RawIOBase) -> tuple[Movie, RenditionCuts]:
        try:
            with needing_index():
                movie, _ = self.tools.movies.read(source, most_entries=MOST_ENTRIES)
                if movie.picture is None:
                    raise JobFailed("no_picture", "The file has no video track.", is_final=True)
                return movie, RenditionCuts.of(segmented_video(movie.picture))
        except LongIndex as error:
            problem = "The video has too many frames for renditions of it."
            raise JobFailed("too_many_samples", problem, is_final=True) from error

    def _picture(
        self, upload_id: UploadId, movie: Movie, cuts: RenditionCuts, read_at: ReadAt
    ) -> Stream:
        """The video stream in the manifest, which lists the segments for players."""
        for _ in range(2):
            with suppress(FileNotFoundError):
                stored = self.tools.files.read(upload_id, MANIFEST)
                picture = Manifest.from_json(stored).picture
                if picture is not None and picture.rung_segments == cuts.durations:
                    return picture
            # The manifest is of an earlier version.
            keep_streams(movie, upload_id, self.tools.files, read_at=read_at)
        raise JobFailed("no_segments", "The video has no segments.", is_final=True)


# ---- whole video ---------------------------------------------------------------------------------

# Joins the segments of a rendition and the original audio in one file.


@dataclass(frozen=True, slots=True)
class RenditionFile:
    """All segments of a rendition except those left out, and the audio; not written yet."""

    tracks: Sequence[Track]
    read_at: ReadAt

    @classmethod
    def of(cls, maker: RenditionMaker) -> Self:
        """Collect the tracks; raises `JobFailed` if a segment is missing."""
        files, quality = _Joined(), maker.rendition.quality
        wanted = range(1, len(maker.cuts) + 1)
        numbers = [number for number in wanted if maker.has(number)]
        if not numbers or not maker.left_out.issuperset(set(wanted).difference(numbers)):
            raise JobFailed(*SEGMENTS_LOST)
        with _as_lost():
            files.add(*_readable(maker, initialization_file(quality)))
            for number in numbers:
                files.add(*_readable(maker, segment_file(quality, number)))
            picture = read_movie(files.read_at, files.length, most_entries=MAX_ENTRIES).picture
            if picture is None:
                raise FileNotFoundError
            # Read from fragments, it begins at time 0.
            shift = picture.timeline.shift + maker.cuts.starts[numbers[0] - 1]
            picture = replace(picture, timeline=replace(picture.timeline, shift=shift))
            found = cls([picture, *_sounds(maker, files)], files.read_at)
        if found.size > files.length:  # Samples may overlap in a hostile video.
            problem = "The audio of the video would take more space than the video itself."
            raise JobFailed(TOO_LARGE, problem, is_final=True)
        return found

    @property
    def size(self) -> int:
        """Disk space in bytes, without its index."""
        return sum(sum(track.samples.sizes) for track in self.tracks)

    def write(self, made: Path, beat: Callable[[], None]) -> None:
        """Write the file; `beat` is called often, and may raise."""

        def read_at(offset: int, count: int) -> bytes:
            beat()
            return self.read_at(offset, count)

        with _as_lost(), made.open("xb") as target:
            copy_pieces(interleaved(self.tracks, self.tracks[0].timescale), read_at, target)


@contextmanager
def _as_lost() -> Iterator[None]:
    try:
        yield
    except (NotIndexable, FileNotFoundError) as error:
        raise JobFailed(*SEGMENTS_LOST) from error


def _sounds(maker: RenditionMaker, files: _Joined) -> Iterator[Track]:
    """Yields the audio tracks, encoded if browsers do not play them; adds their files."""
    encoded = encoded_sounds(maker.movie, maker.tools.files, maker.video_id)
    start = files.add(maker.read_at, maker.movie.length)
    others_start = files.add(*_readable(maker, SOUND_FILE)) if encoded else 0
    for track in maker.movie.sounds:
        if plays_segmented_audio(track.codec):
            yield moved(track, start)
        elif other := encoded.get(track.id):
            yield moved(other, others_start)
        elif plays_audio(track.codec):
            yield moved(track, start)


def _readable(maker: RenditionMaker, name: str) -> tuple[ReadAt, int]:
    """A function that reads a derived file, and the file's length in bytes.

    It opens the file for each read, since a video has thousands of segments; raises
    `FileNotFoundError` once the file is replaced.
    """
    files = maker.tools.files
    found = files.find(maker.video_id, name)
    if found is None:
        raise FileNotFoundError(name)

    def read_at(offset: int, count: int) -> bytes:
        with closing(files.open_version(found)) as file:
            return reader(file)(offset, count)

    return read_at, found.length


class _Joined:
    """Concatenated files, as one address space."""

    def __init__(self) -> None:
        self._files: list[ReadAt] = []
        self._starts: list[int] = []
        self.length = 0

    def add(self, read_at: ReadAt, length: int) -> int:
        """Append a file; returns its start."""
        self._files.append(read_at)
        self._starts.append(self.length)
        self.length += length
        return self._starts[-1]

    def read_at(self, offset: int, count: int) -> bytes:
        """Reads `count` bytes, across files if needed."""
        found = b""
        while count > 0 and offset < self.length:
            place = bisect_right(self._starts, offset) - 1
            end = self._starts[place + 1] if place + 1 < len(self._starts) else self.length
            block = self._files[place](offset - self._starts[place], min(count, end - offset))
            if not block:
                break
            found, offset, count = found + block, offset + len(block), count - len(block)
        return found


# ---- rendition cache -----------------------------------------------------------------------------

# Keeps renditions within their disk limit: the least recently watched are evicted.


LEAST_FREE_SHARE, LEAST_FREE_BYTES = 0.1, 10 << 30
"""Free disk space, whichever is less: below it, renditions are evicted in favour of uploads."""

log = logging.getLogger(__name__)


CachedRendition = Evictable[tuple[UploadId, int]]
"""Files of one rendition; the key is a video and a quality."""


@dataclass
class RenditionCache:
    """The renditions of all videos."""

    files: DerivedFiles
    jobs: JobRecords
    most_bytes: int
    """0 for no limit."""
    least_free_bytes: int
    """The space reserved for uploads."""
    _may_have_grown: bool = True

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

        Renditions that are being encoded are kept. Reads nothing if enough space is free and
        nothing was made since the last call.
        """
        is_limited = self.most_bytes and self._may_have_grown
        wanted = self.files.objects.lacking_bytes(self.least_free_bytes, wanted_bytes)
        if not is_limited and wanted <= 0:
            return 0
        self._may_have_grown = False
        kept, removed = list(self._kept()), 0
        size = sum(each.size for each in kept)

        def remove(each: CachedRendition) -> bool:
            nonlocal removed
            upload_id, quality = each.key
            if self._is_being_encoded(upload_id, quality):
                return False
            for name in (rendition_file(quality), rendition_folder(quality)):
                self.files.discard(upload_id, name)
            detail = "%dp makes room, %.1f MB: others were watched later"
            log.info(detail, quality, each.size / 1e6, extra={"upload_id": upload_id})
            removed += 1
            return True

        excess = evict(kept, max(size - (self.most_bytes or size), wanted), remove)
        self._may_have_grown |= excess > 0  # Renditions being made may be evicted next time.
        return removed

    def _is_being_encoded(self, upload_id: UploadId, quality: int) -> bool:
        return any(
            job.state not in ENDED
            and job.kind in {SEGMENTS, RENDITION}
            and job.argument.partition("/")[0] == str(quality)
            for job in self.jobs.of(upload_id)
        )

    def _kept(self) -> Iterator[CachedRendition]:
        found: defaultdict[tuple[UploadId, int], list[Bundle]] = defaultdict(list)
        for bundle in self.files.evictable():
            stem = PurePath(bundle.name).stem
            if stem.isdecimal():
                found[bundle.upload_id, int(stem)].append(bundle)
        for (upload_id, quality), bundles in found.items():
            size = sum(bundle.size for bundle in bundles)
            # The time of the segments, if there are any: the whole file may be joined later.
            times = {bundle.name: bundle.used_at for bundle in bundles}
            used_at = times.get(rendition_folder(quality), bundles[0].used_at)
            yield Evictable((upload_id, quality), size, used_at)


def least_free_bytes(folder: Path) -> int:
    """Bytes to keep free on the disk of a folder, which need not exist yet."""
    disk = os.statvfs(next(path for path in (folder, *folder.parents) if path.exists()))
    return min(round(disk.f_blocks * disk.f_frsize * LEAST_FREE_SHARE), LEAST_FREE_BYTES)
