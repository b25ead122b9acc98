"""Reads what an MP4 or MOV file contains from its index: `read_movie`. Does not read its media."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice

from app.core.ranges import ByteRange
from app.video.index.boxes import (
    Box,
    Fields,
    FileBox,
    LongIndex,
    NotIndexable,
    ReadAt,
    boxes_in,
    descend,
    file_boxes,
)
from app.video.index.flattened import Remaining, flattened
from app.video.index.fragments import FragmentedMovie
from app.video.index.samples import (
    LONG_INDEX,
    MAX_TRACKS,
    Samples,
    most_boxes,
    most_samples,
    refuse_beyond,
    require_at_most,
)
from app.video.index.segments import silent_packets, target_of
from app.video.index.tracks import Track, is_played, read_track

MAX_MOOV_BYTES = 64 << 20
"""A larger `moov` box is not read; 2 hours need 5 MiB."""

_SEGMENT = 30
"""Entries that an HLS segment counts as: it takes 28 us to build and write."""

_KINDS = (b"ftyp", b"moov", b"mdat", b"moof")
FIRST_BOXES = frozenset(b"ftyp moov mdat moof styp sidx free skip wide pnot uuid".split())
"""A file is recognized as MP4 or MOV if it begins with one of these boxes."""


@dataclass(frozen=True, slots=True)
class Movie:
    """An MP4 or MOV file."""

    brand: str
    """Four characters, such as "isom", or "qt  " for QuickTime; empty in old files."""
    timescale: int
    """Ticks per second, for durations in edit lists."""
    stored_tracks: tuple[Track, ...]
    """As stored in the file, with their edit lists."""
    tracks: tuple[Track, ...]
    """As played, without cuts; see `flattened`."""
    is_truncated: bool
    """Whether the file ends before its last samples, or a track is too damaged to be used."""
    length: int
    """Bytes in the file."""
    file_type: bytes
    """The `ftyp` box; empty in old files."""
    box: Box
    """The `moov` box."""
    starts_with_index: bool
    """Whether `moov` comes before the media."""
    is_fragmented: bool
    """Whether samples are described in `moof` boxes."""
    media: tuple[ByteRange, ...]
    """Payloads of the `mdat` boxes."""

    @property
    def picture(self) -> Track | None:
        """The main video track; not a cover, if there is another one."""
        return _picture(self.tracks)

    @property
    def sounds(self) -> list[Track]:
        """The audio tracks, in file order."""
        return [track for track in self.tracks if track.kind == "audio" and len(track.samples)]

    @property
    def duration(self) -> Fraction:
        """Seconds until the end of the last video or audio sample."""
        played = [track for track in self.tracks if track.kind in {"video", "audio"}]
        return max((track.duration for track in played or self.tracks), default=Fraction())


def read_movie(
    read_at: ReadAt, length: int, *, most_entries: int = LONG_INDEX, arrived: int | None = None
) -> Movie:
    """Reads a file of `length` bytes through `read_at`; raises `NotIndexable`.

    Raises `LongIndex` before it reads more than `most_entries`. `arrived` is the number of bytes
    received so far, if not all; the index must not describe more samples than that.
    """
    boxes = _boxes_by_kind(file_boxes(read_at, length), most_entries)
    index, media, fragments = boxes[b"moov"][0], boxes[b"mdat"], boxes[b"moof"]
    if index.end - index.start > MAX_MOOV_BYTES:
        raise NotIndexable("moov_too_large", "The index of the video is too large.")
    moov = _load(read_at, index)
    arrived = length if arrived is None else arrived
    require_at_most(most_entries, moov, fragments, length=length, arrived=arrived)
    timescale = 1000
    if (mvhd := descend(moov.payload, b"mvhd")) is not None:  # section 8.2.2
        header = Fields(mvhd)
        version, _ = header.version_and_flags()
        header.take(16 if version == 1 else 8)  # creation and modification time
        timescale = header.unsigned(4) or timescale
    tracks, is_damaged = _tracks(moov, length=length, movie_timescale=timescale)
    if fragments:
        fragmented = FragmentedMovie(
            moov,
            {track.id: track.samples for track in tracks},
            length=length,
            most_entries=most_entries,
        )
        whole = [moof for moof in fragments if moof.is_whole]
        fragmented.add(whole, read_at)
        tracks = _with_fragments(tracks, fragmented.samples(), movie_timescale=timescale)
        is_damaged |= len(whole) < len(fragments)
    if not any(track.samples for track in tracks if track.kind in {"video", "audio"}):
        raise NotIndexable("no_pictures", "The video contains neither video nor audio.")
    file_type = next((_load(read_at, box) for box in boxes[b"ftyp"] if box.is_whole), None)
    picture, remaining = _picture(tracks), Remaining(most_entries)
    shown = tuple(
        flattened(track, movie_timescale=timescale, remaining=remaining)
        if track is picture or track.kind in {"audio", "text"}
        else track  # No player shows it.
        for track in tracks
    )
    refuse_beyond(most_entries, sum(map(_entries_made, shown)))
    return Movie(
        bytes(file_type.payload[:4]).decode("latin-1") if file_type else "",
        timescale,
        tracks,
        shown,
        is_damaged or any(track.is_truncated for track in tracks),
        length,
        bytes(file_type.raw) if file_type else b"",
        moov,
        not media or index.start < media[0].start,
        bool(fragments),
        tuple(ByteRange(box.payload_start, box.end) for box in media),
    )


def _boxes_by_kind(boxes: Iterable[FileBox], most_entries: int) -> dict[bytes, list[FileBox]]:
    """The top-level boxes of each of `_KINDS`; the first `moov` box is complete."""
    found = defaultdict[bytes, list[FileBox]](list)
    for number, box in enumerate(boxes):
        if number == 0 and box.kind not in FIRST_BOXES:
            break
        if number > most_boxes(most_entries):
            raise LongIndex(most_entries + 1)
        if box.kind in _KINDS:
            found[box.kind].append(box)
    if not found:
        raise NotIndexable("not_mp4", "The file is not an MP4 or MOV video.")
    if not found[b"moov"]:
        raise NotIndexable(
            "no_moov",
            "The video has no index (moov box), without which nothing in it can be found: its "
            "recording or export was interrupted.",
        )
    if not found[b"moov"][0].is_whole:
        raise NotIndexable("moov_cut", "The file ends within the index of the video.")
    return found


def _load(read_at: ReadAt, place: FileBox) -> Box:
    """Reads a top-level box into memory."""
    raw = memoryview(read_at(place.start, place.end - place.start))
    return Box(place.kind, raw[place.payload_start - place.start :], raw)


def _tracks(moov: Box, *, length: int, movie_timescale: int) -> tuple[tuple[Track, ...], bool]:
    """The usable tracks, and whether a damaged video or audio track is missing among them."""
    tracks: list[Track] = []
    problem: NotIndexable | None = None
    is_missed = False
    left = most_samples(length)
    boxes = (box for box in boxes_in(moov.payload) if box.kind == b"trak")
    for trak in islice(boxes, MAX_TRACKS):
        try:
            track = read_track(
                trak, movie_timescale=movie_timescale, length=length, most_samples=left
            )
        except NotIndexable as error:
            is_missed |= is_played(trak)
            problem = problem or error
        else:
            left -= len(track.samples)
            tracks.append(track)
    if not tracks:
        raise problem or NotIndexable("no_tracks", "The file contains neither video nor audio.")
    return tuple(tracks), is_missed


def _picture(tracks: Iterable[Track]) -> Track | None:
    """The video track that players show."""
    pictures = (track for track in tracks if track.kind == "video" and len(track.samples))
    return max(pictures, key=lambda track: (track.is_enabled, len(track.samples) > 1), default=None)


def _entries_made(track: Track) -> int:
    """Entries that HLS adds for a track: its segments, and silence before its audio.

    The file sets the durations of samples, so a few samples may result in many segments.
    """
    if track.kind not in {"video", "audio"} or not track.samples:
        return 0
    silent = silent_packets(track) if track.kind == "audio" else 0
    segments = min(len(track.samples) + silent, track.end // target_of(track) + 1)
    return silent + _SEGMENT * segments


def _with_fragments(
    tracks: Iterable[Track], found: Mapping[int, tuple[Samples, bool]], *, movie_timescale: int
) -> tuple[Track, ...]:
    """The tracks with the samples of fragments, shifted to begin at time 0 as players expect."""
    starts = [
        Fraction(found[track.id][0].decode_times[0], track.timescale)
        for track in tracks
        if found[track.id][0]
    ]
    begin = min(starts, default=Fraction())
    return tuple(
        track.with_fragments(
            samples.earlier(int(begin * track.timescale)) if samples else samples,
            is_truncated=is_cut,
            movie_timescale=movie_timescale,
        )
        for track, (samples, is_cut) in ((track, found[track.id]) for track in tracks)
    )
