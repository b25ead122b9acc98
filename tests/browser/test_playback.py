"""Films play in Chromium and Firefox, as one file and as HLS, to their end and after seeking.

In `make test` two films stand for all: those whose timing is hardest (B-frames in open groups with
the index at the end, sound that begins late). `make test-all` adds one that is rotated, one in
fragments, one of another codec, and Firefox. `make watch-films` plays every film. That no frame is
lost is for tests/video/test_delivery.py to say: a browser on a busy machine drops some.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.theater import Played, Theater
from tests.long_tests import long
from tests.video.films import FilmStore
from tests.video.frames import Frame, Showing, watch
from tests.video.shelf import Shelf

pytestmark = [pytest.mark.browser, pytest.mark.e2e]

QUICK = ["open-gop.mp4", *long(["sound-from-5.mp4", "rotated.mp4", "fragmented.mp4", "av1.mp4"])]
OTHERS = [
    "late-sound.mp4",
    "opus-from-5.mp4",
    "h264.mp4",
    "moov-last.mp4",
    "quicktime.mov",
    "variable-rate.mp4",
    "long-gop.mp4",
    "ntsc.mp4",
    "signed-offsets.mp4",
    "anamorphic.mp4",
    "interlaced.mp4",
    "compact-sizes.mp4",
    "truncated.mp4",
    "vp9.mp4",
    "silent.mp4",
    "surround-aac.mp4",
    "mp3.mp4",
    "two-languages.mp4",
    "subtitles.mp4",
    "chapters.mp4",
]
SHAPES = {"rotated.mp4": (96, 160), "anamorphic.mp4": (320, 96)}
SEEKS = 10
CHROMIUM_CANNOT_SEEK = {
    ("open-gop.mp4", "hls/master.m3u8"),
    ("fragmented.mp4", "play.mp4"),
}
"""Nor in the originals. It gives up if it meets frames of an open group that refer to the group
before, and it skips frames before a key frame if the picture begins late without an edit list."""

SLACK = {"variable-rate.mp4": 2}
"""Numbers: Chromium may show the neighbour of a frame if the rate varies and frames are reordered,
as with the original: it takes durations from the decoding times."""

FRAME_SECONDS = 0.1
"""The longest frame of the films."""


@pytest.mark.parametrize("way", ["play.mp4", "hls/master.m3u8"])
@pytest.mark.parametrize("name", QUICK)
def test_a_film_plays_to_its_end_and_shows_the_right_frames_after_seeking(
    shelf: Shelf, film: FilmStore, any_page: Page, way: str, name: str
) -> None:
    play_and_seek(shelf, film, any_page, way=way, name=name)


@pytest.mark.parametrize("way", ["play.mp4", "hls/master.m3u8"])
@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.only_with("--all-films")
def test_other_films_play_as_well(
    shelf: Shelf, film: FilmStore, any_page: Page, way: str, name: str
) -> None:
    play_and_seek(shelf, film, any_page, way=way, name=name)


def test_a_film_trimmed_by_its_edit_list_plays_in_segments(
    shelf: Shelf, film: FilmStore, any_page: Page
) -> None:
    """As one file, Firefox shows it beyond its end, and Chromium may miss a frame."""
    play_and_seek(shelf, film, any_page, way="hls/master.m3u8", name="hidden-start.mp4")


@pytest.mark.only_with("--all-films")
def test_a_film_made_of_several_parts_plays_in_segments(
    shelf: Shelf, film: FilmStore, any_page: Page
) -> None:
    play_and_seek(shelf, film, any_page, way="hls/master.m3u8", name="several-edits.mp4")


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("h264.mkv", "play.mp4"),
        ("late-ac3.mp4", "hls/master.m3u8"),
        ("mpeg4.avi", "hls/master.m3u8"),
    ],
)
def test_films_in_other_formats_play(
    shelf: Shelf, film: FilmStore, browser: Browser, name: str, way: str
) -> None:
    shelf.when_made(name)
    with closing(browser.new_context()) as context:
        play_and_seek(shelf, film, context.new_page(), way=way, name=name)


def test_subtitles_are_shown_by_players_that_get_only_hls(shelf: Shelf, any_page: Page) -> None:
    shelved = shelf.when_made("subtitles.mp4")
    theater = Theater(any_page, shelf.server)
    theater.load(f"{shelved.path}/hls/master.m3u8", with_hls_js=True)
    assert theater.subtitles() == [["Good evening", 0.5, 1.5], ["Ä", 2, 3]]


def play_and_seek(shelf: Shelf, film: FilmStore, page: Page, *, way: str, name: str) -> None:
    shelved = shelf.with_segments(name) if way.startswith("hls") else shelf[name]
    theater = Theater(page, shelf.server, quarter_turns=int(name == "rotated.mp4"))
    loaded = theater.load(f"{shelved.path}/{way}", with_hls_js=way.startswith("hls"))
    assert loaded.duration == pytest.approx(shelved.playback["duration"], abs=FRAME_SECONDS)
    assert (loaded.width, loaded.height) == SHAPES.get(name, (160, 96))
    assert list(gaps(theater.play_to_end(), loaded.duration)) == []
    if "Chrome" in page.evaluate("navigator.userAgent") and (name, way) in CHROMIUM_CANNOT_SEEK:
        return
    original = shown_by_ffmpeg(film(name))
    for frame in random.Random(name).sample(original.frames[:-1], SEEKS):
        assert abs(theater.seek(middle(original, frame)) - frame.number) <= SLACK.get(name, 0)


@cache
def shown_by_ffmpeg(path: Path) -> Showing:
    """What each frame's time and number are; the same for all browsers and ways."""
    return watch(path)


def gaps(played: Played, duration: float) -> Iterator[str]:
    """What kept the film from playing through, in words."""
    for event, time in played.events:
        if abs(time - duration) > FRAME_SECONDS:  # browsers may wait for the end itself
            yield f"{event} at {time} s"
    if len(played.ranges) != 1:
        yield f"it was buffered in pieces: {played.ranges}"
    if abs(played.end - duration) > FRAME_SECONDS:
        yield f"it ended at {played.end} s"
    numbers = [number for _, number, _ in played.shown]
    if numbers != sorted(numbers):
        yield f"frames went back: {numbers}"


def middle(original: Showing, frame: Frame) -> float:
    """A time at which this frame is shown."""
    after = original.frames[original.frames.index(frame) + 1]
    return (frame.time + after.time) / 2
