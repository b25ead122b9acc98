"""Sharing a film: a link is made, a guest watches, the link is revoked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import requests
from playwright.sync_api import BrowserContext, Page, expect
from werkzeug.serving import make_server

from app.access.attempts import LinkPasswords
from app.access.callers import Callers
from app.access.share_links import TICKET_SECONDS, ShareLinks
from app.http.services import Services
from app.run.build import build_services
from app.run.factory import create_app
from app.settings import from_env
from tests.browser.complaints import Complaints
from tests.browser.films import Films
from tests.browser.library_tools import put
from tests.browser.test_player import seek, value_of, video_of, wait_for
from tests.client.bad_line import BadLine, Line, Request, bad_line
from tests.live_server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.browser

HELD_BYTES = 3 * 1024 * 1024
"""A third of the film, which is 8 seconds long."""

PATIENCE_SECONDS = 120


@pytest.fixture
def site(default_site: Server) -> Server:
    """A server that examines films."""
    return default_site


class Clock:
    """The time, or later."""

    ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


def with_clock(services: Services, clock: Clock) -> Services:
    """The services with share links that know the time from this clock."""
    identity = services.identity
    passwords = LinkPasswords(identity.passwords, identity.password_checks)
    share_links = ShareLinks(replace(services.context, clock=clock), identity.signing, passwords)
    callers = Callers(
        identity.keys, identity.sessions, share_links, identity.link_visitors, is_open=True
    )
    return replace(services, identity=replace(identity, share_links=share_links, callers=callers))


@contextmanager
def front_of(server: Server, clock: Clock) -> Iterator[int]:
    """The port of another process, this one, that serves what the server has."""
    services = build_services(from_env(server.environment))
    app = create_app(with_clock(services, clock))
    front = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=front.serve_forever)
    with closing(services.database):
        thread.start()
        try:
            yield front.server_port
        finally:
            front.shutdown()
            thread.join()
            front.server_close()


def shared_address(member: Page) -> str:
    """Make a link with a mistake in its title, mend that, and copy the address from the list."""
    member.context.grant_permissions(["clipboard-read", "clipboard-write"])
    member.get_by_label("Title").fill("Our holydays")
    member.get_by_role("button", name="Create link").click()
    expect(member.get_by_role("img", name="QR code of the address")).to_be_visible()
    address = member.get_by_label("Send this address to your guests").input_value()
    member.get_by_label("Title").fill("Our holidays")
    member.get_by_role("radio", name="a day").check()
    member.get_by_role("button", name="Save").click()
    expect(member.get_by_text("The link is changed.")).to_be_focused()
    tabs = member.get_by_role("navigation", name="Links")
    expect(tabs.get_by_role("link", name="Share")).to_have_attribute("aria-current", "true")
    tabs.get_by_role("link", name="Share").click()
    member.get_by_role("button", name="Copy the address: Our holidays").click()
    expect(member.get_by_role("button", name="Copied the address: Our holidays")).to_be_visible()
    expect(member.get_by_role("status").filter(has_text="Copied")).to_be_attached()
    assert member.evaluate("navigator.clipboard.readText()") == address
    return address


def test_a_guest_watches_by_a_link_until_it_is_revoked(
    site: Server, new_context: Callable[..., BrowserContext], films: Films, complaints: Complaints
) -> None:
    complaints.allow_failed_requests()
    member, guest = new_context().new_page(), new_context().new_page()
    member.goto(f"{site.url}/watch/{put(site, 'holidays.mp4', films.middle)}")
    member.get_by_role("link", name="Share").click()
    address = shared_address(member)
    guest.goto(address)
    expect(guest.get_by_role("heading", name="Our holidays")).to_be_visible()
    expect(guest.get_by_role("link", name="Download")).to_have_count(0)
    video = video_of(guest)
    guest.get_by_role("button", name="play", exact=True).focus()
    guest.keyboard.press("Space")
    wait_for(video, "!video.paused && video.currentTime > 0")
    assert "/t/" in value_of(video, "video.currentSrc")
    seek(video, 5)
    wait_for(video, "video.play() && video.currentTime > 5")  # A film that had ended stays paused.

    member.get_by_role("link", name="Edit: Our holidays").click()
    member.locator("summary").filter(has_text="Revoke").click()
    member.get_by_role("button", name="Revoke: Our holidays").click()
    expect(member.get_by_text("None yet.")).to_be_visible()
    guest.reload()
    expect(guest.get_by_text("The person who shared this has closed the link.")).to_be_visible()


def test_a_set_behind_a_password_is_opened_film_by_film(
    site: Server, new_context: Callable[..., BrowserContext], films: Films
) -> None:
    videos = [put(site, f"part {number}.mp4", films.small) for number in (1, 2)]
    terms = {"videos": videos, "password": "open sesame", "can_download": True}
    link = requests.post(f"{site.url}/api/share-links", json=terms, timeout=60).json()
    guest = new_context(java_script_enabled=False).new_page()
    guest.goto(link["url"])
    guest.get_by_label("Password").fill("open sesame")
    guest.keyboard.press("Enter")
    guest.get_by_role("link", name="part 2.mp4").click()
    expect(guest.get_by_role("heading", name="part 2.mp4")).to_be_visible()
    expect(guest.get_by_role("link", name="Download")).to_be_visible()
    guest.get_by_role("link", name="All videos").click()
    expect(guest.get_by_role("button", name="Download all")).to_be_visible()


@pytest.mark.long
def test_a_film_plays_on_when_its_ticket_has_ended(
    site: Server, new_context: Callable[..., BrowserContext], films: Films, complaints: Complaints
) -> None:
    complaints.allow_failed_requests()
    film, clock = put(site, "film.mp4", films.middle), Clock()
    has_ended = threading.Event()
    wait_until(lambda: is_ready(site, film), "the film is ready")
    link = site.post("/api/share-links", json={"videos": [film]}).json()

    def hold(line: Line, request: Request) -> None:
        """Break the connections in mid-film, once their ticket has ended: the page may open two."""
        if request.answer >= HELD_BYTES and request.path == first_path(line.proxy):
            has_ended.wait(PATIENCE_SECONDS)
            line.cut()

    with front_of(site, clock) as port, bad_line(port) as line:
        line.on_answer = hold
        guest = new_context().new_page()
        guest.goto(link["url"].replace(site.url, line.url))
        video = video_of(guest)
        guest.get_by_role("button", name="play", exact=True).click()
        wait_for(video, "!video.paused && video.currentTime > 0")
        first_source = value_of(video, "video.currentSrc")
        clock.ahead = timedelta(seconds=2 * TICKET_SECONDS)
        has_ended.set()
        wait_for(video, f"video.currentTime > 5 && video.currentSrc !== '{first_source}'")
        refused = {request.status for request in line.requests if "/t/" in request.path}
        assert 404 in refused


def first_path(line: BadLine) -> str:
    """The path of the film with its first ticket."""
    return next(request.path for request in line.requests if request.path.endswith("/play.mp4"))


def is_ready(site: Server, film: str) -> bool:
    state: str = site.get(f"/api/videos/{film}").json()["playback"]["state"]
    return state == "ready"
