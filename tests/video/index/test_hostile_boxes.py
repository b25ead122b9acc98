"""Files made to exhaust whoever reads them: each is read soon, or refused with a reason."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count as count_from
from itertools import product
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import pytest

from app.video.index.boxes import (
    LARGEST_32_BIT,
    MAX_BOXES_IN_A_BOX,
    LongIndex,
    NotIndexable,
    box,
    full_box,
)
from app.video.index.edits import Edit, Timeline
from app.video.index.fast_start import fast_start
from app.video.index.movie import MAX_MOOV_BYTES, Movie, read_movie
from app.video.index.samples import MAX_TRACKS, SHORT_INDEX
from app.video.index.segments import is_independent, segmented_sound, segmented_video
from app.video.serve.source import CACHED_BLOCK_BYTES
from tests.video.films import FilmStore
from tests.video.hostile_indexes import (
    HEAD,
    RATE,
    index,
    of_late_sound,
    of_sound_that_is_almost_counted_by_chunks,
    sound,
    track,
)
from tests.video.rewritten import edited

if TYPE_CHECKING:
    from _typeshed import TraceFunction

MOST_LINES = 10 * SHORT_INDEX
"""Of Python that may run for a small film: those of a short index, less than a second."""

MOST_MADE = 3 * SHORT_INDEX
"""Samples, and rows of 8 bytes in tables for players, likewise."""

FILE_TYPE = box(b"ftyp", b"isom", bytes(4))


def read(film: bytes) -> Movie:
    return read_movie(lambda offset, count: film[offset : offset + count], len(film))


def refusal(film: bytes) -> str:
    with pytest.raises(NotIndexable) as refused:
        read(film)
    return refused.value.code


def changed(path: Path, kind: bytes, content: bytes) -> bytes:
    """The film with other content in all boxes of a kind in its `moov`, which is last."""
    data = path.read_bytes()
    at_moov = data.index(b"moov") - 4
    return data[:at_moov] + edited(
        data[at_moov:], lambda each, old: (each, content if each == kind else old)
    )


def test_the_media_is_not_read(film: FilmStore) -> None:
    data = film("moov-last.mp4").read_bytes()
    reads: list[range] = []

    def read_at(offset: int, count: int) -> bytes:
        reads.append(range(offset, min(offset + count, len(data))))
        return data[offset : offset + count]

    movie = read_movie(read_at, len(data))
    media = movie.media[0]
    assert sum(len(range(max(r.start, media.start), min(r.stop, media.end))) for r in reads) < 16
    assert len(movie.tracks) == 2


def test_only_the_beginning_of_a_key_frame_is_looked_at() -> None:
    """Units of 300 KB without a slice would each be in another block of a file in a bucket."""
    unit = (300_000 - 4).to_bytes(4, "big") + b"\6" + bytes(300_000 - 5)
    sizes = box(b"stsz", struct.pack(">III", 0, 1_900_000, 2))
    tables = box(b"stco", numbered([64])) + box(b"stss", numbered([1]))
    data = small(track(2, more_tables=sizes + tables), unit=unit, media_bytes=5_000_000)
    reads: set[int] = set()

    def read_at(offset: int, count: int) -> bytes:
        reads.update((offset // CACHED_BLOCK_BYTES, (offset + count - 1) // CACHED_BLOCK_BYTES))
        return data[offset : offset + count]

    (picture,) = read(data).tracks
    assert len(picture.samples) == 2
    assert is_independent(picture, 0, read_at)
    assert reads == {0}


def test_of_a_million_tracks_the_first_ones_are_used(film: FilmStore) -> None:
    data = film("moov-last.mp4").read_bytes()
    at_moov = data.index(b"moov") - 4
    moov = data[at_moov + 8 :] + box(b"trak") * 1_000_000
    movie = read(data[:at_moov] + box(b"moov", moov))
    assert len(movie.tracks) == 2 < MAX_TRACKS < MAX_BOXES_IN_A_BOX
    assert not movie.is_truncated


def numbered(rows: Iterable[int]) -> bytes:
    """The content of a table with one number a row."""
    listed = list(rows)
    return struct.pack(f">II{len(listed)}I", 0, len(listed), *listed)


def rarely_independent(number: int) -> bytes:
    """A track whose first key frame is dependent, and 498 others have 64 units and no slice."""
    sizes = box(b"stsz", struct.pack(">III", 0, 320, 500))
    keys = box(b"stss", numbered(range(1, 500)))
    places = box(b"stco", numbered([24, *[64] * 499]))
    return track(500, chunks=500, number=number, more_tables=sizes + keys + places)


def backwards() -> bytes:
    """A track of which every other edit ends before the first key frame."""
    edits = [(1, 0), (19_990, 20_000)] * 500
    return track(40_000, edits=edits, more_tables=box(b"stss", numbered([20_000])))


def late(timescale: int, ticks: int, delay: int) -> bytes:
    """A film with little sound, which begins after `delay` frames."""
    edits = ((delay, -1), (0, 0))
    runs = ((4, ticks),), ((3, ticks), (1, 1))
    tracks = (
        sound(*each, timescale=timescale, edits=edits, number=number)
        for number, each in enumerate(runs, start=1)
    )
    return small(*tracks)


def shown_before_time_0() -> bytes:
    """A film that is cut off, of pictures that are shown hours before they are decoded."""
    early = box(b"ctts", struct.pack(">IIIi", 0, 1, 4, -(1 << 31)))
    return small(
        track(4, more_tables=early),
        track(4, number=2, more_tables=box(b"stco", numbered([1 << 30]))),
    )


def crowded(kind: bytes) -> bytes:
    """A film with ten thousand boxes of as many kinds in a box of each track."""
    boxes = box(kind, b"".join(box(b"%04d" % number) for number in range(MAX_BOXES_IN_A_BOX)))
    return small(*[box(b"trak", boxes + track(1)[8:])] * MAX_TRACKS)


def described(descriptors: bytes) -> bytes:
    """The description of pictures in MPEG-4."""
    esds = box(b"esds", bytes(4) + descriptors)
    return box(b"stsd", struct.pack(">II", 0, 1) + box(b"mp4v", bytes(78) + esds))


def empty_runs(count: int, of: int = 0) -> bytes:
    """A `traf` of runs of so many samples without a byte."""
    run = full_box(b"trun", 0, 0, of.to_bytes(4, "big"))
    return box(b"traf", full_box(b"tfhd", 0, 0, b"\0\0\0\1"), run * count)


HUGE = (1, 2, 0x7FFF_FFFF, 0xFFFF_FFFF)
"""Numbers that files have where a small one is usual, or the reverse."""

HOSTILE: dict[str, Callable[[], bytes]] = {
    "silence": lambda: of_late_sound(packet=2),
    "silence of all tracks": lambda: of_late_sound(MAX_TRACKS, seconds=3600),
    "sound of one tick, then two": lambda: of_sound_that_is_almost_counted_by_chunks(100_000),
    "segments": lambda: small(
        *(sound((9500, 4 * 44_100), number=n) for n in range(MAX_TRACKS)),
        track(9500, more_tables=box(b"stts", struct.pack(">IIII", 0, 1, 9500, 4 * RATE))),
    ),
    "pictures before time 0": shown_before_time_0,
    "repeated pictures": lambda: small(track(100, edits=[(100, 0)] * 1000)),
    "repeated sound": lambda: small(
        *(sound((100, 1024), edits=[(58, 0)] * 1000, number=n) for n in range(MAX_TRACKS))
    ),
    "edits before the first key frame": lambda: small(backwards()),
    "key frames": lambda: small(*map(rarely_independent, range(MAX_TRACKS)), unit=b"\0\0\0\1\6"),
    "boxes": lambda: small(*[track(1, more_tables=box(b"free") * 3000)] * MAX_TRACKS),
    **{f"boxes in {kind.decode()}": partial(crowded, kind) for kind in (b"edts", b"tref", b"udta")},
    "boxes in repeated mdia": lambda: small(
        *[box(b"trak", track(1)[8:] + box(b"mdia", box(b"free") * 9999))] * MAX_TRACKS
    ),
    "descriptors": lambda: small(*[track(1, more_tables=described(b"\0" * 80_000))] * MAX_TRACKS),
    "runs of no sample": lambda: small(track(1)) + box(b"moof", *[empty_runs(9000)] * 11),
    "runs of a sample": lambda: small(track(1)) + box(b"moof", *[empty_runs(9000, of=1)] * 11),
    "defaults of fragments": lambda: (
        small(track(1), *[box(b"mvex", box(b"free") * MAX_BOXES_IN_A_BOX)] * 30) + box(b"moof")
    ),
    **{
        f"timescale {numbers[0]}, packet {numbers[1]}, late {numbers[2]}": partial(late, *numbers)
        for numbers in product(HUGE, HUGE, (1, 3600 * RATE, 0xFFFF_FFFF))
    },
}
"""Films of less than 3 MB."""


def small(*tracks: bytes, unit: bytes = b"\0", media_bytes: int = 200_000) -> bytes:
    """A film whose media is first: slices of no key frame from byte 24 on, units from 64 on."""
    media = box(b"mdat", b"\0\0\0\1\1" * 8 + unit * (media_bytes // len(unit)))
    return HEAD + media + index(*tracks).removeprefix(HEAD)


@pytest.mark.parametrize("name", HOSTILE)
def test_what_a_small_film_asks_for_is_bounded(name: str) -> None:
    """Whichever numbers it has: as long as it is taken for one with a short index."""
    data = HOSTILE[name]()
    assert len(data) < 3_000_000
    lines, made = work(lambda: list(read_and_cut(data)))
    assert lines < MOST_LINES
    assert made < MOST_MADE


def read_and_cut(data: bytes) -> Iterator[int]:
    """What the first step does with a film; yields how much each part of it makes."""

    def read_at(offset: int, count: int) -> bytes:
        return data[offset : offset + count]

    with suppress(LongIndex, NotIndexable):
        movie = read_movie(read_at, len(data), most_entries=SHORT_INDEX)
        yield sum(len(each.samples) for each in (*movie.stored_tracks, *movie.tracks))
        pieces = fast_start(movie, read_at)
        yield sum(len(piece) // 8 for piece in pieces if isinstance(piece, bytes))
        cuts = [segmented_sound(sound) for sound in movie.sounds]
        if movie.picture:
            cuts.append(segmented_video(movie.picture))
        for cut in cuts:
            yield sum(len(segment.head) // 8 for segment in cut.segments())
            yield len(cut.track.samples)


def work(act: Callable[[], list[int]]) -> tuple[int, int]:
    """How many lines of Python `act` runs until it has run too many, and the sum of its result."""
    lines = count_from()

    def trace(_frame: FrameType, event: str, _argument: object) -> TraceFunction:
        if event == "line" and next(lines) >= MOST_LINES:
            raise AssertionError(f"more than {MOST_LINES} lines")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        made = act()
    finally:
        sys.settrace(before)
    return next(lines), sum(made)


def test_boxes_a_thousand_deep_are_no_film() -> None:
    nested = b""
    for _ in range(1000):
        nested = box(b"trak", box(b"mdia", nested))
    assert refusal(FILE_TYPE + box(b"moov", nested)) == "damaged"


def test_an_index_that_claims_to_be_larger_than_the_limit_is_not_read() -> None:
    head = FILE_TYPE + (MAX_MOOV_BYTES + 1).to_bytes(4, "big") + b"moov"

    def read_at(offset: int, count: int) -> bytes:
        assert count <= 16
        return head[offset : offset + count]

    with pytest.raises(NotIndexable) as refused:
        read_movie(read_at, 1 << 40)
    assert refused.value.code == "moov_too_large"


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (b"stsz", bytes(4) + b"\0\0\0\1" + b"\xff\xff\xff\xff"),  # 4 billion samples of a byte
        (b"stts", bytes(4) + b"\0\0\0\1" + b"\xff\xff\xff\xff" * 2),
        (b"stsc", bytes(4) + b"\0\0\0\1" + b"\0\0\0\1\xff\xff\xff\xff\0\0\0\1"),
        (b"stco", bytes(4) + b"\xff\xff\xff\xff"),
        (b"ctts", bytes(4) + b"\0\0\0\1" + b"\xff\xff\xff\xff\x80\0\0\0"),
        (b"elst", b"\1\0\0\0\0\0\0\1" + b"\x7f" + b"\xff" * 15 + b"\0\1\0\0"),
        (b"mdhd", bytes(20) + b"\0\0\0\0"),  # no timescale
        (b"stsd", bytes(8)),
    ],
)
def test_impossible_tables_are_cut_down_or_refused(
    film: FilmStore, kind: bytes, content: bytes
) -> None:
    data = changed(film("moov-last.mp4"), kind, content)
    known = read(film("moov-last.mp4").read_bytes()).tracks
    with suppress(NotIndexable):
        for track, original in zip(read(data).tracks, known, strict=False):
            assert len(track.samples) <= len(original.samples)


def test_an_edit_that_lasts_longer_than_any_film_is_refused() -> None:
    edits = (Edit((1 << 60) - 1, -1), Edit(1, 0))
    with pytest.raises(NotIndexable) as refused:
        Timeline.of(edits, movie_timescale=1, timescale=LARGEST_32_BIT)
    assert refused.value.code == "damaged"


def test_a_fragment_cannot_have_more_empty_samples_than_the_file_has_bytes(film: FilmStore) -> None:
    data = film("fragmented.mp4").read_bytes()
    number = data[data.index(b"tfhd") + 8 :][:4]
    header = full_box(b"tfhd", 0, 0x10, number, bytes(4))  # size 0 unless a run says otherwise
    for count, is_read in ((1000, True), (10_000_000, False)):
        run = full_box(b"trun", 0, 0, count.to_bytes(4, "big"))
        made = data + box(b"moof", box(b"traf", header, run))
        if is_read:
            assert sum(len(track.samples) for track in read(made).tracks) > count
        else:
            assert refusal(made) == "too_many_samples"


def test_a_film_whose_sound_is_damaged_shows_its_pictures_and_says_so(film: FilmStore) -> None:
    data = bytearray(film("moov-last.mp4").read_bytes())
    place = data.rindex(b"stsz")
    data[place : place + 4] = b"lost"
    movie = read(bytes(data))
    assert [track.kind for track in movie.tracks] == ["video"]
    assert movie.is_truncated


def test_media_in_another_file_is_not_looked_for(film: FilmStore) -> None:
    """An `url ` box with a path and without the flag for "in this file" (section 8.7.2)."""
    elsewhere = full_box(b"url ", 0, 0, b"file:///etc/passwd\0")
    dref = full_box(b"dref", 0, 0, b"\0\0\0\1", elsewhere)[8:]
    data = film("moov-last.mp4").read_bytes()
    at_moov = data.index(b"moov") - 4
    moov = edited(
        data[at_moov:],
        lambda kind, old: (kind, box(b"dref", dref) if kind == b"dinf" else old),
    )
    assert refusal(data[:at_moov] + moov) == "damaged"


@pytest.mark.parametrize("name", ["garbage.mp4", "text.mp4", "empty.mp4"])
def test_what_is_no_film_is_called_so(film: FilmStore, name: str) -> None:
    assert refusal(film(name).read_bytes()) == "not_mp4"


def test_a_film_without_an_index_is_explained(film: FilmStore) -> None:
    with pytest.raises(NotIndexable, match="interrupted") as refused:
        read(film("without-moov.mp4").read_bytes())
    assert refused.value.code == "no_moov"
