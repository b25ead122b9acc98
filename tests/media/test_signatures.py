"""The first bytes of a file tell films from noise."""

from __future__ import annotations

import random

import pytest

from app.media.film.signatures import HEAD_BYTES, is_no_film, may_be_film
from tests.media.films import NO_FILMS, RECIPES, FilmStore

OTHERS = [name for name in RECIPES if not name.endswith(("mp4", "mov", "m4a"))]


@pytest.mark.parametrize("name", [*OTHERS, "lost-sound.ts"])
def test_a_film_of_every_format_may_be_one(film: FilmStore, name: str) -> None:
    head = film(name).read_bytes()[:HEAD_BYTES]
    assert may_be_film(head)
    assert not is_no_film(head)


@pytest.mark.parametrize("name", ["h264.ts", "mpeg2.ts", "mpeg2.mpg", "raw.h264", "sound.mp3"])
def test_a_recording_may_begin_anywhere(film: FilmStore, name: str) -> None:
    data = film(name).read_bytes()
    start = 1001
    assert may_be_film(data[start : start + HEAD_BYTES])


def test_hardly_any_noise_may_be_a_film() -> None:
    heads = [random.Random(seed).randbytes(HEAD_BYTES) for seed in range(200)]
    assert sum(map(may_be_film, heads)) <= 2


@pytest.mark.parametrize("name", NO_FILMS)
def test_texts_archives_and_pictures_are_no_films(name: str) -> None:
    head = NO_FILMS[name][:HEAD_BYTES]
    assert is_no_film(head) or not may_be_film(head)


@pytest.mark.parametrize("head", [b"", bytes(HEAD_BYTES), b"\xff" * HEAD_BYTES, b"\x47"])
def test_a_file_of_equal_bytes_is_no_film(head: bytes) -> None:
    assert not may_be_film(head)
