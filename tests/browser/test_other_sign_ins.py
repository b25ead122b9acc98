"""Signing in without a password: with a passkey of the device, and at an OpenID provider."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, CDPSession, Page, expect

from app.core.access import LOCAL
from app.http.services import Services
from app.run.build import build_services
from app.settings import Settings
from tests.access.openid_server import CLIENT_ID, CLIENT_SECRET, running_provider
from tests.browser.complaints import Complaints
from tests.live_server import NO_FFMPEG, Server, running_server

pytestmark = pytest.mark.browser

DEVICE = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}
"""A laptop with a fingerprint reader, and its owner's finger on it."""

WITHOUT_LIST = "PublicKeyCredential.isConditionalMediationAvailable = undefined"
"""A browser that offers no passkeys below a field, and uses them only when it is asked."""

NewContext = Callable[..., BrowserContext]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with accounts and a provider that lets the people of example.org in."""
    options = {
        "SLUICE_ACCESS": "accounts",
        "SLUICE_OIDC_CLIENT_ID": CLIENT_ID,
        "SLUICE_OIDC_CLIENT_SECRET": CLIENT_SECRET,
        "SLUICE_OIDC_JOIN": "@example.org",
        **NO_FFMPEG,
    }
    folder = tmp_path_factory.mktemp("accounts")
    with ExitStack() as stack:
        options["SLUICE_OIDC_ISSUER"] = stack.enter_context(running_provider()).issuer
        yield stack.enter_context(running_server(folder, **options))


@pytest.fixture(scope="module")
def services(site: Server) -> Iterator[Services]:
    """The records of that server, to make people in."""
    data = Path(site.environment["SLUICE_DATA_DIR"])
    services = build_services(Settings(access="accounts", data_dir=data))
    with closing(services.database):
        yield services


def named(site: Server) -> str:
    """The server's URL with a name: passkeys do not work for addresses."""
    return site.url.replace("127.0.0.1", "localhost")


@dataclass
class Device:
    """Chromium's own authenticator, for one page."""

    tools: CDPSession
    id: str

    @classmethod
    def of(cls, page: Page) -> Device:
        tools = page.context.new_cdp_session(page)
        tools.send("WebAuthn.enable", {"enableUI": False})
        made = tools.send("WebAuthn.addVirtualAuthenticator", {"options": DEVICE})
        return cls(tools, made["authenticatorId"])

    def recognize(self, is_owner: bool) -> None:
        """Whether it takes whoever touches it for its owner."""
        verified = {"authenticatorId": self.id, "isUserVerified": is_owner}
        self.tools.send("WebAuthn.setUserVerified", verified)


def sign_in_as(context: BrowserContext, site: Server, services: Services, email: str) -> None:
    """A session for a new person, without the page."""
    ctx = services.context.acting(LOCAL)
    person = services.identity.accounts.add(ctx, email, name="Ann")
    cookie = services.identity.sessions.begin(ctx, person, "link", agent="")
    context.add_cookies([{"name": "sluice", "value": cookie, "url": named(site)}])


def test_a_passkey_is_added_used_and_removed(
    site: Server, services: Services, new_context: NewContext, complaints: Complaints
) -> None:
    page = new_context().new_page()
    sign_in_as(page.context, site, services, "pia@example.com")
    add_passkey(page, site)

    # The device chooses from the list below the field at once.
    go_to_sign_in(page, site)
    expect(page).to_have_url(f"{named(site)}/account")
    page.add_init_script(WITHOUT_LIST)
    go_to_sign_in(page, site)
    page.get_by_role("button", name="Sign in with a passkey").click()
    expect(page).to_have_url(f"{named(site)}/account")

    page.get_by_text("Remove", exact=True).click()
    page.get_by_role("button", name="Remove the passkey").click()
    expect(page.get_by_role("status")).to_contain_text("passkey is removed")
    expect(page.get_by_text("Laptop")).to_have_count(0)
    go_to_sign_in(page, site)
    complaints.allow_failed_requests()
    page.get_by_role("button", name="Sign in with a passkey").click()
    expect(page.get_by_role("alert")).to_contain_text("belongs to no account")


def add_passkey(page: Page, site: Server) -> None:
    """First the device does not know its owner, then it does."""
    device = Device.of(page)
    page.goto(f"{named(site)}/account")
    page.get_by_label("Name of the passkey").fill("Laptop")
    device.recognize(False)
    page.get_by_role("button", name="Add a passkey").click()
    expect(page.get_by_role("alert")).to_contain_text("No passkey was used")
    device.recognize(True)
    page.get_by_role("button", name="Add a passkey").click()
    expect(page.get_by_role("status")).to_contain_text("passkey is added")
    expect(page.get_by_text("Laptop")).to_be_visible()


def go_to_sign_in(page: Page, site: Server) -> None:
    """Without the session."""
    page.context.clear_cookies(name="sluice")
    page.goto(f"{named(site)}/sign-in?next=/account")


def test_the_provider_signs_in_and_sends_back(site: Server, new_context: NewContext) -> None:
    page = new_context().new_page()
    page.goto(f"{named(site)}/account")
    page.get_by_role("link", name="Sign in with single sign-on").click()
    expect(page).to_have_url(f"{named(site)}/account")
    expect(page.get_by_text("Your e-mail address is ann@example.org")).to_be_visible()


def test_passkeys_say_why_they_do_not_work_for_an_address_once_asked(
    site: Server, new_context: NewContext
) -> None:
    page = new_context().new_page()
    page.goto(f"{site.url}/sign-in", wait_until="networkidle")
    expect(page.locator("passkey-sign-in [role=alert]")).to_have_text("")
    page.get_by_role("button", name="Sign in with a passkey").click()
    expect(page.get_by_role("alert")).to_contain_text("opened by its name")
