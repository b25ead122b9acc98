"""Passkeys over HTTP: whose they are, in which browser, and what ends them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import update

from app.access import audit
from app.access.audit import AuditAction, AuditFilter
from app.access.people import Person, all_people
from app.access.sessions import JUST_BEGUN
from app.core.access import Role
from app.db.tables import sessions
from tests.access.authenticator import Authenticator
from tests.access.world import GOOD_PASSWORD
from tests.site import Browser, Site


def new_device() -> Authenticator:
    return Authenticator("http://localhost", "localhost")


def register(browser: Browser, device: Authenticator, name: str = "Phone") -> Any:
    asked = browser.client.post("/account/passkeys/options").get_json()
    document = {
        "name": name,
        "credential": device.create(asked["options"]),
        "token": asked["token"],
    }
    return browser.client.post("/account/passkeys", json=document)


def answer(browser: Browser, device: Authenticator) -> dict[str, Any]:
    """What the script of the sign-in page sends once the device has answered."""
    asked = browser.client.post("/sign-in/passkey/options").get_json()
    return {"credential": device.get(asked["options"]), "token": asked["token"]}


def sign_in(browser: Browser, device: Authenticator, target: str = "/") -> Any:
    document = {**answer(browser, device), "next": target}
    return browser.client.post("/sign-in/passkey", json=document)


@pytest.fixture
def device() -> Authenticator:
    return new_device()


def test_a_passkey_signs_in_until_it_is_removed(site: Site, device: Authenticator) -> None:
    ann = site.person("ann@example.org", Role.EDITOR)
    account = site.browser(ann)
    made = register(account, device)
    assert (made.status_code, made.get_json()["name"]) == (201, "Phone")
    assert "Phone" in account.get("/account").get_data(as_text=True)

    browser = site.browser()
    signed_in = sign_in(browser, device, "/watch/1?a=b")
    assert (signed_in.status_code, signed_in.get_json()) == (200, {"next": "/watch/1?a=b"})
    assert browser.who()["name"] == ann.name
    (session,) = [s for s in site.identity.sessions.of_person(ann.id) if s.method == "passkey"]
    assert session.person_id == ann.id

    removed = account.post(f"/account/passkeys/{made.get_json()['id']}/remove")
    assert (removed.status_code, removed.location) == (303, "/account?done=passkey-removed")
    refused = sign_in(site.browser(), device)
    assert (refused.status_code, refused.get_json()["code"]) == (403, "sign_in_refused")


def test_signing_in_begins_another_session(site: Site, device: Authenticator) -> None:
    browser = site.browser(site.person("bob@example.org", Role.EDITOR))
    register(browser, device)
    before = browser.cookie
    sign_in(browser, device)
    assert browser.cookie not in {before, ""}
    old = site.browser()
    old.client.set_cookie("sluice", before)
    assert old.who()["signed_in"] is False


def test_an_answer_works_in_the_browser_that_was_asked(site: Site, device: Authenticator) -> None:
    register(site.browser(site.person("cat@example.org", Role.EDITOR)), device)
    asked, thief = site.browser(), site.browser()
    document = answer(asked, device)
    for browser in (thief, asked):
        status = browser.client.post("/sign-in/passkey", json=document).status_code
        assert status == (200 if browser is asked else 403)
    assert asked.client.post("/sign-in/passkey", json=document).status_code == 403


def test_a_passkey_is_registered_in_the_session_that_asked(
    site: Site, device: Authenticator
) -> None:
    ann, eve = (
        site.person("dan@example.org", Role.EDITOR),
        site.person("eve@example.org", Role.EDITOR),
    )
    asked = site.browser(ann).client.post("/account/passkeys/options").get_json()
    document = {"name": "x", "credential": device.create(asked["options"]), "token": asked["token"]}
    for person in (ann, eve):
        refused = site.browser(person).client.post("/account/passkeys", json=document)
        assert refused.get_json()["code"] == "sign_in_refused"


def test_a_session_of_some_time_ago_needs_the_password(site: Site) -> None:
    owner = site.person("kit@example.org", Role.EDITOR)
    browser = site.browser(owner)
    assert "Your password" not in browser.get("/account").text
    make_older(site, owner)
    assert "Your password" in browser.get("/account").text

    def status(**sent: str) -> int:
        return browser.client.post("/account/passkeys/options", json=sent).status_code

    assert [status(), status(password="wrong"), status(password=GOOD_PASSWORD)] == [400, 400, 200]


def test_a_first_password_needs_a_fresh_sign_in(site: Site) -> None:
    owner = site.identity.accounts.add(site.operator, "lou@example.org")
    browser, other = site.browser(owner), site.browser(owner)
    make_older(site, owner)
    refused = browser.post("/account/password", {"password": GOOD_PASSWORD})
    assert (refused.status_code, "in again first" in refused.text) == (400, True)
    assert other.client.post("/account/passkeys/options", json={}).status_code == 400
    fresh = site.browser(owner)
    assert fresh.post("/account/password", {"password": GOOD_PASSWORD}).status_code == 303


def make_older(site: Site, person: Person) -> None:
    """Let the person's sessions have begun a while ago."""
    change = update(sessions).where(sessions.c.person_id == person.id)
    with site.services.database.write() as connection:
        began = datetime.now(UTC) - JUST_BEGUN
        connection.execute(change.values(created_at=began))


def test_a_copied_device_is_refused_and_told_of(site: Site, device: Authenticator) -> None:
    owner = site.person("ida@example.org", Role.EDITOR)
    register(site.browser(owner), device)
    sign_in(site.browser(), device)
    device.count = 0
    assert sign_in(site.browser(), device).status_code == 403
    told = audit.every(site.services.context, AuditFilter(action=AuditAction.SESSION_REFUSED))
    assert f"person:{owner.id}" in [entry.subject for entry in told]


def test_nobody_removes_the_passkeys_of_others(site: Site, device: Authenticator) -> None:
    owner, other = (
        site.person("fay@example.org", Role.EDITOR),
        site.person("gus@example.org", Role.EDITOR),
    )
    made = register(site.browser(owner), device).get_json()
    site.browser(other).post(f"/account/passkeys/{made['id']}/remove")
    assert sign_in(site.browser(), device).status_code == 200


def test_who_signs_in_is_not_sent_to_another_site(site: Site, device: Authenticator) -> None:
    register(site.browser(site.person("hal@example.org", Role.EDITOR)), device)
    for target in ("//evil.example", "https://evil.example", "/\\evil.example"):
        assert sign_in(site.browser(), device, target).get_json() == {"next": "/"}


@pytest.mark.parametrize("path", ["/sign-in/passkey/options", "/sign-in/passkey"])
def test_pages_of_other_sites_cannot_sign_anybody_in(site: Site, path: str) -> None:
    headers = {"Origin": "https://evil.example"}
    assert site.browser().client.post(path, json={}, headers=headers).status_code == 403


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"credential": "x", "token": "y"},
        {"credential": {}, "token": 5},
        {"name": " ", "credential": {}, "token": "x"},
    ],
)
def test_malformed_requests_are_told_so(site: Site, document: dict[str, Any]) -> None:
    browser = site.browser(all_people(site.services.context)[0])
    for path in ("/sign-in/passkey", "/account/passkeys"):
        status = browser.client.post(path, json=document).status_code
        assert status in {400, 403}
    assert browser.client.post("/account/passkeys", json=document).status_code == 400
