"""What guests of a share link get: its videos, and no more of them than it allows."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest
import requests

from app.core.playback import PlaybackState
from app.core.ranges import ByteRange
from app.http.documents import plays_original
from app.video.serve.library import PlaybackView
from tests.deliver.stored import Stored, store
from tests.deliver.test_playback import write
from tests.derived import files_of
from tests.live_server import NO_FFMPEG, Server, running_server
from tests.records.making import new_upload
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

CONTENT = bytes(range(256)) * 400


@dataclass
class Shared:
    """A link, and a browser that has opened it."""

    server: Server
    id: str
    url: str
    browser: requests.Session

    def state(self, video: Stored) -> dict[str, Any]:
        """What the page's player is told about a video."""
        answer = self.browser.get(f"{self.url}/{video.id}/state", timeout=60)
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found

    def media(self, video: Stored, more: str = "", **headers: str) -> requests.Response:
        """The answer for a video by this link's ticket, which is all that the request carries."""
        ticket = self.ticket(video)
        return self.server.get(f"{ticket}/media/{video.id}{more}", headers=headers)

    def ticket(self, video: Stored) -> str:
        """What the URLs of its media begin with, as the page's player is told."""
        told = self.browser.get(f"{self.url}/{video.id}/state", timeout=60).text
        return told[told.index("/t/") :].partition("/media/")[0]

    def revoke(self) -> None:
        """End the link."""
        answer = requests.delete(f"{self.server.url}/api/share-links/{self.id}", timeout=60)
        assert answer.status_code == 204


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("shared"), **NO_FFMPEG) as running:
        yield running


def share(server: Server, *videos: Stored, **terms: Any) -> Shared:
    answer = server.post("/api/share-links", json={"videos": [each.id for each in videos], **terms})
    assert answer.status_code == 201, answer.text
    link = Shared(server, answer.json()["id"], answer.json()["url"], requests.Session())
    opened = link.browser.post(link.url, data={"password": terms.get("password", "")}, timeout=60)
    assert opened.status_code == 200
    return link


def with_play_file(server: Server, film: Stored) -> Stored:
    """Let there be a made file that players get instead of the original.

    The server looks for a film in the file first, and then removes what is made of none.
    """

    def is_looked_at() -> bool:
        found = server.get(f"/api/videos/{film.id}").json()
        return bool(found["playback"]["state"] != PlaybackState.WAITING)

    wait_until(is_looked_at, "the server has looked for a film in it")
    with files_of(server.library.parent) as files:
        write(files, film.id, "play.virtual", [ByteRange(0, len(CONTENT))])
    return film


@pytest.fixture(scope="module")
def film(server: Server) -> Stored:
    return with_play_file(server, store(server, "film.mp4", CONTENT))


@pytest.fixture(scope="module")
def secret(server: Server) -> Stored:
    """A video of the same project that nobody shares."""
    return with_play_file(server, store(server, "secret.mp4", CONTENT))


def test_a_guest_who_may_download_gets_the_same_bytes_as_a_member(
    server: Server, film: Stored
) -> None:
    link = share(server, film, can_download=True)
    part = link.media(film, Range="bytes=1000-1999")
    assert (part.status_code, part.content) == (206, CONTENT[1000:2000])
    assert link.media(film, "/play.mp4").content == CONTENT
    download = link.media(film, "?download")
    assert download.content == CONTENT
    assert download.headers["Content-Disposition"].startswith("attachment")
    button = link.browser.get(f"{link.url}/{film.id}/download", timeout=60)
    assert button.content == CONTENT
    assert button.headers["Content-Disposition"].startswith("attachment")
    assert requests.get(f"{link.url}/{film.id}/download", timeout=60).status_code == 404
    archive = server.post(f"{link.ticket(film)}/media/archive", data={"id": film.id})
    assert archive.headers["Content-Type"] == "application/zip"
    assert link.state(film)["media"] == f"{link.ticket(film)}/media/{film.id}"


def test_a_guest_who_may_only_watch_gets_what_the_player_needs(
    server: Server, film: Stored
) -> None:
    link = share(server, film)
    assert link.media(film, "/play.mp4").content == CONTENT
    for more in ("", "?download", "/renditions/720.mp4"):
        assert link.media(film, more).status_code == 403
    assert link.browser.get(f"{link.url}/{film.id}/download", timeout=60).status_code == 403
    archive = server.post(f"{link.ticket(film)}/media/archive", data={"id": film.id})
    assert archive.status_code == 403
    state = link.state(film)
    assert state["media"] is None
    assert state["playback"]["playable"]["mp4"] == f"{link.ticket(film)}/media/{film.id}/play.mp4"
    assert "/download" not in link.browser.get(link.url, timeout=60).text


def test_the_page_of_a_guest_leads_nowhere_else(
    server: Server, film: Stored, secret: Stored
) -> None:
    link = share(server, film, name="Holidays")
    page = link.browser.get(link.url, timeout=60).text
    assert "Holidays" in page
    assert 'href="/"' not in page
    assert secret.id not in page
    for path in ("/api/videos", "/watch/" + film.id, "/api/uploads", "/api/share-links"):
        assert server.get(link.ticket(film) + path).status_code == 403
    assert server.get(f"{link.ticket(film)}/").status_code == 404


def test_a_ticket_is_good_for_its_own_link_only(
    server: Server, film: Stored, secret: Stored
) -> None:
    link, other = share(server, film), share(server, secret)
    ticket = link.ticket(film)
    assert server.get(f"{ticket}/media/{film.id}/play.mp4").status_code == 200
    assert server.get(f"{other.ticket(secret)}/media/{film.id}/play.mp4").status_code == 404
    assert server.get(f"{ticket}/media/{secret.id}").status_code == 404
    for forged in (ticket[:-1], f"{ticket}A", "/t/A", f"/t/{film.id}", ticket.rpartition(".")[0]):
        assert server.get(f"{forged}/media/{film.id}/play.mp4").status_code == 404
    assert link.browser.get(f"{link.url}/{secret.id}", timeout=60).status_code == 404
    assert other.browser.get(f"{link.url}/{film.id}/state", timeout=60).status_code == 404


def test_looking_at_a_link_is_no_view_and_a_visitor_is_one(server: Server, film: Stored) -> None:
    link = share(server, film, max_views=2)
    for _ in range(3):
        assert requests.get(link.url, timeout=60).status_code == 200  # Without a visit.
        link.browser.get(link.url, timeout=60)
    assert link.browser.cookies.list_paths() == [link.url.removeprefix(server.url)]
    links = server.get("/api/share-links").json()["links"]
    assert [each["views"] for each in links if each["id"] == link.id] == [1]
    assert requests.post(link.url, timeout=60).url == link.url
    late = requests.get(link.url, headers={"Accept": "text/html"}, timeout=60)
    assert (late.status_code, "as often as it may" in late.text) == (410, True)
    assert link.browser.get(link.url, timeout=60).status_code == 200


def test_a_wrong_password_is_answered_beside_its_field(server: Server, film: Stored) -> None:
    link = share(server, film, password="open sesame")
    wrong = requests.post(link.url, data={"password": "guess"}, timeout=60)
    assert (wrong.status_code, "This is not the password." in wrong.text) == (400, True)
    assert "/t/" not in wrong.text
    assert "/t/" not in requests.get(f"{link.url}/{film.id}", timeout=60).text


def test_a_revoked_link_says_so_and_its_videos_stop(server: Server) -> None:
    film = store(server, "long.mp4", bytes(40_000_000))
    link = share(server, film, can_download=True)
    ticket = link.ticket(film)
    with server.connect() as running:
        host = f"127.0.0.1:{server.port}"
        running.sendall(f"GET {ticket}/media/{film.id} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert running.recv(12) == b"HTTP/1.1 200"
        link.revoke()
        wait_until(lambda: "whose access was revoked" in server.log, "the download was ended")
        assert received_until_end(running) < 40_000_000
    wait_until(
        lambda: server.get(f"{ticket}/media/{film.id}").status_code == 404, "the ticket has ended"
    )
    page = link.browser.get(link.url, headers={"Accept": "text/html"}, timeout=60)
    assert (page.status_code, "has closed the link" in page.text) == (410, True)


def test_the_address_of_a_link_has_no_scheme_that_nobody_can_open(
    server: Server, film: Stored
) -> None:
    told = {"X-Forwarded-For": "192.0.2.1", "X-Forwarded-Proto": "javascript"}
    made = server.post("/api/share-links", json={"videos": [film.id]}, headers=told)
    assert made.json()["url"].startswith("/s/")


def received_until_end(connection: socket.socket) -> int:
    count = 0
    with suppress(ConnectionError):
        while block := connection.recv(1_000_000):
            count += len(block)
    return count


def test_a_link_to_a_deleted_video_says_so(server: Server) -> None:
    film = store(server, "gone.mp4", CONTENT)
    link = share(server, film)
    requests.delete(f"{server.url}/api/videos/{film.id}", timeout=60).raise_for_status()
    page = link.browser.get(link.url, headers={"Accept": "text/html"}, timeout=60)
    assert (page.status_code, "was deleted" in page.text) == (410, True)


@pytest.mark.parametrize(
    ("state", "made", "is_needed"),
    [
        (PlaybackState.WAITING, set(), True),
        (PlaybackState.READY, set(), True),
        (PlaybackState.READY, {"play.virtual"}, False),
        (PlaybackState.UNPLAYABLE, set(), False),
    ],
)
def test_the_original_is_needed_where_nothing_was_made_of_it(
    state: PlaybackState, made: set[str], *, is_needed: bool
) -> None:
    video = replace(new_upload(), filename="film.webm")
    view = PlaybackView(video.id, state, None, None, frozenset(made))
    assert plays_original(video, view) is is_needed
    assert not plays_original(replace(video, filename="film.bin"), view)
