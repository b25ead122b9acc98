"""Every film that browsers can play is delivered whole: as one file and as HLS.

ffmpeg decodes what a live server sends: each frame must be there once, in order, with the pixels
and at the time of the original, and each beep within 20 ms. What the index makes of each film is
tested without a server, in `tests/video/index`; so `make test` has one film of each kind here, and
`make test-all` all others, as each costs a CPU second. Only that of 4 GiB waits for
`make watch-films`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urljoin

import pytest
import requests

from tests.dropzone_client import ChunkedFile, send_chunk
from tests.live_server import Server
from tests.long_tests import long
from tests.s3_servers import new_prefix
from tests.video.films import NO_FILMS, SUBTITLES, FilmStore
from tests.video.frames import differences, duration_of, packets, watch
from tests.video.hls_reader import download, faults
from tests.video.shelf import Shelf
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

FRAME_SECONDS = 0.1
"""The longest frame of the matrix."""

H264 = [
    "h264.mp4",
    "moov-last.mp4",
    "fragmented.mp4",
    "quicktime.mov",
    "open-gop.mp4",
    "long-gop.mp4",
    "variable-rate.mp4",
    "ntsc.mp4",
    "signed-offsets.mp4",
    "rotated.mp4",
    "anamorphic.mp4",
    "interlaced.mp4",
    "compact-sizes.mp4",
    "truncated.mp4",
]
OTHER_CODECS = ["hevc.mp4", "hevc-open-gop.mp4", "hdr10.mp4", "av1.mp4", "vp9.mp4"]
SOUNDS = [
    "silent.mp4",
    "surround-aac.mp4",
    "two-languages.mp4",
    "late-sound.mp4",
    "sound-from-5.mp4",
]
TEXTS = ["subtitles.mp4", "chapters.mp4"]
ENCODED_SOUND = ["mp3.mp4", "surround-ac3.mp4", "surround-eac3.mp4", "flac-from-2.mp4"]
"""Not all browsers take this sound in segments, or not from there on, so it is encoded for them."""

KINDS = [
    "fragmented.mp4",
    "truncated.mp4",
    "hevc-open-gop.mp4",
    "late-sound.mp4",
    "flac-from-2.mp4",
    "sound.m4a",
]
OTHERS = {*H264, *OTHER_CODECS, *SOUNDS, *TEXTS, *ENCODED_SOUND}.difference(KINDS)
PLAYED = [*KINDS, *long(sorted(OTHERS))]

WITHOUT_FILM = [*NO_FILMS, "without-moov.mp4", "without-pictures.mp4"]


def save(url: str, path: Path) -> Path:
    """What a server sends, in a file."""
    with requests.get(url, stream=True, timeout=60) as answer, path.open("wb") as file:
        answer.raise_for_status()
        for piece in answer.iter_content(1 << 20):
            file.write(piece)
    return path


@pytest.mark.parametrize("name", PLAYED)
def test_play_mp4_is_the_film_with_its_index_first(
    shelf: Shelf, film: FilmStore, tmp_path: Path, name: str
) -> None:
    shelved = shelf[name]
    assert shelved.playback["state"] in {"playable", "ready"}
    file = save(f"{shelved.url}/play.mp4", tmp_path / "play.mp4")
    assert differences(watch(film(name)), watch(file)) == []
    assert duration_of(file) == pytest.approx(shelved.playback["duration"], abs=FRAME_SECONDS)
    start = file.read_bytes()
    assert start.index(b"moov") < start.index(b"mdat")


@pytest.mark.parametrize("name", PLAYED)
def test_hls_is_the_film(shelf: Shelf, film: FilmStore, tmp_path: Path, name: str) -> None:
    shelved = shelf.when_made(name) if name in ENCODED_SOUND else shelf.with_segments(name)
    stream = download(f"{shelved.url}/hls/master.m3u8", tmp_path)
    assert differences(watch(film(name)), stream.showing()) == []
    for rendition in stream.variants:
        assert faults(rendition, has_picture=name != "sound.m4a") == []
        longest = shelved.playback["duration"] + FRAME_SECONDS
        assert longest - 3 * FRAME_SECONDS < rendition.duration < longest
    for rendition in stream.sounds:
        assert faults(rendition, has_picture=False) == []


def test_a_recording_that_begins_in_an_open_group_lasts_from_its_beginning(
    shelf: Shelf, tmp_path: Path
) -> None:
    """Its sound begins before the first picture that can be decoded."""
    shelved = shelf.with_qualities("open-gop-cut.ts")
    stream = download(f"{shelved.url}/hls/master.m3u8", tmp_path)
    durations = [each.duration for each in (*stream.variants, *stream.sounds)]
    assert len(durations) == 3
    assert durations == pytest.approx([shelved.playback["duration"]] * 3, abs=FRAME_SECONDS)
    source, made, sound = (packets(each.file, "0") for each in (*stream.variants, *stream.sounds))
    for found in (source, made, sound):
        assert min(packet.presented for packet in found) == pytest.approx(0, abs=0.03)
    assert source[1].presented > 0.1


def test_subtitles_are_in_hls(shelf: Shelf, tmp_path: Path) -> None:
    shelved = shelf.when_made("subtitles.mp4")
    path = tmp_path / "subtitles.de.srt"
    path.write_text(SUBTITLES)
    with path.open("rb") as file:
        shelf.server.post("/upload", files={"file": (path.name, file)}).raise_for_status()
    master = requests.get(f"{shelved.url}/hls/master.m3u8", timeout=60).text
    assert 'SUBTITLES="subtitles"' in master
    lines = [line for line in master.splitlines() if "TYPE=SUBTITLES" in line]
    assert [('LANGUAGE="en"' in line, 'LANGUAGE="de"' in line) for line in lines] == [
        (True, False),
        (False, True),
    ]
    for line in lines:
        address = urljoin(f"{shelved.url}/hls/", line.partition('URI="')[2].partition('"')[0])
        playlist = requests.get(address, timeout=60)
        assert playlist.headers["Content-Type"] == "application/vnd.apple.mpegurl"
        *_, duration, name, end = playlist.text.splitlines()
        assert float(duration[8:-1]) == pytest.approx(shelved.playback["duration"], abs=0.1)
        assert end == "#EXT-X-ENDLIST"
        texts = requests.get(urljoin(address, name), timeout=60).text
        assert texts.startswith("WEBVTT")
        assert "00:00:00.500 --> 00:00:01.500\nGood evening" in texts
    unknown = f"{shelved.url}/hls/subs-7/index.m3u8"
    assert requests.get(unknown, timeout=60).status_code == 404


@pytest.mark.parametrize("name", ["late-sound.mp4", *long(["open-gop.mp4", "two-languages.mp4"])])
def test_ffmpeg_plays_both_over_http(shelf: Shelf, film: FilmStore, name: str) -> None:
    shelved = shelf.with_segments(name)
    assert differences(watch(film(name)), watch(f"{shelved.url}/play.mp4")) == []
    assert differences(watch(film(name)), watch(f"{shelved.url}/hls/master.m3u8")) == []


def test_nothing_of_a_film_is_encoded_again(shelf: Shelf, film: FilmStore, tmp_path: Path) -> None:
    file = save(f"{shelf['two-languages.mp4'].url}/play.mp4", tmp_path / "play.mp4")
    for stream in ("v:0", "a:0", "a:1"):
        assert packets(file, stream) == packets(film("two-languages.mp4"), stream)


def test_a_film_without_a_picture_says_so(shelf: Shelf) -> None:
    problem = shelf["without-pictures.mp4"].playback["problem"]
    assert problem == {
        "code": "no_pictures",
        "detail": "The video contains neither video nor audio.",
    }


def test_a_film_that_was_cut_off_says_so(shelf: Shelf) -> None:
    assert shelf["truncated.mp4"].playback["problem"]["code"] == "truncated"


@pytest.mark.parametrize("name", WITHOUT_FILM)
def test_what_is_no_film_says_so_and_can_be_downloaded(
    shelf: Shelf, film: FilmStore, name: str
) -> None:
    shelved = shelf[name]
    assert shelved.playback["state"] == "unplayable"
    assert shelved.playback["problem"]["detail"]
    assert requests.get(shelved.url, timeout=60).content == film(name).read_bytes()
    assert requests.get(f"{shelved.url}/play.mp4", timeout=60).status_code == 404


@pytest.mark.only_with("--all-films")
@pytest.mark.timeout(600)
def test_a_film_beyond_4_gib_plays(shelf: Shelf, film: FilmStore, tmp_path: Path) -> None:
    shelved, original = shelf.with_segments("huge.mp4"), watch(film("huge.mp4"))
    assert differences(original, watch(f"{shelved.url}/play.mp4")) == []
    stream = download(f"{shelved.url}/hls/master.m3u8", tmp_path)
    assert differences(original, stream.showing()) == []


@pytest.mark.parametrize("place", ["in_folders", "in_bucket"])
def test_a_film_is_delivered_while_it_arrives(
    start_server: Callable[..., Server], request: pytest.FixtureRequest, film: FilmStore, place: str
) -> None:
    store: dict[str, str] = {}
    if place == "in_bucket":
        store = request.getfixturevalue("versitygw").access.settings(new_prefix())
    server = start_server(**store)
    content = film("h264.mp4").read_bytes()
    upload = ChunkedFile(content, len(content) * 2 // 3)
    send_chunk(server, upload, 0)

    def master() -> str | None:
        (arriving,) = server.get("/api/uploads").json()["uploads"]
        playback = arriving["playback"]
        return None if playback is None else str(playback["playable"]["hls"])

    wait_until(master, "it can be played")
    playlist = master()
    assert playlist is not None
    media = urljoin(playlist, server.get(playlist).text.splitlines()[-1])
    lines = server.get(media).text.splitlines()
    segment = urljoin(media, next(line for line in lines if line and not line.startswith("#")))
    early = server.get(segment)
    assert early.status_code == 200
    assert send_chunk(server, upload, 1).json()["complete"]
    assert server.get(segment).content == early.content
