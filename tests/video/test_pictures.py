"""Posters and sprites of real films: which pictures they show, and how."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from threading import Event

import pytest

from app.core.jobs import JobCancelled, JobFailed
from app.video.index.boxes import ReadAt
from app.video.index.movie import Movie, read_movie
from app.video.index.tracks import Track
from app.video.make.ffmpeg import Ffmpeg
from app.video.make.pictures import (
    MOST_DECODED_PIXELS,
    MOST_PARTS,
    PictureMaker,
    detail,
    key_frames_near,
    of_key_frames,
)
from app.video.make.steps import as_job_errors
from tests.long_tests import long
from tests.video.films import BITS, H264, HDR10, HDR10_PICTURE, SQUARE, FilmStore, ffmpeg
from tests.video.frames import probe

CUE = re.compile(
    r"(\d\d):(\d\d):(\d\d\.\d{3}) --> (\d\d):(\d\d):(\d\d\.\d{3})\nsprite\.jpg#xywh=(.+)"
)


@dataclass(frozen=True)
class Thumbnail:
    """A small picture: seconds, its place in the sprite, and the number of the frame it shows."""

    start: float
    end: float
    place: tuple[int, ...]
    number: int


class Made:
    """Pictures of a film, each made when it is first asked for."""

    def __init__(self, path: Path, scratch: Path) -> None:
        self._movie, read_at = opened(path)
        self._maker = PictureMaker(Ffmpeg.find(), scratch, read_at, Event())

    @cached_property
    def poster(self) -> Path:
        return self._maker.poster(picture_of(self._movie), pixels=MOST_DECODED_PIXELS)

    @cached_property
    def _sprite_and_cues(self) -> tuple[Path, Path]:
        return self._maker.sprite(self._movie, picture_of(self._movie))

    @property
    def sprite(self) -> Path:
        return self._sprite_and_cues[0]

    @cached_property
    def thumbnails(self) -> list[Thumbnail]:
        sprite, cues = self._sprite_and_cues
        return thumbnails(sprite, cues.read_text())


def opened(path: Path) -> tuple[Movie, ReadAt]:
    def read_at(offset: int, count: int) -> bytes:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(count)

    return read_movie(read_at, path.stat().st_size), read_at


def picture_of(movie: Movie) -> Track:
    assert movie.picture is not None
    return movie.picture


Make = Callable[[Path], Made]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes pictures of a film."""

    def pictures_of(path: Path) -> Made:
        scratch = tmp_path / f"made-{path.name}"
        scratch.mkdir()
        return Made(path, scratch)

    return pictures_of


def thumbnails(sprite: Path, text: str) -> list[Thumbnail]:
    width = probe(sprite)["streams"][0]["width"]
    levels = ffmpeg("-i", str(sprite), "-vf", "format=gray", "-f", "rawvideo", "-")
    found = []
    for cue in CUE.finditer(text):
        start, end = (int(cue[n]) * 3600 + int(cue[n + 1]) * 60 + float(cue[n + 2]) for n in (1, 4))
        place = tuple(map(int, cue[7].split(",")))
        middle = (place[1] + SQUARE // 2) * width + place[0] + SQUARE // 2
        squares = levels[middle : middle + BITS * SQUARE : SQUARE]
        number = sum(1 << bit for bit, level in enumerate(squares) if level > 127)
        found.append(Thumbnail(start, end, place, number))
    return found


def luma(picture: Path) -> bytes:
    return ffmpeg("-i", str(picture), "-vf", "scale=64:36,format=gray", "-f", "rawvideo", "-")


def new_film(path: Path, source: str, *options: str) -> Path:
    ffmpeg("-f", "lavfi", "-i", source, *H264.split(), *options, str(path))
    return path


KINDS = (
    *("hevc-open-gop.mp4", "open-gop.mp4", "prores.mov", "huge.mp4", "truncated.mp4"),
    "fragmented.mp4",
)
OTHERS = (
    *("h264.mp4", "moov-last.mp4", "quicktime.mov", "intra.mp4", "interlaced.mp4", "hevc.mp4"),
    *("av1.mp4", "vp9.mp4", "mpeg2.mp4", "signed-offsets.mp4", "compact-sizes.mp4"),
    "late-sound.mp4",
)


@pytest.mark.parametrize("name", [*KINDS, *long(OTHERS)])
def test_a_thumbnail_shows_its_time(film: FilmStore, make: Make, name: str) -> None:
    """Fragmented films of ffmpeg begin two frames late."""
    shown = make(film(name)).thumbnails
    assert len(shown) >= 2
    for each in shown:
        assert each.start - 0.081 <= each.number / 25 < each.end
    movie, _ = opened(film(name))
    assert shown[0].start == 0
    assert shown[-1].end == pytest.approx(float(movie.duration), abs=0.001)
    assert all(before.end == after.start for before, after in pairwise(shown))


def test_where_key_frames_are_rare_all_of_a_short_film_is_decoded(
    film: FilmStore, make: Make
) -> None:
    shown = make(film("long-gop.mp4")).thumbnails
    assert len(shown) == 40
    assert len({each.number for each in shown}) == 40
    for each in shown:
        assert each.start <= each.number / 10 < each.end


def test_a_long_film_has_a_hundred_thumbnails_in_the_order_of_time(
    tmp_path: Path, make: Make, film: FilmStore
) -> None:
    """Of HEVC with open groups, whose key frames know their place among the missing ones."""
    path = tmp_path / "long.mp4"
    source = film("hevc-open-gop.mp4")
    ffmpeg("-stream_loop", "20", "-i", str(source), "-an", "-c", "copy", str(path))
    shown = make(path).thumbnails
    assert len(shown) == 100
    assert [each.place[:2] for each in shown] == [
        (x, y) for y in range(0, 960, 96) for x in range(0, 1600, 160)
    ]
    movie, _ = opened(source)
    count = len(movie.tracks[0].samples)
    assert [each.number for each in shown] == [round(each.start * 25) % count for each in shown]


def test_h264_with_open_groups_needs_few_decoders(tmp_path: Path, film: FilmStore) -> None:
    path = tmp_path / "long.mp4"
    ffmpeg("-stream_loop", "30", "-i", str(film("open-gop.mp4")), "-an", "-c", "copy", str(path))
    movie, read_at = opened(path)
    numbers = key_frames_near(picture_of(movie), map(Fraction, range(100)))
    excerpt = of_key_frames(picture_of(movie), numbers, read_at)
    assert MOST_PARTS / 2 < len(excerpt.parts) <= MOST_PARTS
    assert len(excerpt.starts) == sum(len(part.samples) for part in excerpt.parts)


@pytest.mark.parametrize(
    ("name", "size"),
    [("anamorphic.mp4", (320, 96)), ("rotated.mp4", (96, 160)), ("h264.mp4", (160, 96))],
)
def test_a_poster_has_the_shape_of_the_film(
    film: FilmStore, make: Make, name: str, size: tuple[int, int]
) -> None:
    made = make(film(name))
    (stream,) = probe(made.poster)["streams"]
    assert (stream["width"], stream["height"]) == size
    assert stream["sample_aspect_ratio"] == "1:1"


def test_large_films_have_smaller_pictures(tmp_path: Path, make: Make) -> None:
    made = make(new_film(tmp_path / "large.mp4", "testsrc2=s=1440x2560:d=0.2"))
    (poster,), (sprite,) = (probe(path)["streams"] for path in (made.poster, made.sprite))
    assert (poster["width"], poster["height"]) == (720, 1280)
    assert (sprite["width"], sprite["height"]) == (90, 160)


@pytest.mark.parametrize("seconds", [2, 8])
def test_a_film_that_begins_black_has_another_poster(
    tmp_path: Path, make: Make, seconds: int
) -> None:
    """With one key frame, a black one, or with several."""
    source = f"testsrc2=s=160x96:d={seconds},fade=in:st={seconds / 4}:d={seconds / 4}"
    made = make(new_film(tmp_path / "fade.mp4", source, "-g", "50"))
    assert detail(luma(made.poster)) > 2.5


def test_a_black_film_has_a_black_poster(tmp_path: Path, make: Make) -> None:
    made = make(new_film(tmp_path / "black.mp4", "color=black:s=160x96:d=2"))
    assert max(luma(made.poster)) < 20


def test_a_film_of_one_frame_has_pictures(tmp_path: Path, make: Make) -> None:
    made = make(new_film(tmp_path / "one.mp4", "testsrc2=s=160x96", "-frames:v", "1"))
    assert detail(luma(made.poster)) > 2
    (only,) = made.thumbnails
    assert only.place == (0, 0, 160, 96)


def test_a_high_dynamic_range_is_mapped(tmp_path: Path, make: Make) -> None:
    """What is 58 % of PQ, 203 cd/m2, is white paper (ITU-R BT.2408): not a dull grey."""
    source = ["-f", "lavfi", "-i", "color=0x949494:s=160x96:d=0.2", "-vf", HDR10_PICTURE]
    ffmpeg(*source, *HDR10.split(), str(tmp_path / "hdr.mp4"))
    levels = luma(make(tmp_path / "hdr.mp4").poster)
    assert 165 < min(levels) <= max(levels) < 200


def test_detail_is_what_fades_and_titles_lack() -> None:
    black, grey, title = bytes(1000), b"\x80" * 1000, b"\xff" * 100 + bytes(900)
    scene = bytes(range(250)) * 4
    fading = bytes(level // 8 for level in scene)
    assert detail(black) == detail(grey) == 0
    assert 0 < detail(title) < detail(fading) < detail(scene)


def test_what_cannot_be_decoded_is_said_in_a_sentence(
    film: FilmStore, make: Make, tmp_path: Path
) -> None:
    damaged = bytearray(film("h264.mp4").read_bytes())
    media = damaged.find(b"mdat") + 4
    damaged[media:] = bytes(len(damaged) - media)
    path = tmp_path / "damaged.mp4"
    path.write_bytes(damaged)
    with (
        pytest.raises(
            JobFailed, match=r"^No poster or thumbnails can be made of this video: .+\.$"
        ),
        as_job_errors("no_pictures", "No poster or thumbnails can be made of this video"),
    ):
        _ = make(path).poster


def test_a_step_without_ffmpeg_says_so_and_a_cancelled_one_stops(
    film: FilmStore, tmp_path: Path
) -> None:
    movie, read_at = opened(film("h264.mp4"))
    stop = Event()
    stop.set()
    for program, error in ((None, JobFailed), (Ffmpeg.find().ffmpeg, JobCancelled)):
        maker = PictureMaker(Ffmpeg(ffmpeg=program, ffprobe=None), tmp_path, read_at, stop)
        with pytest.raises(error), as_job_errors("no_pictures", "No pictures"):
            maker.poster(picture_of(movie), pixels=MOST_DECODED_PIXELS)
