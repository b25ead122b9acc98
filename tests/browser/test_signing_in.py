"""A new server in a browser: set up, signed in, signed out in the middle of an upload."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.complaints import Complaints
from tests.browser.films import Films, sha256_of
from tests.browser.upload_page import MIB, UploadPage
from tests.live_server import NO_FFMPEG, Server, running_server

pytestmark = pytest.mark.browser

EMAIL = "ann@example.org"
PASSWORD = "three grey geese marching"

LINE = MIB
"""Bytes per second: 9 seconds for the film."""

SLOW_LINE = MIB // 4
"""The rest takes half a minute, and a chunk six: then the page learns that it is signed out."""

PHONE = {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark", "has_touch": True}

NewContext = Callable[..., BrowserContext]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with accounts that nobody has set up."""
    folder = tmp_path_factory.mktemp("house")
    options = {"SLUICE_ACCESS": "accounts", "SLUICE_CHUNK_BYTES": str(MIB // 2)}
    with running_server(folder, **options, **NO_FFMPEG) as running:
        yield running


def sign_in(page: Page) -> None:
    page.get_by_label("E-mail address").fill(EMAIL)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()


def set_up_link(server: Server) -> str:
    """The link that the server has shown at its start."""
    found = re.search(r"http://127\.0\.0\.1:\d+/set-up/[\w-]+", server.log)
    assert found
    return found[0]


def signed_in_elsewhere(server: Server) -> requests.Session:
    """Another session of the same person."""
    session = requests.Session()
    sent = {"email": EMAIL, "password": PASSWORD}
    assert session.post(f"{server.url}/api/session", json=sent, timeout=60).status_code == 204
    return session


def digest_of(session: requests.Session, url: str) -> str:
    return hashlib.sha256(session.get(url, timeout=60).content).hexdigest()


def test_from_the_set_up_link_to_an_upload_that_outlives_its_session(
    house: Server, new_context: NewContext, films: Films, complaints: Complaints
) -> None:
    complaints.allow_failed_requests()
    context = new_context()
    _set_up(context.new_page(), house)
    page = UploadPage(context, house)
    page.throttle(LINE)
    page.choose(films.middle)
    row = page.row(films.middle)
    page.wait_for_progress(row, 20)
    page.throttle(SLOW_LINE)

    elsewhere = signed_in_elsewhere(house)
    elsewhere.post(f"{house.url}/account/sessions/end-others", timeout=60).raise_for_status()
    expect(page.notice).to_contain_text("You are no longer signed in. Your uploads wait")
    expect(row).to_contain_text("Waiting for you to sign in")
    with context.expect_page() as opened:
        page.notice.get_by_role("link", name="Sign in").click()
    sign_in(opened.value)
    expect(opened.value.get_by_role("heading")).to_have_text("You are signed in")
    opened.value.close()

    page.throttle(-1)
    page.wait_for_success(films.middle)
    expect(page.notice).to_be_hidden()
    expect(page.videos).to_have_count(1)
    (video,) = elsewhere.get(f"{house.url}/api/videos", timeout=60).json()["videos"]
    assert digest_of(elsewhere, f"{house.url}/media/{video['id']}") == sha256_of(films.middle)


def _set_up(page: Page, house: Server) -> None:
    page.goto(house.url)
    expect(page.get_by_text("no administrator yet")).to_be_visible()
    page.goto(set_up_link(house))
    page.get_by_label("Your name").fill("Ann")
    page.get_by_label("E-mail address").fill(EMAIL)
    page.get_by_label("Password").fill("password12")
    page.get_by_role("button", name="Create account").click()
    password = page.get_by_label("Password")
    expect(password).to_be_focused()
    expect(password).to_have_accessible_description(re.compile("easy to guess"))
    expect(page.get_by_label("Your name")).to_have_value("Ann")
    password.fill(PASSWORD)
    page.get_by_role("button", name="Create account").click()
    expect(page.get_by_role("heading", name="Upload videos")).to_be_visible()
    page.close()


def test_a_person_signs_in_and_out_with_the_keyboard(
    house: Server, new_context: NewContext, complaints: Complaints
) -> None:
    page = new_context(**PHONE).new_page()
    page.goto(f"{house.url}/?q=film")
    expect(page).to_have_url(re.compile("/sign-in"))
    expect(page.get_by_label("E-mail address")).to_be_focused()
    page.keyboard.type(EMAIL)
    page.keyboard.press("Tab")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{house.url}/?q=film")
    menu = page.get_by_role("button", name="Ann: account")
    menu.press("Enter")
    account = page.get_by_role("link", name="Your account")
    expect(account).to_be_visible()
    page.keyboard.press("Escape")
    expect(account).to_be_hidden()
    page.get_by_role("link", name="Server").click()
    page.get_by_role("link", name="People").click()
    page.get_by_role("textbox", name="E-mail address").fill("bob@example.org")
    page.get_by_role("button", name="Invite").click()
    expect(page.get_by_label("Link for bob@example.org")).to_have_value(re.compile("/join/"))
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    menu.press("Enter")
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(f"{house.url}/sign-in")


def test_a_library_whose_session_has_ended_says_so_and_goes_on(
    house: Server, new_context: NewContext, complaints: Complaints, tmp_path: Path
) -> None:
    complaints.allow_failed_requests()
    context = new_context()
    page = context.new_page()
    page.goto(house.url)
    sign_in(page)
    expect(page.get_by_role("heading", name="Upload videos")).to_be_visible()
    elsewhere = signed_in_elsewhere(house)
    elsewhere.post(f"{house.url}/account/sessions/end-others", timeout=60).raise_for_status()
    page.get_by_role("searchbox").fill("nothing like it")
    notice = page.locator("connection-notice")
    expect(notice).to_contain_text("You are no longer signed in.")
    with context.expect_page() as opened:
        notice.get_by_role("link", name="Sign in").click()
    sign_in(opened.value)
    expect(notice).to_be_hidden()
