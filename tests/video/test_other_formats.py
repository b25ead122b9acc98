"""Films that are no MP4 or MOV with codecs of browsers, from their upload until they play.

What is copied must be the film of the original, frame by frame; what is encoded must have each
frame once, in order and in time. Sound is within 20 ms in both.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.long_tests import long
from tests.video.films import NO_FILMS, FilmStore
from tests.video.frames import differences, duration_of, watch
from tests.video.hls_reader import download, faults
from tests.video.shelf import Shelf
from tests.video.test_delivery import FRAME_SECONDS, save

pytestmark = pytest.mark.e2e

COPIED = ["h264.mkv", "hevc.ts", "ntsc.mkv", "h264.ts", "h264.flv", "vp9.webm"]
ENCODED = ["theora.ogv", "h264.avi", "vp8.webm", "wmv2.wmv", "raw.h264"]
ENCODED_SOUND = ["late-ac3.mp4", "fragmented-ac3.mp4", "pcm.mov", "mp3.mp4"]


def first(count: int, names: list[str]) -> list[Any]:
    """The names, all but the first `count` of them marked `long`."""
    return [*names[:count], *long(names[count:])]


@pytest.mark.parametrize("name", [*first(1, COPIED), *first(1, ENCODED)])
def test_a_film_in_another_container_plays_everywhere(
    shelf: Shelf, film: FilmStore, tmp_path: Path, name: str
) -> None:
    shelved, original = shelf.when_made(name), watch(film(name))
    playback = shelved.playback
    assert playback["state"] == "ready", playback["problem"]
    is_copied = name in COPIED
    file = save(f"{shelved.url}/play.mp4", tmp_path / "play.mp4")
    assert differences(original, watch(file), same_pixels=is_copied) == []
    assert playback["duration"] == pytest.approx(duration_of(file), abs=FRAME_SECONDS)
    assert playback["poster"]


@pytest.mark.parametrize("name", ["h264.mkv", "theora.ogv"])
def test_such_a_film_has_segments(shelf: Shelf, film: FilmStore, tmp_path: Path, name: str) -> None:
    stream = download(f"{shelf.when_made(name).url}/hls/master.m3u8", tmp_path)
    is_copied = name in COPIED
    assert differences(watch(film(name)), stream.showing(), same_pixels=is_copied) == []
    assert faults(stream.variants[0], has_picture=True) == []
    assert len(stream.variants[0].seconds) == 2


@pytest.mark.parametrize("name", first(1, ENCODED_SOUND))
def test_sound_that_browsers_do_not_play_is_encoded_once_for_segments(
    shelf: Shelf, film: FilmStore, tmp_path: Path, name: str
) -> None:
    shelved, original = shelf.when_made(name), watch(film(name))
    stream = download(f"{shelved.url}/hls/master.m3u8", tmp_path / "hls")
    assert differences(original, stream.showing()) == []
    file = save(f"{shelved.url}/play.mp4", tmp_path / "play.mp4")
    assert differences(original, watch(file)) == []
    is_played = name == "mp3.mp4"
    assert shelved.playback["playable"]["from"] == ("original" if is_played else "hls")


@pytest.mark.parametrize("name", ["sound.wma", *long(["alac.m4a"])])
def test_sound_alone_plays_once_it_is_encoded(
    shelf: Shelf, film: FilmStore, tmp_path: Path, name: str
) -> None:
    shelved, original = shelf.when_made(name), watch(film(name))
    assert shelved.playback["state"] == "ready"
    assert shelved.playback["waveform"]
    stream = download(f"{shelved.url}/hls/master.m3u8", tmp_path / "hls")
    assert differences(original, replace(stream.showing(), frames=())) == []


def test_what_is_in_a_film_is_said_of_the_original(shelf: Shelf) -> None:
    playback = shelf.when_made("h264.mkv").playback
    tracks = playback["tracks"]
    assert playback["container"] == "matroska"
    assert [track["codec"] for track in tracks] == ["h264", "ac3", "ac3", "subrip"]
    assert [track["language"] for track in tracks[1:]] == ["en", "de", "en"]
    assert [track["channels"] for track in tracks] == [None, 6, 6, None]
    assert tracks[2]["title"] == "Commentary"
    assert (playback["width"], playback["height"], playback["frame_rate"]) == (160, 96, 25)
    assert [chapter["title"] for chapter in playback["chapters"]] == ["Morning", "Evening"]
    (subtitles,) = playback["subtitles"]
    assert subtitles["language"] == "en"


def test_languages_titles_and_texts_are_kept(shelf: Shelf, tmp_path: Path) -> None:
    shelved = shelf.when_made("h264.mkv")
    stream = download(f"{shelved.url}/hls/master.m3u8", tmp_path)
    attributes = [sound.attributes for sound in stream.sounds]
    assert [sound["LANGUAGE"] for sound in attributes] == ["en", "de"]
    assert attributes[1]["NAME"] == "Commentary"
    assert [sound["CHANNELS"] for sound in attributes] == ["6", "6"]
    assert "Good evening" in shelf.server.get(f"{shelved.path}/subs-1.vtt").text
    assert "Morning" in shelf.server.get(f"{shelved.path}/chapters.vtt").text


def test_sound_files_that_browsers_play_are_left_alone(shelf: Shelf) -> None:
    playback = shelf.when_made("sound.flac").playback
    assert playback["playable"] == {"from": "original", "mp4": None, "hls": None}
    assert playback["waveform"]
    assert [track["codec"] for track in playback["tracks"]] == ["flac"]
    assert playback["duration"] == pytest.approx(2, abs=0.1)


@pytest.mark.parametrize("name", NO_FILMS)
def test_other_files_say_kindly_that_they_are_no_films(
    shelf: Shelf, film: FilmStore, name: str
) -> None:
    shelved = shelf.when_made(name)
    assert shelved.playback["problem"]["code"] == "no_film"
    assert shelf.server.get(shelved.path).content == film(name).read_bytes()


@pytest.mark.parametrize("name", ["mpeg4.avi", *long(["mpeg2.mpg"])])
def test_pictures_that_no_browser_decodes_are_offered_in_other_qualities(
    shelf: Shelf, film: FilmStore, tmp_path: Path, name: str
) -> None:
    playback = shelf.when_made(name).playback
    assert (playback["state"], playback["problem"]) == ("ready", None)
    assert (playback["playable"]["from"], playback["playable"]["mp4"]) == ("hls", None)
    assert playback["poster"]
    stream = download(f"{shelf[name].url}/hls/master.m3u8", tmp_path)
    assert differences(watch(film(name)), stream.showing(), same_pixels=False) == []
