"""From an upload to a film that plays, with a real server and real films."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.browser.films import encode
from tests.browser.tools import find_program
from tests.deliver.stored import Stored, store
from tests.dropzone_client import ChunkedFile, form_headers
from tests.live_server import Server
from tests.video.shelf import Shelf
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def server(shelf: Shelf) -> Server:
    """One with ffmpeg."""
    return shelf.server


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A minute's worth of segments, with the index at the end."""
    folder = tmp_path_factory.mktemp("films")
    encode(folder / "front.mp4", size="160x90", seconds=14, bits_per_second="400k")
    copy = ["-i", str(folder / "front.mp4"), "-c", "copy", str(folder / "film.mp4")]
    subprocess.run([find_program("ffmpeg"), "-v", "error", *copy], check=True)
    return folder / "film.mp4"


def playback_of(server: Server, path: str) -> dict[str, Any]:
    found: dict[str, Any] = server.get(path).json()["playback"]
    return found


def played(path: str) -> str:
    """A digest of all pictures, decoded."""
    command = [find_program("ffmpeg"), "-v", "error", "-i", path, "-map", "0:v", "-f", "md5", "-"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def wait_for_playback(stored: Stored) -> dict[str, Any]:
    path = f"/api/videos/{stored.id}"
    wait_until(lambda: playback_of(stored.server, path)["state"] != "waiting", "a first look")
    return playback_of(stored.server, path)


def test_a_film_plays_from_its_original(server: Server, clip: Path) -> None:
    stored = store(server, "film.mp4", clip.read_bytes())
    playback = wait_for_playback(stored)
    assert playback["state"] in {"playable", "ready"}
    assert playback["duration"] == pytest.approx(14, abs=0.1)
    assert (playback["width"], playback["height"], playback["frame_rate"]) == (160, 90, 30)
    assert [track["codec"] for track in playback["tracks"]][1] == "mp4a.40.2"
    path = f"/api/videos/{stored.id}"
    wait_until(lambda: playback_of(server, path)["playable"]["hls"], "the segments")
    playback = playback_of(server, path)
    for name in ("mp4", "hls"):
        assert played(server.url + playback["playable"][name]) == played(str(clip))


def test_pictures_come_by_themselves(server: Server, clip: Path) -> None:
    stored = store(server, "film.mp4", clip.read_bytes())
    path = f"/api/videos/{stored.id}"
    wait_until(lambda: playback_of(server, path)["thumbnails"], "the pictures")
    playback = playback_of(server, path)
    poster = server.get(playback["poster"])
    assert poster.headers["Content-Type"] == "image/jpeg"
    assert poster.content.startswith(b"\xff\xd8")
    assert "sprite.jpg#xywh=0,0,160,90" in server.get(playback["thumbnails"]).text


@pytest.mark.parametrize("content", [b"no film", b"", b"\0\0\0\x18ftypmp42" + bytes(4000)])
def test_other_files_say_kindly_that_they_are_no_films(server: Server, content: bytes) -> None:
    stored = store(server, "film.mp4", content)
    playback = wait_for_playback(stored)
    assert playback["state"] == "unplayable"
    assert playback["playable"] is None
    assert playback["problem"]["detail"].endswith(".")
    assert server.get(stored.path).content == content


def test_other_formats_are_left_to_the_browser(server: Server) -> None:
    tone = ["-v", "error", "-f", "lavfi", "-i", "sine=d=1", "-f", "flac", "-"]
    flac = subprocess.run([find_program("ffmpeg"), *tone], check=True, capture_output=True).stdout
    stored = store(server, "sound.flac", flac)
    playback = wait_for_playback(stored)
    assert playback["state"] in {"playable", "ready"}
    assert playback["playable"] == {"from": "original", "mp4": None, "hls": None}
    assert playback["problem"] is None


def test_a_film_plays_while_it_arrives(server: Server, clip: Path) -> None:
    """The index comes first, though it is at the end of the file; then one piece after another."""
    content = clip.read_bytes()
    file = ChunkedFile(content, -(-len(content) // 8), key="arriving")
    last = file.count - 1
    upload_id = ""
    for index in (last, *range(last - 2)):
        answer = server.post("/upload", data=file.body(index), headers=form_headers()).json()
        upload_id = answer["id"]
    path = f"/api/uploads/{upload_id}"
    wait_until(lambda: server.get(path).json()["playback"], "the index is read")
    playlist = f"/media/{upload_id}/hls/source/index.m3u8"
    begun = server.get(playlist).text
    assert "#EXT-X-PLAYLIST-TYPE:EVENT" in begun
    assert 1 <= begun.count("#EXTINF") < 14
    assert "ENDLIST" not in begun
    missing = begun.count("#EXTINF") + 1
    assert server.get(f"/media/{upload_id}/hls/source/{missing}.m4s").status_code == 404
    assert server.get(f"/media/{upload_id}/play.mp4").status_code == 404
    wait_until(lambda: playback_of(server, path)["poster"], "an early poster")
    assert server.get(f"/media/{upload_id}/poster.jpg").content.startswith(b"\xff\xd8")
    assert playback_of(server, path)["state"] == "playable"
    for index in (last - 2, last - 1):
        server.post("/upload", data=file.body(index), headers=form_headers())
    assert "ENDLIST" in server.get(playlist).text
    wait_until(lambda: server.get(f"/media/{upload_id}/play.mp4").ok, "the whole film")
    assert played(f"{server.url}/media/{upload_id}/hls/master.m3u8") == played(str(clip))
