"""Other qualities over HTTP, made by a real background worker: in segments, and as files."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import requests

from tests.client.running import CommandLine
from tests.dropzone_client import form_body, form_headers
from tests.video.films import FilmStore
from tests.video.frames import watch
from tests.video.hls_reader import download
from tests.video.shelf import Shelf, Shelved
from tests.waiting import wait_until
from tests.web.application import application, offer_renditions

pytestmark = pytest.mark.e2e

FILM = "av1.mp4"
"""As not every browser decodes it, it is offered in H.264, in its own size."""

QUALITY = 360


@pytest.fixture(scope="module")
def offered(shelf: Shelf) -> Shelved:
    return shelf.with_qualities(FILM)


@pytest.fixture(scope="module")
def fetched(
    shelf: Shelf, offered: Shelved, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """What the command line client has had made, and fetched."""
    home = tmp_path_factory.mktemp("home")
    with closing(CommandLine(home, shelf.server.url)) as command:
        ended = command.run("fetch", offered.id, "--rendition", QUALITY)
    assert ended.code == 0, ended.err
    yield home / f"av1 {QUALITY}p.mp4"
    requests.delete(f"{shelf.server.url}/api/videos/{offered.id}/renditions/{QUALITY}", timeout=60)


def numbers(path: Path) -> list[int]:
    return [frame.number for frame in watch(path).frames]


def test_the_client_fetches_a_film_in_another_quality(fetched: Path, film: FilmStore) -> None:
    assert numbers(fetched) == numbers(film(FILM))
    (sound,) = watch(film(FILM)).beeps
    assert watch(fetched).beeps[0] == pytest.approx(sound, abs=0.02)


def test_hls_has_each_picture_once_in_every_quality(
    offered: Shelved, film: FilmStore, tmp_path: Path
) -> None:
    stream = download(f"{offered.url}/hls/master.m3u8", tmp_path)
    heights = [variant.attributes["RESOLUTION"] for variant in stream.variants]
    assert heights == ["160x96", "160x96"]
    shown = [[frame.number for frame in stream.showing(place).frames] for place in (0, 1)]
    assert shown == [numbers(film(FILM))] * 2


def test_the_file_is_sent_like_any_other(fetched: Path, offered: Shelved) -> None:
    url, content = f"{offered.url}/renditions/{QUALITY}.mp4", fetched.read_bytes()
    head = requests.head(url, timeout=60).headers
    assert head["Content-Length"] == str(len(content))
    assert head["Content-Type"] == "video/mp4"
    assert head["Content-Disposition"] == f'attachment; filename="av1 {QUALITY}p.mp4"'
    part = requests.get(url, headers={"Range": "bytes=5-99", "If-Range": head["ETag"]}, timeout=60)
    assert (part.status_code, part.content) == (206, content[5:100])
    known = requests.get(url, headers={"If-None-Match": head["ETag"]}, timeout=60)
    assert known.status_code == 304


@pytest.mark.parametrize(
    "path",
    [
        "hls/360/0.m4s",
        "hls/360/3.m4s",
        f"hls/360/{'9' * 400}.m4s",
        "hls/720/1.m4s",
        "hls/720/init.mp4",
        "hls/720/index.m3u8",
        "hls/-360/1.m4s",
        "renditions/720.mp4",
        "renditions/..%2fplay.mp4",
    ],
)
def test_what_is_not_offered_is_not_found(offered: Shelved, path: str) -> None:
    answer = requests.get(f"{offered.url}/{path}", timeout=60)
    assert answer.status_code == 404
    assert answer.headers["Content-Type"] == "application/problem+json"


def test_many_who_wait_leave_the_server_to_others(shelf: Shelf, offered: Shelved) -> None:
    requests.delete(f"{shelf.server.url}/api/videos/{offered.id}/renditions/{QUALITY}", timeout=60)
    url, started = f"{offered.url}/hls/{QUALITY}/2.m4s", threading.Barrier(31)

    def ask(_: int) -> requests.Response:
        started.wait()
        return requests.get(url, timeout=60)

    with ThreadPoolExecutor(30) as pool:
        answers = pool.map(ask, range(30))
        started.wait()
        assert shelf.server.post(
            "/upload", data=form_body({}, [("small.bin", b"x")]), headers=form_headers()
        ).json()["complete"]
        found = {answer.status_code: answer for answer in answers}
    assert found.keys() <= {200, 503}
    wait_until(lambda: requests.get(url, timeout=60).ok, "who asks again gets it")
    if 503 in found:
        assert found[503].headers["Retry-After"] == "1"
        assert found[503].json()["code"] == "not_made_yet"


def test_a_server_may_offer_no_other_qualities(tmp_path: Path) -> None:
    with application(tmp_path, renditions="off") as app:
        client = app.test_client()
        body = form_body({}, [("film.mp4", b"film")])
        video = client.post("/upload", data=body, headers=form_headers()).get_json(force=True)["id"]
        offer_renditions(app, video)
        refused = client.post(f"/api/videos/{video}/renditions/720")
        assert (refused.status_code, refused.get_json(force=True)["code"]) == (
            409,
            "renditions_off",
        )
        assert (
            client.get(f"/api/videos/{video}").get_json(force=True)["playback"]["renditions"] == []
        )
        master = client.get(f"/media/{video}/hls/master.m3u8").text
        assert master.count("#EXT-X-STREAM-INF") == 1
        assert client.get(f"/media/{video}/hls/720/1.m4s").status_code == 404
