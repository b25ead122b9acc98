"""Segments of other qualities, each encoded alone: every picture of the film once, at its time."""

from __future__ import annotations

import random
import threading
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import FileIO
from itertools import accumulate
from pathlib import Path

import pytest

from app.video.index.movie import read_movie
from app.video.index.samples import Samples
from app.video.index.segments import TARGET_SECONDS, RenditionCuts, SegmentedTrack, segmented_video
from app.video.index.tracks import Track
from app.video.make.encoder import Encoder
from app.video.make.ffmpeg import Ffmpeg, FfmpegFailed, FfmpegStopped
from app.video.serve.ladder import RenditionFormat
from app.video.serve.source import length_of, reader
from tests.long_tests import long
from tests.video.films import RECIPES, FilmStore, encode, ffmpeg
from tests.video.frames import FRAME_TOLERANCE, differences, probe, seen, watch

NUMBERED = (
    "hevc-open-gop.mp4",
    "interlaced.mp4",
    "rare-keys.mp4",
    "truncated.mp4",
    "variable-rate.mp4",
    *long(
        [
            "av1.mp4",
            "fragmented.mp4",
            "hdr10.mp4",
            "long-gop.mp4",
            "mpeg2.mp4",
            "open-gop.mp4",
            "prores.mov",
            "signed-offsets.mp4",
            "vp9.mp4",
        ]
    ),
)
"""Films whose pictures have their numbers on them; others are turned or stretched."""

SMALL = ("-vf", "scale=16:16:flags=area,format=gray", "-fps_mode", "passthrough")


class Cut:
    """A film, cut, and a rung of its own size."""

    def __init__(self, source: FileIO) -> None:
        self.read_at = reader(source)
        picture = read_movie(self.read_at, length_of(source)).picture
        assert picture is not None
        self.cuts = RenditionCuts.of(segmented_video(picture))
        self.numbers = range(1, len(self.cuts) + 1)
        self.rendition = RenditionFormat(
            quality=360,
            width=picture.width,
            height=picture.height,
            peak_rate=2_000_000,
            mean_rate=1_000_000,
            codecs="avc1.64001e",
            frame_rate=float(picture.frame_rate),
        )

    def encode(self, numbers: Sequence[int], folder: Path) -> tuple[bytes, dict[int, bytes]]:
        """The initialization that all of them have, and the segments."""
        folder.mkdir()
        encoder = Encoder(Ffmpeg.find(), folder, self.read_at, threading.Event())
        initializations, segments = set(), {}
        for number in numbers:
            initialization, segment = encoder.encode(self.cuts, number, self.rendition)
            initializations.add(initialization.read_bytes())
            segments[number] = segment.read_bytes()
        assert len(initializations) == 1
        return initializations.pop(), segments


@contextmanager
def cut(path: Path) -> Iterator[Cut]:
    with FileIO(path) as source:
        yield Cut(source)


def encoded(path: Path, folder: Path) -> Path:
    """The film as a player gets it that has loaded all segments, made in any order."""
    with cut(path) as film:
        numbers = random.Random(14).sample(film.numbers, len(film.cuts))
        initialization, segments = film.encode(numbers, folder)
    whole = folder / "whole.mp4"
    whole.write_bytes(initialization + b"".join(segments[number] for number in film.numbers))
    return whole


def luma(path: Path) -> bytes:
    return ffmpeg("-i", str(path), *SMALL, "-f", "rawvideo", "-")


@pytest.mark.parametrize("name", NUMBERED)
def test_every_picture_is_there_once_at_its_time(
    film: FilmStore, tmp_path: Path, name: str
) -> None:
    shown = watch(encoded(film(name), tmp_path / "rung"))
    original = replace(watch(film(name)), beeps=())
    assert differences(original, shown, same_pixels=False) == []
    times = [frame.time for frame in original.frames]
    times[0] = 0.0  # Players begin with a picture, not with a gap.
    assert [frame.time for frame in shown.frames] == times


@pytest.mark.parametrize("pictures", [1, 3, *long([2, 4, 5, 6, 7, 8, 9])])
def test_a_segment_of_few_pictures_of_an_open_group_is_whole(tmp_path: Path, pictures: int) -> None:
    path = tmp_path / "film.mp4"
    open_groups = RECIPES["open-gop.mp4"]
    encode(replace(open_groups, sounds=(), seconds=2 + pictures / 25), path)
    with cut(path) as film:
        track = film.cuts.track
        begin = track.shown_at(track.samples.key_frames[-1])
        film.cuts = RenditionCuts(track, array("q", [0, begin, track.end]))
        film.numbers = range(1, 3)
        initialization, segments = film.encode(film.numbers, tmp_path / "rung")
    whole = tmp_path / "whole.mp4"
    whole.write_bytes(initialization + segments[1] + segments[2])
    numbers = [frame.number for frame in watch(whole).frames]
    assert numbers == list(range(50 + pictures))


def test_a_recording_that_begins_in_an_open_group_begins_with_its_key_frame(
    film: FilmStore, tmp_path: Path
) -> None:
    shown = watch(encoded(film("open-gop-cut.mp4"), tmp_path / "rung")).frames
    original = watch(film("open-gop-cut.mp4")).frames
    assert [frame.number for frame in shown] == [frame.number for frame in original]
    assert shown[0].time == 0


def test_what_an_edit_list_hides_is_not_seen(film: FilmStore, tmp_path: Path) -> None:
    name = "hidden-start.mp4"
    shown = list(seen(watch(encoded(film(name), tmp_path / "rung")).frames))
    original = watch(film(name)).frames[: len(shown)]
    assert [frame.number for frame in shown] == [frame.number for frame in original]
    for frame, other in zip(shown, original, strict=True):
        assert frame.time == pytest.approx(other.time, abs=FRAME_TOLERANCE)


@pytest.mark.parametrize("name", ["anamorphic.mp4", "rotated.mp4", *long(["h264.mp4"])])
def test_pictures_look_as_players_show_the_original(
    film: FilmStore, tmp_path: Path, name: str
) -> None:
    whole = encoded(film(name), tmp_path / "rung")
    original, found = luma(film(name)), luma(whole)
    assert len(found) == len(original)
    different = sum(abs(a - b) for a, b in zip(original, found, strict=True)) / len(original)
    assert different < 4
    (stream,) = probe(whole)["streams"]
    with cut(film(name)) as source:
        assert (stream["width"], stream["height"]) == (
            source.rendition.width,
            source.rendition.height,
        )
    assert stream.get("sample_aspect_ratio", "1:1") == "1:1"


@pytest.mark.parametrize("name", ["hdr10.mp4", "prores.mov"])
def test_what_every_browser_decodes_is_made_of_everything(
    film: FilmStore, tmp_path: Path, name: str
) -> None:
    (stream,) = probe(encoded(film(name), tmp_path / "rung"))["streams"]
    assert (stream["profile"], stream["pix_fmt"], stream["level"]) == ("High", "yuv420p", 30)
    if name == "hdr10.mp4":
        colours = [stream[f"color_{name}"] for name in ("space", "transfer", "primaries")]
        assert colours == ["bt709"] * 3


@pytest.mark.parametrize(("named", "expected"), [(None, "bt709"), ("smpte170m", "smpte170m")])
def test_small_pictures_have_the_colours_of_the_large_one(
    tmp_path: Path, named: str | None, expected: str
) -> None:
    """Browsers guess those of a picture that does not name them by its size."""
    path = tmp_path / "film.mp4"
    names = [f"{key}={named}" for key in ("colorspace", "color_primaries", "color_trc") if named]
    colours = ["-vf", f"setparams={':'.join(names)}"] if named else []
    large = ["-f", "lavfi", "-i", "testsrc2=size=1280x720:rate=5", "-frames:v", "2"]
    ffmpeg(*large, *colours, "-c:v", "libx264", "-pix_fmt", "yuv420p", str(path))
    with cut(path) as film:
        film.rendition = replace(film.rendition, width=64, height=36)
        initialization, segments = film.encode([1], tmp_path / "rung")
    path.write_bytes(initialization + segments[1])
    (stream,) = probe(path)["streams"]
    keys = ("color_space", "color_transfer", "color_primaries")
    assert [stream.get(key) for key in keys] == [expected] * 3


def test_a_segment_can_be_played_alone(film: FilmStore, tmp_path: Path) -> None:
    alone = tmp_path / "alone.mp4"
    with cut(film("variable-rate.mp4")) as source:
        initialization, segments = source.encode([2], tmp_path / "rung")
        start, end = (time / source.cuts.track.timescale for time in source.cuts.starts[1:3])
    alone.write_bytes(initialization + segments[2])
    expected = [frame.time for frame in watch(film("variable-rate.mp4")).frames]
    found = [frame.time for frame in watch(alone).frames]
    assert found == [time for time in expected if start <= time < end]


def test_whoever_makes_a_segment_makes_the_same_bytes(film: FilmStore, tmp_path: Path) -> None:
    """Also where the encoder has to keep to a low rate."""
    with cut(film("open-gop.mp4")) as source:
        source.rendition = replace(source.rendition, peak_rate=64_000)
        first = source.encode(source.numbers, tmp_path / "first")
        again = [source.encode([2], tmp_path / name) for name in ("again", "and again")]
    assert again == [(first[0], {2: first[1][2]})] * 2


@pytest.mark.parametrize("name", ["h264.mp4", "long-gop.mp4", "variable-rate.mp4", "ntsc.mp4"])
def test_segments_last_as_long_as_the_film_and_none_is_long(film: FilmStore, name: str) -> None:
    with cut(film(name)) as source:
        track = source.cuts.track
        durations = source.cuts.durations
    assert max(durations) <= 2 * TARGET_SECONDS
    assert min(durations[:-1]) >= TARGET_SECONDS / 2
    ends = [round(time / track.timescale, 6) for time in source.cuts.starts[1:]]
    assert list(accumulate(durations)) == pytest.approx(ends, abs=1e-9)
    assert ends[-1] == pytest.approx(float(track.duration), abs=1e-6)


@pytest.mark.parametrize("offset", [0, -(1 << 31)])
def test_the_work_of_cutting_grows_with_the_film(film: FilmStore, offset: int) -> None:
    """Not with its square, where key frames are rare, whatever one sample says of its time."""
    with cut(film("long-gop.mp4")) as source:
        track = source.cuts.track
    short, long = (segmented_video(repeated(track, count, offset)) for count in (20, 80))
    assert seconds_to_cut(long) < 8 * seconds_to_cut(short)


def seconds_to_cut(video: SegmentedTrack) -> float:
    """CPU time, the least of several: other threads and processes only add to it."""
    times = []
    for _ in range(3):
        began = time.process_time()
        RenditionCuts.of(video)
        times.append(time.process_time() - began)
    return min(times)


def repeated(track: Track, count: int, offset: int) -> Track:
    """The film several times in a row; the last sample is shown so much later."""
    samples = track.samples
    starts = range(0, count * samples.end, samples.end)
    numbers = range(0, count * len(samples), len(samples))
    offsets = samples.composition_offsets * count
    offsets[-1] += offset
    longer = Samples(
        samples.offsets * count,
        samples.sizes * count,
        array("q", (start + at for start in starts for at in samples.decode_times)),
        offsets,
        array("I", (number + key for number in numbers for key in samples.key_frames)),
        count * samples.end,
    )
    return replace(track, samples=longer)


@pytest.mark.parametrize(
    ("place", "number", "name"),
    [
        (0, 2, "hevc-open-gop.mp4"),
        (1, 1, "open-gop.mp4"),
        *long(
            [
                (0, 1, "hevc-open-gop.mp4"),
                (1, 1, "hevc-open-gop.mp4"),
                (1, 2, "hevc-open-gop.mp4"),
                (0, 1, "open-gop.mp4"),
                (0, 2, "open-gop.mp4"),
                (1, 2, "open-gop.mp4"),
            ]
        ),
    ],
)
def test_pictures_that_refer_to_a_damaged_key_frame_are_left_out(
    film: FilmStore, tmp_path: Path, name: str, number: int, place: int
) -> None:
    """Decoders would guess them, in grey. `place` counts the key frames of the segment."""
    original = {frame.time: frame.number for frame in watch(film(name)).frames}
    with cut(film(name)) as source:
        track, starts = source.cuts.track, source.cuts.starts
        keys = track.samples.key_frames
        first = next(at for at, key in enumerate(keys) if track.shown_at(key) == starts[number - 1])
        damaged, after = keys[first + place], keys[first + place + 1]
        place_in_file = track.samples.offsets[damaged]
        hole = range(place_in_file, place_in_file + track.samples.sizes[damaged])
        intact = source.read_at

        def read_at(offset: int, count: int) -> bytes:
            data = bytearray(intact(offset, count))
            begin, end = max(hole.start - offset, 0), min(hole.stop - offset, count)
            if begin < end:
                data[begin:end] = bytes(end - begin)
            return bytes(data)

        source.read_at = read_at
        initialization, segments = source.encode([number], tmp_path / "rung")
        lost = [track.shown_at(key) / track.timescale for key in (damaged, after)]
    whole = tmp_path / "whole.mp4"
    whole.write_bytes(initialization + segments[number])
    shown = watch(whole).frames
    first_shown = min(time for time, frame in original.items() if frame == shown[0].number)
    times = [first_shown, *(frame.time for frame in shown[1:])]
    assert [frame.number for frame in shown] == [original[time] for time in times]
    assert not any(lost[0] <= time < lost[1] for time in times)
    assert any(time >= lost[1] for time in times), "the rest is there"


def test_a_part_in_which_nothing_can_be_decoded_is_named(film: FilmStore, tmp_path: Path) -> None:
    with cut(film("h264.mp4")) as source:
        source.read_at = lambda _offset, count: bytes(count)
        with pytest.raises(FfmpegFailed):
            source.encode([2], tmp_path / "rung")
    assert list((tmp_path / "rung").iterdir()) == []


def test_an_encoder_that_is_stopped_leaves_nothing(film: FilmStore, tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    reads: list[int] = []

    def read_at(offset: int, count: int) -> bytes:
        reads.append(count)
        return source.read_at(offset, count)

    with cut(film("h264.mp4")) as source:
        encoder = Encoder(Ffmpeg.find(), tmp_path, read_at, stop)
        with pytest.raises(FfmpegStopped):
            encoder.encode(source.cuts, 1, source.rendition)
    assert reads == [], "it does not even copy the film"
    assert list(tmp_path.iterdir()) == []
