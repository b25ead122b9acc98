"""The first bytes of a file tell films from noise."""

from __future__ import annotations

import random

import pytest

from app.video.make import probe as signatures
from app.video.make.probe import HEAD_BYTES, is_no_video
from tests.long_tests import long
from tests.video.films import NO_FILMS, RECIPES, REWRITTEN, FilmStore

FORMATS = (
    *("h264.mp4", "fragmented.mp4", "prores.mov", "sound.m4a", "sound.mp3", "h264.mkv", "vp8.webm"),
    *("h264.ts", "open-gop-cut.ts", "mpeg2.mpg", "theora.ogv", "h264.flv", "h264.avi", "wmv2.wmv"),
    *("raw.h264", "sound.wma", "sound.flac"),
)
OTHERS = [name for name in (*RECIPES, *REWRITTEN) if name not in FORMATS]


@pytest.mark.parametrize("name", [*FORMATS, *long(OTHERS)])
def test_a_film_of_every_format_may_be_one(film: FilmStore, name: str) -> None:
    with film(name).open("rb") as file:
        assert not is_no_video(file.read(HEAD_BYTES))


@pytest.mark.parametrize("name", ["h264.ts", "mpeg2.ts", "mpeg2.mpg", "raw.h264", "sound.mp3"])
def test_a_recording_may_begin_anywhere(film: FilmStore, name: str) -> None:
    data = film(name).read_bytes()
    start = 1001
    assert not is_no_video(data[start : start + HEAD_BYTES])


def test_noise_is_no_film() -> None:
    heads = [random.Random(seed).randbytes(HEAD_BYTES) for seed in range(200)]
    assert sum(map(is_no_video, heads)) >= 198


@pytest.mark.parametrize("name", NO_FILMS)
def test_texts_archives_and_pictures_are_no_films(name: str) -> None:
    assert is_no_video(NO_FILMS[name][:HEAD_BYTES])


@pytest.mark.parametrize("name", ["capture.y4m", "Camera.MJPEG"])
def test_formats_without_a_known_beginning_are_told_by_their_extension(name: str) -> None:
    assert not is_no_video(b"\xff\xd8\xff" + bytes(1000), name)


@pytest.mark.parametrize("name", ["film.mp4", "mjpeg", "a.y4m.zip"])
def test_other_names_do_not_make_a_film(name: str) -> None:
    assert is_no_video(random.Random(3).randbytes(HEAD_BYTES), name)


@pytest.mark.parametrize("head", [b"", bytes(HEAD_BYTES), b"\xff" * HEAD_BYTES, b"\x47"])
def test_a_file_of_equal_bytes_is_no_film(head: bytes) -> None:
    assert is_no_video(head)


@pytest.mark.parametrize("unit", [b"\xff\xf1", b"\xff\xfb\x90", b"\xff"])
def test_of_many_beginnings_of_frames_the_first_ones_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, unit: bytes
) -> None:
    """All are in the thread that looks for all work: 32 768 of them took 26 ms."""
    looked_at: list[int] = []

    def are_frames(_head: bytes, at: int) -> bool:
        looked_at.append(at)
        return False

    monkeypatch.setattr(signatures, "_are_frames", are_frames)
    assert is_no_video(unit * (HEAD_BYTES // len(unit)))
    assert len(looked_at) == 500
