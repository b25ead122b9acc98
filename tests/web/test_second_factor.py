"""One-time codes on the pages: set up, asked for, demanded, removed; and the end of an account."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import enumerate as enumerate_threads
from typing import Any
from unittest.mock import ANY

import pyotp
import pytest
from werkzeug.test import TestResponse

from app.access import audit, second_factor, webhooks
from app.access.audit import AuditAction, AuditFilter
from app.access.people import add_person, roles_now
from app.access.second_factor import OF_CODES
from app.core.access import FIRST_PROJECT, Action, Caller, CallerKind, Role, scope_of
from app.core.errors import SecondFactorMissing
from app.http.access import rules_of
from tests.access.test_mail import new_box
from tests.access.world import GOOD_PASSWORD
from tests.acting import acting
from tests.site import OTHER_PASSWORD, Browser, Site, new_site
from tests.waiting import wait_until


def hidden(answer: TestResponse, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', answer.text)
    assert found, answer.text
    return found[1]


OF_PROVIDER: dict[str, Any] = {
    "id": "f" * 32,
    "email": "provided@example.org",
    "password_hash": None,
}


def looks_up() -> bool:
    return any(thread.name == "forgotten password" for thread in enumerate_threads())


def code_of(secret: str, offset: int = 0) -> str:
    return pyotp.TOTP(secret).at(datetime.now(UTC), counter_offset=offset)


def set_up(browser: Browser) -> tuple[str, list[str]]:
    """The secret and the recovery codes. This step's code is used up; the next one is good, too."""
    page = browser.post("/account/codes/begin")
    secret = re.search(r'value="([A-Z2-7]{32})"', page.text)
    assert secret
    fields = {"token": hidden(page, "token"), "code": code_of(secret[1])}
    done = browser.post("/account/codes", fields)
    assert done.status_code == 200, done.text
    return secret[1], re.findall(r"<code>([a-z0-9-]{11})</code>", done.text)


def test_a_password_alone_no_longer_signs_in(site: Site) -> None:
    ann = site.person("coded@example.org", Role.EDITOR)
    browser, elsewhere = site.browser(ann), site.browser(ann)
    secret, codes = set_up(browser)
    assert len(codes) == 10
    assert browser.who()["signed_in"]
    assert not elsewhere.who()["signed_in"], "other sessions have ended"
    new = site.browser()
    asked = new.sign_in(ann.email, target="/links")
    assert (asked.status_code, new.cookie) == (200, "")
    fields = {"token": hidden(asked, "token"), "next": hidden(asked, "next")}
    wrong = new.post("/sign-in/code", {**fields, "code": "000000"})
    assert (wrong.status_code, new.cookie) == (400, "")
    right = new.post("/sign-in/code", {**fields, "code": code_of(secret, 1)})
    assert (right.status_code, right.location) == (303, "/links")
    assert new.who()["name"] == "coded"
    again = new.post("/sign-in/code", {**fields, "code": codes[0]})
    assert again.status_code == 403, "a token works once"
    actions = [each.action for each in audit.every(site.services.context, AuditFilter())]
    assert actions[:3] == [
        AuditAction.SESSION_BEGAN,
        AuditAction.SESSION_REFUSED,
        AuditAction.FACTOR_ADDED,
    ]


def test_a_thief_of_the_password_keeps_the_owner_out_of_no_known_browser(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_wait = replace(OF_CODES, first=timedelta(minutes=15))
    monkeypatch.setattr(second_factor, "OF_CODES", long_wait)
    ann = site.person(role=Role.EDITOR)
    known, thief = site.browser(), site.browser()
    known.sign_in(ann.email)
    _, codes = set_up(known)
    known.post("/sign-out")

    def enter(browser: Browser, code: str) -> int:
        asked = browser.sign_in(ann.email)
        fields = {"token": hidden(asked, "token"), "next": "", "code": code}
        return browser.post("/sign-in/code", fields).status_code

    assert 429 in {enter(thief, "000000") for _ in range(OF_CODES.free + 2)}
    assert enter(site.browser(), codes[0]) == 429
    assert enter(known, codes[0]) == 303


def test_programs_sign_in_with_a_code_too(site: Site) -> None:
    bob = site.person("program@example.org", Role.EDITOR)
    _, codes = set_up(site.browser(bob))
    client = site.client()
    body = {"email": bob.email, "password": GOOD_PASSWORD}
    missing = client.post("/api/session", json=body)
    assert missing.status_code == 401
    assert missing.get_json()["code"] == "second_factor_required"
    assert client.post("/api/session", json={**body, "code": codes[3]}).status_code == 204
    assert site.client().post("/api/session", json={**body, "code": codes[3]}).status_code == 400


def test_a_link_for_a_new_password_is_no_way_around_codes(site: Site) -> None:
    carl = site.person("carl-with-codes@example.org", Role.EDITOR)
    secret, _ = set_up(site.browser(carl))
    code = site.identity.invitations.to_reset(site.operator, carl)
    browser = site.browser()
    asked = browser.post(f"/reset/{code}", {"password": OTHER_PASSWORD})
    assert (asked.status_code, browser.cookie) == (200, "")
    fields = {"token": hidden(asked, "token"), "next": "", "code": code_of(secret, 1)}
    assert browser.post("/sign-in/code", fields).status_code == 303
    assert browser.who()["signed_in"]


def test_codes_are_turned_off_by_their_owner_or_an_administrator(site: Site) -> None:
    dora = site.person("dora@example.org", Role.EDITOR)
    browser = site.browser(dora)
    set_up(browser)
    assert browser.post("/account/codes/remove").status_code == 303
    assert site.browser().sign_in(dora.email).status_code == 303
    set_up(browser)
    admin = site.browser(site.person("admin-of-codes@example.org", is_admin=True))
    assert "Remove one-time codes" in admin.get("/people").text
    assert admin.post(f"/people/{dora.id}", {"change": "remove_codes"}).status_code == 303
    assert site.browser().sign_in(dora.email).status_code == 303


@pytest.mark.parametrize(
    ("demand", "role", "is_admin", "is_demanded"),
    [
        ("optional", Role.MANAGER, True, False),
        ("administrators", Role.MANAGER, False, False),
        ("administrators", Role.VIEWER, True, True),
        ("managers", Role.EDITOR, False, False),
        ("managers", Role.MANAGER, False, True),
        ("everyone", Role.VIEWER, False, True),
    ],
)
def test_a_role_may_demand_more_than_a_password(
    tmp_path: Path, demand: str, role: Role, is_admin: bool, is_demanded: bool
) -> None:
    with new_site(tmp_path, second_factor=demand) as site:
        site.person("first@example.org", is_admin=True)
        person = site.person("asked@example.org", role, is_admin=is_admin)
        browser = site.browser(person)
        refused = browser.client.get("/api/videos")
        assert refused.status_code == (403 if is_demanded else 200)
        page = browser.get("/")
        assert ("Set up a second factor first" in page.text) == is_demanded
        assert ('href="/?' in page.text or "aria-current" in page.text) != is_demanded
        if not is_demanded:
            return
        assert refused.get_json()["code"] == "second_factor_missing"
        assert browser.client.post("/api/uploads", json={"name": "a", "size": 1}).status_code == 403
        assert "needs more than a password" in browser.get("/account").text
        set_up(browser)
        assert browser.client.get("/api/videos").status_code == 200
        assert browser.get("/").status_code == 200


def test_sessions_last_as_long_as_is_set(tmp_path: Path) -> None:
    with new_site(tmp_path, session_idle_seconds=3600.0) as site:
        ann = site.person(role=Role.EDITOR)
        site.session(ann)
        (session,) = site.identity.sessions.of_person(ann.id)
        assert (session.expires_at - session.created_at).total_seconds() == 3600


def test_a_forgotten_password_is_replaced_by_mail(tmp_path: Path) -> None:
    public = "https://videos.example"
    with new_box() as box, new_site(tmp_path, smtp_url=box.url, public_url=public) as site:
        ann = site.person("forgetful@example.org", Role.EDITOR)
        browser = site.browser()
        assert "Forgot your password?" in browser.get("/sign-in").text
        known = browser.post("/sign-in/forgotten", {"email": "Forgetful@example.org"})
        unknown = browser.post("/sign-in/forgotten", {"email": "stranger@example.org"})
        assert known.text == unknown.text, "it does not tell who has an account"
        wait_until(lambda: "QUIT" in box.lines, "a mail has arrived")
        link = re.search(r"https://videos\.example(/reset/[\w-]+)", "\n".join(box.lines))
        assert link
        again = browser.post("/sign-in/forgotten", {"email": ann.email})
        assert again.status_code == 200
        assert browser.post(link[1], {"password": OTHER_PASSWORD}).status_code == 303
        assert browser.who()["name"] == "forgetful"
        assert box.lines.count("QUIT") == 1, "one in a quarter of an hour, and none to strangers"


def test_mail_that_was_not_sent_keeps_nobody_waiting(tmp_path: Path) -> None:
    public = "https://videos.example"
    with new_box() as box, new_site(tmp_path, smtp_url=box.url, public_url=public) as site:
        ann, browser = site.person("unlucky@example.org", Role.EDITOR), site.browser()
        answers = []
        for box.refuses in ("RCPT", ""):
            answers.append(browser.post("/sign-in/forgotten", {"email": ann.email}))
            wait_until(lambda: not looks_up(), "the thread has ended")
        assert answers[0].text == answers[1].text
        assert box.lines.count("data") == 1
        wanted = AuditFilter(action=AuditAction.PASSWORD_LINK_MADE)
        assert len(list(audit.every(site.services.context, wanted))) == 1


def test_who_signs_in_elsewhere_gets_no_password_by_mail(tmp_path: Path) -> None:
    public = "https://videos.example"
    with new_box() as box, new_site(tmp_path, smtp_url=box.url, public_url=public) as site:
        of_provider = replace(site.person("first@example.org"), **OF_PROVIDER)
        with site.services.database.write() as connection:
            add_person(connection, of_provider)
        blocked = site.person("blocked@example.org", Role.EDITOR)
        site.person("admin@example.org", is_admin=True)
        site.identity.accounts.block(site.operator, blocked)
        last = site.person("last@example.org", Role.EDITOR)
        for email in (OF_PROVIDER["email"], blocked.email, last.email):
            assert site.browser().post("/sign-in/forgotten", {"email": email}).status_code == 200
            wait_until(lambda: not looks_up(), "the thread has ended")
        to = [line for line in box.lines if line.lower().startswith("rcpt")]
        assert len(to) == 1
        assert last.email in to[0]


def require_passkey(browser: Browser) -> None:
    for answer in (
        browser.post("/account/codes/begin"),
        browser.client.post("/account/passkeys/options", json={}),
    ):
        assert answer.status_code == 400
        assert "sign in with your passkey" in answer.text


def test_who_has_a_passkey_adds_nothing_by_the_password_alone(tmp_path: Path) -> None:
    with new_site(tmp_path, second_factor="everyone") as site:
        ann = site.person("keyed@example.org", Role.EDITOR)
        browser, key = site.browser(ann), site.passkey(ann)
        removed = browser.client.post(f"/account/passkeys/{key}/remove")
        assert (removed.status_code, removed.get_json()["code"]) == (403, "second_factor_missing")
        require_passkey(browser)


def test_who_reads_the_mail_of_somebody_with_a_passkey_gets_no_further(tmp_path: Path) -> None:
    with new_site(tmp_path, second_factor="everyone") as site:
        ann, browser = site.person("read@example.org", Role.EDITOR), site.browser()
        site.passkey(ann)
        link = f"/reset/{site.identity.invitations.to_reset_by_mail(ann)}"
        assert "passkeys are removed" not in browser.get(link).text
        assert browser.post(link, {"password": OTHER_PASSWORD}).status_code == 303
        require_passkey(browser)
        assert browser.client.get("/api/videos").status_code == 403


def test_who_has_a_second_factor_by_now_finishes_no_set_up_of_the_password_alone(
    tmp_path: Path,
) -> None:
    with new_site(tmp_path, second_factor="everyone") as site:
        ann, bob = site.person(role=Role.EDITOR), site.person("Bob", Role.EDITOR)
        thief, page, fields = site.browser(bob), *begun(site.browser(ann))
        site.passkey(ann)
        assert page.post("/account/codes", fields).status_code == 400
        assert not site.identity.second_factors.has(ann.id)
        set_up(site.browser(bob))
        late = Browser(site.client(bob))
        refused = late.post("/account/codes/begin")
        assert (refused.status_code, "with a one-time code" in refused.text) == (400, True)
        assert not thief.who()["signed_in"]


def test_a_session_that_another_process_has_ended_changes_no_account(site: Site) -> None:
    ann = site.person(role=Role.EDITOR)
    thief = Browser(site.another_worker().client(ann))
    assert thief.who()["signed_in"]
    page, fields = begun(thief)
    site.identity.sessions.end_all(ann.id)
    assert page.who()["signed_in"], "that process remembers it"
    page.post("/account/codes", fields)
    page.post("/account/name", {"name": "Thief"})
    assert not site.identity.second_factors.has(ann.id)
    assert site.find(ann) == replace(ann, visited_at=ANY)


def begun(browser: Browser) -> tuple[Browser, dict[str, str]]:
    """The browser, and the form that would end the set-up it has begun."""
    page = browser.post("/account/codes/begin")
    secret = re.search(r'value="([A-Z2-7]{32})"', page.text)
    assert secret
    return browser, {"token": hidden(page, "token"), "code": code_of(secret[1])}


CHANGES_NOTHING_OF_THE_ACCOUNT = {
    "api_session.begin",
    "api_session.end",
    "invitations.join",  # Not with this account: see below.
    "invitations.reset",
    "invitations.set_up",
    "passkeys.begin_sign_in",
    "passkeys.sign_in",
    "second_factor.sign_in",
    "shared.visit",
    "sign_in.forgotten",
    "sign_in.sign_in",
    "sign_in.sign_out",
    "upload_link.enter",
}
"""What strangers may send too."""

SETS_UP_A_FACTOR = {
    "passkeys.begin_registration",
    "passkeys.register",
    "second_factor.add",
    "second_factor.begin",
}
"""Each calls `require_known_way`."""


def test_who_must_set_up_a_second_factor_changes_nothing_else(site: Site) -> None:
    caller = Caller(
        kind=CallerKind.PERSON,
        project=FIRST_PROJECT,
        roles={FIRST_PROJECT: Role.MANAGER},
        is_admin=True,
        needs_second_factor=True,
    )

    def is_refused(action: Action) -> bool:
        try:
            scope_of(caller, action)
        except SecondFactorMissing:
            return True
        return False

    rules = rules_of(site.app)
    changing = {
        rule.endpoint
        for rule in site.app.url_map.iter_rules()
        if (rule.methods or set()) - {"GET", "HEAD", "OPTIONS"}
    }
    reached = {endpoint for endpoint in changing if not is_refused(rules[endpoint].action)}
    assert reached == CHANGES_NOTHING_OF_THE_ACCOUNT | SETS_UP_A_FACTOR


def test_the_account_page_shows_only_the_way_to_a_second_factor(tmp_path: Path) -> None:
    with new_site(tmp_path, second_factor="everyone") as site:
        site.person("first@example.org", is_admin=True)
        ann = site.person(role=Role.MANAGER)
        browser = site.browser(ann)
        for path in ("delete", "made/end", "name", "password", "sessions/end-others"):
            assert browser.post(f"/account/{path}").status_code == 403
            assert f'action="/account/{path}"' not in browser.get("/account").text
        assert site.find(ann) == replace(ann, visited_at=ANY)
        set_up(browser)
        assert 'action="/account/delete"' in browser.get("/account").text


def test_who_must_set_up_a_second_factor_joins_nothing_before(tmp_path: Path) -> None:
    with new_site(tmp_path, second_factor="everyone") as site:
        ann, project = site.person(is_admin=True), site.project()
        code = site.identity.invitations.to_join(
            acting(site.services.context, project, by=f"person:{ann.id}"),
            ann.email,
            project_id=project,
            role=Role.EDITOR,
        )
        browser, fields = site.browser(ann), {"person": ann.id}
        assert browser.post(f"/join/{code}", fields).status_code == 403
        set_up(browser)
        assert browser.post(f"/join/{code}", fields).status_code == 303


def test_without_mail_nothing_is_promised(site: Site) -> None:
    assert "An administrator of this server" in site.browser().get("/sign-in").text
    assert site.browser().get("/sign-in/forgotten").status_code == 404


def test_keys_and_links_of_an_account_are_shown_and_ended_together(site: Site) -> None:
    eve = site.person("eve-with-keys@example.org", Role.MANAGER)
    browser = site.browser(eve)
    made = browser.client.post("/api/keys", json={"name": "nightly copy", "role": "uploader"})
    key = {"Authorization": f"Bearer {made.get_json()['key']}"}
    link = browser.client.post("/api/upload-links", json={"name": "Wedding"}).get_json()["url"]
    account = browser.get("/account").text
    assert "nightly copy" in account
    assert "Wedding" in account
    assert browser.post("/account/made/end").status_code == 303
    assert "nightly copy" not in browser.get("/account").text
    assert site.client().get("/api/videos", headers=key).status_code == 401
    assert site.client().get(link.replace("http://localhost", "")).status_code in {404, 410}


def test_an_account_is_deleted_with_what_is_its_alone(site: Site) -> None:
    site.person("stays@example.org", is_admin=True)
    frank = site.person("leaves@example.org", Role.MANAGER)
    browser = site.browser(frank)
    made = browser.client.post("/api/keys", json={"name": "copy", "role": "uploader"})
    key = {"Authorization": f"Bearer {made.get_json()['key']}"}
    video = site.video(f"person:{frank.id}")
    set_up(browser)
    assert browser.post("/account/delete").status_code == 303
    assert not browser.who()["signed_in"]
    assert site.find(frank) is None
    assert site.client().get("/api/videos", headers=key).status_code == 401
    other = site.client(site.person("other@example.org", Role.VIEWER))
    assert other.get(f"/api/videos/{video.id}").status_code == 200
    assert site.browser().sign_in(frank.email).status_code == 401


def test_a_project_whose_last_manager_has_gone_is_the_administrators(site: Site) -> None:
    project = site.project()
    manager = site.person(role=Role.MANAGER, project=project)
    viewer = site.person("Vera", Role.VIEWER, project=project)
    assert site.browser(manager).post("/account/delete").status_code == 303
    admin = site.client(site.person("Root", is_admin=True))
    url = f"/api/projects/{project}/members/{viewer.id}"
    assert admin.patch(url, json={"role": "manager"}).status_code == 200
    assert roles_now(site.services.context, viewer.id) == {project: Role.MANAGER}


def test_the_last_administrator_cannot_delete_the_account(tmp_path: Path) -> None:
    with new_site(tmp_path) as site:
        only = site.person("only@example.org", is_admin=True)
        answer = site.browser(only).post("/account/delete")
        assert answer.status_code == 400
        assert "No one else administers this server" in answer.text
        assert site.find(only) is not None


def test_an_administrator_deletes_an_account(site: Site) -> None:
    admin = site.browser(site.person("deleting@example.org", is_admin=True))
    gone = site.person("gone@example.org", Role.VIEWER)
    assert admin.post(f"/people/{gone.id}", {"change": "delete"}).status_code == 303
    assert site.find(gone) is None


def test_a_webhook_is_signed_with_both_secrets_for_a_day(site: Site) -> None:
    manager = site.client(site.person("hooks@example.org", Role.MANAGER))
    url = f"/api/webhooks/{site.webhook()}/secret"
    old = manager.post(url).get_json()["secret"]
    new = manager.post(f"{url}/renew").get_json()
    assert new["secret"] != old
    assert new["old_secret_until"]
    assert manager.post(url).get_json()["secret"] == new["secret"]
    webhook = webhooks.get(acting(site.services.context, FIRST_PROJECT), site.webhook())
    assert webhook.old_secret == old
