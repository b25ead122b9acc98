"""One-time codes in a browser: set up, and asked for after the password."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyotp
import pytest
from playwright.sync_api import BrowserContext, Page, expect

from app.core.access import FIRST_PROJECT, LOCAL, Role
from tests.access.accounts import services_of
from tests.browser.complaints import Complaints
from tests.browser.test_access import nameless
from tests.browser.test_signing_in import EMAIL, PASSWORD, sign_in
from tests.live_server import Server

pytestmark = pytest.mark.browser

NewContext = Callable[..., BrowserContext]


def test_a_person_turns_codes_on_and_signs_in_with_one_and_with_a_recovery_code(
    closed_server: Server, new_context: NewContext, complaints: Complaints
) -> None:
    complaints.allow_failed_requests()
    page = new_context().new_page()
    join(page, closed_server)
    app, recovery = turn_codes_on(page, closed_server)

    sign_out(page)
    sign_in(page)
    page.get_by_label("Code", exact=True).fill("000000")
    page.get_by_role("button", name="Sign in", exact=True).click()
    code = page.get_by_label("Code", exact=True)
    expect(code).to_have_accessible_description(re.compile("wrong, or was used"))
    code.fill(app.at(now(page), counter_offset=1))  # That of now is used up.
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("heading", name="Upload videos")).to_be_visible()

    sign_out(page)
    sign_in(page)
    code = page.get_by_label("Code", exact=True)
    expect(code).to_be_focused()
    code.fill(recovery.upper())
    code.press("Enter")
    expect(page.get_by_role("heading", name="Upload videos")).to_be_visible()
    page.goto(f"{closed_server.url}/account")
    expect(page.get_by_text("9 of 10 recovery codes are left")).to_be_visible()


def turn_codes_on(page: Page, server: Server) -> tuple[pyotp.TOTP, str]:
    """The app that shows codes, and a recovery code."""
    page.goto(f"{server.url}/account")
    page.get_by_role("button", name="Set up", exact=True).click()
    app = pyotp.TOTP(page.get_by_label("Or enter this key").input_value())
    expect(page.get_by_role("img", name="QR code")).to_be_visible()
    assert nameless(page) == []
    page.get_by_label("Code that the app shows now").fill("12345")
    page.get_by_role("button", name="Turn on").click()
    expect(page.get_by_label("Code that the app")).to_have_accessible_description(
        re.compile("not the code")
    )
    page.get_by_label("Code that the app").fill(app.at(now(page)))
    page.get_by_role("button", name="Turn on").click()
    codes = page.get_by_role("list", name="Recovery codes").get_by_role("listitem")
    expect(codes).to_have_count(10)
    recovery = codes.first.inner_text()
    assert nameless(page) == []
    return app, recovery


def join(page: Page, server: Server) -> None:
    """A new person signs in."""
    with services_of(server) as services:
        identity, ctx = services.identity, services.context.acting(LOCAL)
        identity.accounts.add(ctx, EMAIL, name="Ann", password=PASSWORD)
        identity.projects.add_member(ctx, FIRST_PROJECT, EMAIL, Role.UPLOADER)
    page.goto(server.url)
    sign_in(page)
    expect(page.get_by_role("heading", name="Upload videos")).to_be_visible()


def sign_out(page: Page) -> None:
    page.get_by_role("button", name="Ann: account").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(re.compile("/sign-in$"))


def now(page: Page) -> int:
    return int(page.evaluate("Date.now() / 1000"))
