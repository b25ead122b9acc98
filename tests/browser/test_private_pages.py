"""Signing in on a busy server, and what a browser shows after a sign-out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, Route, expect

from app.access.upload_links import LinkTerms
from app.core.access import FIRST_PROJECT, LOCAL, Role
from tests.access.accounts import services_of
from tests.acting import acting
from tests.browser.complaints import Complaints
from tests.live_server import NO_FFMPEG, Server, running_server

pytestmark = pytest.mark.browser

EMAIL, PASSWORD = "ann@example.org", "three grey geese marching"

PRIVATE = ("/", "/account", "/links", "/audit", "/project")

NewContext = Callable[..., BrowserContext]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with one manager."""
    folder = tmp_path_factory.mktemp("house")
    with running_server(folder, SLUICE_ACCESS="accounts", **NO_FFMPEG) as running:
        with services_of(running) as services:
            identity, ctx = services.identity, services.context.acting(LOCAL)
            identity.accounts.add(ctx, EMAIL, name="Ann Secretname", password=PASSWORD)
            identity.projects.add_member(ctx, FIRST_PROJECT, EMAIL, Role.MANAGER)
        yield running


class BusyServer:
    """Says twice that it is busy, then lets requests through."""

    def __init__(self, page: Page, url: str) -> None:
        self.refused = 0
        page.route(url, self._answer)

    def _answer(self, route: Route) -> None:
        if route.request.method == "POST" and self.refused < 2:
            self.refused += 1
            route.fulfill(status=503, headers={"Retry-After": "1"}, body="busy")
        else:
            route.continue_()


def sign_in(page: Page, password: str = PASSWORD) -> None:
    page.get_by_label("E-mail address").fill(EMAIL)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in", exact=True).click()


def test_the_page_waits_for_its_turn_to_sign_in(
    house: Server, new_context: NewContext, complaints: Complaints
) -> None:
    complaints.allow_failed_requests()
    page = new_context().new_page()
    page.goto(f"{house.url}/sign-in?next=/account")
    server = BusyServer(page, "**/sign-in")
    sign_in(page)
    expect(page.get_by_text("You are in line")).to_be_visible()
    expect(page.get_by_role("heading", name="Your account", exact=True)).to_be_visible()
    assert (page.url, server.refused) == (f"{house.url}/account", 2)


def test_a_wrong_password_is_said_and_the_next_attempt_works(
    house: Server, new_context: NewContext, complaints: Complaints
) -> None:
    complaints.allow_failed_requests()
    page = new_context().new_page()
    page.goto(f"{house.url}/sign-in?next=/account")
    sign_in(page, "wrong")
    expect(page.get_by_role("alert").filter(has_text="is wrong")).to_be_visible()
    expect(page.get_by_label("E-mail address")).to_have_value(EMAIL)
    expect(page.get_by_label("Password")).to_be_focused()
    sign_in(page)
    expect(page.get_by_role("heading", name="Your account", exact=True)).to_be_visible()


def test_a_guest_waits_for_a_turn_too(
    house: Server, new_context: NewContext, complaints: Complaints
) -> None:
    complaints.allow_failed_requests()
    with services_of(house) as services:
        identity, ctx = services.identity, acting(services.context, FIRST_PROJECT)
        stored = identity.passwords.hash("open sesame")
        terms = LinkTerms(name="Wedding", password_hash=stored)
        link = identity.upload_links.make(ctx, terms)
    page = new_context().new_page()
    page.goto(f"{house.url}/u/{link.code}")
    expect(page.get_by_role("heading", name="Send files")).to_be_visible()
    BusyServer(page, "**/u/*")
    page.get_by_label("Password of this link").fill("open sesame")
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_text("You are in line")).to_be_visible()
    expect(page.get_by_role("heading", name="Wedding")).to_be_visible()


def test_after_a_sign_out_the_back_button_shows_nothing_private(
    house: Server, new_context: NewContext, complaints: Complaints
) -> None:
    complaints.allow_failed_requests()
    page = new_context().new_page()
    page.goto(f"{house.url}/sign-in")
    sign_in(page)
    page.wait_for_url(f"{house.url}/")
    for path in PRIVATE:
        page.goto(f"{house.url}{path}")
        expect(page.locator("body")).to_contain_text("Ann Secretname")
    page.locator("form[action='/sign-out']").first.evaluate("form => form.submit()")
    page.wait_for_url("**/sign-in")
    for path in reversed(PRIVATE):
        page.go_back()
        page.wait_for_url(f"{house.url}/sign-in?next={path}")
        expect(page.get_by_role("button", name="Sign in", exact=True)).to_be_visible()
        expect(page.locator("body")).not_to_contain_text("Ann Secretname")
