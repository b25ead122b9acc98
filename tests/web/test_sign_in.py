"""Signing in and out in a browser, and what other sites cannot do with it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from app.access import audit, sessions
from app.access.audit import AuditAction, AuditFilter
from app.access.passwords import HASHES_AT_ONCE, HashQueue, Passwords
from app.access.people import Accounts, Person
from app.access.share_links import ShareTerms
from app.core.access import Role
from app.core.errors import ServerBusy
from app.http.session_cookie import is_local_path
from tests.access.world import CHEAP, GOOD_PASSWORD
from tests.site import HTML, OTHER_PASSWORD, Site, new_site
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def ann(site: Site) -> Person:
    return site.person("ann@example.org", Role.EDITOR)


def test_signing_in_begins_a_session_and_signing_out_ends_it(site: Site, ann: Person) -> None:
    browser = site.browser()
    assert browser.get("/sign-in").status_code == 200
    answer = browser.sign_in(ann.email)
    assert (answer.status_code, answer.location) == (303, "/")
    assert (browser.who()["signed_in"], browser.who()["name"]) == (True, "ann")
    assert "Sign out" in browser.get("/").text
    cookie = browser.cookie
    answer = browser.post("/sign-out")
    assert (answer.status_code, answer.location) == (303, "/sign-in")
    assert browser.cookie == ""
    browser.client.set_cookie("sluice", cookie)
    assert not browser.who()["signed_in"], "the session has ended on the server too"


def test_a_wrong_password_is_said_above_the_form(site: Site, ann: Person) -> None:
    browser = site.browser()
    wrong = browser.sign_in(ann.email, "wrong")
    unknown = browser.sign_in("nobody@example.org", "wrong")
    assert [wrong.status_code, unknown.status_code] == [401, 401]
    assert 'role="alert"' in wrong.text
    assert wrong.text.replace(ann.email, "") == unknown.text.replace("nobody@example.org", "")
    assert "wrong" not in wrong.text.partition("<form")[2].replace("is wrong", "")
    assert browser.cookie == ""


def test_too_many_attempts_answer_429_with_the_wait(site: Site) -> None:
    """On a slow machine the first waits are over before the next attempt: they double."""
    answer = next(
        answer
        for answer in (site.browser().sign_in("guessed@example.org", "wrong") for _ in range(20))
        if answer.status_code != 401
    )
    assert (answer.status_code, int(answer.headers["Retry-After"]) > 0) == (429, True)
    assert "Try again in " in answer.text


def test_a_stranger_elsewhere_does_not_shut_an_account_for_new_browsers(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_wait = replace(sessions.OF_ACCOUNT, first=timedelta(minutes=15))
    monkeypatch.setattr(sessions, "OF_ACCOUNT", long_wait)
    owner = site.person("owner@example.org", Role.EDITOR)
    for _ in range(12):
        site.browser().sign_in(owner.email, "wrong", address="192.0.2.66")
    assert site.browser().sign_in(owner.email, address="192.0.2.66").status_code == 429
    assert site.browser().sign_in(owner.email, address="203.0.113.9").status_code == 303
    page = site.browser(owner).get("/account").text
    assert "wrong passwords for your account" in page
    assert (
        "wrong passwords for your account" not in site.browser(site.person()).get("/account").text
    )


def test_a_stranger_cannot_fill_the_audit_log(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "ALL_NOTED", 3)
    email = "often@example.org"
    for number in range(9):
        site.browser().sign_in(email, "wrong", address=f"10.9.9.{number}")
    noted = audit.every(site.services.context, AuditFilter(action=AuditAction.SESSION_REFUSED))
    counts = [entry.details["failures"] for entry in noted if entry.details.get("email") == email]
    assert counts == [8, 4, 3, 2, 1]


def test_a_stranger_at_the_same_address_does_not_shut_it_for_colleagues(site: Site) -> None:
    colleague = site.person("colleague@example.org", Role.EDITOR)
    for number in range(34):
        site.browser().sign_in(f"nobody{number}@example.org", "wrong", address="192.0.2.77")
    assert site.browser().sign_in(colleague.email, address="192.0.2.77").status_code == 303


def test_a_busy_server_says_so_on_the_page_and_counts_nothing(
    site: Site, ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object, **__: object) -> None:
        raise ServerBusy("Too many people are signing in at the moment.")

    monkeypatch.setattr(HashQueue, "turn", busy)
    for _ in range(8):
        answer = site.browser().sign_in(ann.email, address="192.0.2.88")
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
        assert "Too many people are signing in at the moment." in answer.text
        assert f'value="{ann.email}"' in answer.text
    monkeypatch.undo()
    assert site.browser().sign_in(ann.email, address="192.0.2.88").status_code == 303


@pytest.mark.parametrize(
    ("change", "status"), [("password", 401), ("delete", 401), ("block", 403), ("nothing", 303)]
)
def test_what_changes_while_a_password_waits_for_its_check_counts(
    site: Site, change: str, status: int
) -> None:
    site.person("Root", is_admin=True)
    person, browser, identity = site.person(role=Role.EDITOR), site.browser(), site.identity
    accounts = Accounts(Passwords(CHEAP), identity.sessions.forget)  # Its hash need not wait.
    changes: dict[str, Callable[[], object]] = {
        "password": lambda: accounts.change_password(site.operator, person, OTHER_PASSWORD),
        "delete": lambda: accounts.delete(site.operator, person),
        "block": lambda: accounts.block(site.operator, person),
        "nothing": lambda: None,
    }
    with ThreadPoolExecutor(1) as thread, ExitStack() as turns:
        for _ in range(HASHES_AT_ONCE):
            turns.enter_context(identity.passwords.turn())
        answer = thread.submit(browser.sign_in, person.email)
        wait_until(lambda: identity.passwords._queue._waiting, "the password waits")
        changes[change]()
        turns.close()
        assert answer.result().status_code == status
    assert browser.who()["signed_in"] == (change == "nothing")
    if change == "block":
        accounts.unblock(site.operator, person)
        assert not browser.who()["signed_in"]


def test_the_title_of_a_share_link_is_shown_after_the_password(site: Site) -> None:
    terms = ShareTerms(name="The secret trip", password="open sesame")
    link = site.identity.share_links.make(site.operator, [site.video()], terms)
    guest = site.browser()
    assert "The secret trip" not in guest.get(f"/s/{link.code}").text
    assert "The secret trip" not in guest.post(f"/s/{link.code}", {"password": "sesame"}).text
    guest.post(f"/s/{link.code}", {"password": "open sesame"})
    assert "The secret trip" in guest.get(f"/s/{link.code}").text
    open_link = site.identity.share_links.make(
        site.operator, [site.video()], ShareTerms(name="The open trip")
    )
    assert "The open trip" in guest.get(f"/s/{open_link.code}").text


def test_a_new_session_has_a_new_id_and_ends_the_one_before(site: Site, ann: Person) -> None:
    """Whoever plants a cookie in somebody's browser does not get their session."""
    mallory = site.browser(site.person("mallory@example.org", Role.EDITOR))
    planted = mallory.cookie
    browser = site.browser()
    browser.client.set_cookie("sluice", planted)
    browser.sign_in(ann.email)
    assert browser.cookie not in {"", planted}
    assert not mallory.who()["signed_in"]
    browser.client.set_cookie("sluice", "chosen-by-mallory")
    browser.sign_in(ann.email)
    assert browser.cookie != "chosen-by-mallory"


def test_browsers_are_sent_to_sign_in_and_back(site: Site, ann: Person) -> None:
    browser = site.browser()
    answer = browser.get("/?q=film&sort=name")
    assert answer.status_code == 303
    assert answer.location == "/sign-in?next=/?q%3Dfilm%26sort%3Dname"
    form = browser.get(answer.location).text
    assert 'name="next" value="/?q=film&amp;sort=name"' in form
    assert browser.sign_in(ann.email, target="/?q=film&sort=name").location == "/?q=film&sort=name"
    assert browser.get("/sign-in?next=/account").location == "/account", "signed in already"


def test_programs_get_401_as_a_document(site: Site) -> None:
    client = site.app.test_client()
    for answer in (client.get("/api/videos"), client.post("/upload", headers=HTML)):
        assert answer.status_code == 401
    assert client.get("/api/videos").get_json()["code"] == "not_signed_in"
    assert client.get("/", headers={**HTML, "Authorization": "Bearer x"}).status_code == 401


@pytest.mark.parametrize("path", ["/", "/watch/0", "/?q=a&sort=name", "/é", "/a//b", "/@evil"])
def test_paths_of_this_server_are_local(path: str) -> None:
    assert is_local_path(path)


FOREIGN = [
    "", "//evil.example", "///evil.example", "/\\evil.example", "\\\\evil.example",
    "/\t/evil.example", "/\n/evil.example", "\t//evil.example", "https://evil.example",
    "https:evil.example", "javascript:alert(1)", "evil.example", "/\x00/evil.example",
    "/ /evil.example", "/\r\nSet-Cookie: a=b", "/\u2028/evil", "/a\\b", " //evil.example",
]  # fmt: skip


@pytest.mark.parametrize("path", FOREIGN)
def test_what_may_lead_elsewhere_is_not_local(path: str) -> None:
    assert not is_local_path(path)


@pytest.mark.parametrize("path", ["//evil.example", "/\\evil.example", "https://evil.example"])
def test_nobody_is_sent_to_another_site(site: Site, ann: Person, path: str) -> None:
    browser = site.browser(ann)
    assert browser.get("/sign-in", query_string={"next": path}).location == "/"
    assert site.browser().sign_in(ann.email, target=path).location == "/"


FROM_ELSEWHERE = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Sec_Fetch_Site": "cross-site"},
    {"Sec_Fetch_Site": "same-site", "Origin": "https://other.localhost"},
]


@pytest.mark.parametrize("headers", FROM_ELSEWHERE)
def test_other_sites_can_neither_sign_in_nor_out_nor_change_an_account(
    site: Site, ann: Person, headers: dict[str, str]
) -> None:
    browser = site.browser(ann)
    before = browser.cookie
    for url in ("/sign-in", "/sign-out", "/account/name", "/account/password", "/people/x",
                "/account/sessions/end-others", "/set-up/x", "/join/x", "/reset/x",
                "/api/session"):  # fmt: skip
        fields = {"email": ann.email, "password": GOOD_PASSWORD, "name": "Changed"}
        assert browser.post(url, fields, **headers).status_code == 403, url
    assert (browser.who()["name"], browser.cookie) == ("ann", before)


def test_a_page_on_a_sibling_host_cannot_use_the_cookies_it_gets(site: Site, ann: Person) -> None:
    browser = site.browser(ann)
    sibling = {"Sec_Fetch_Site": "same-site", "Origin": "https://other.localhost"}
    assert browser.post("/upload", {}, **sibling).status_code == 403
    assert browser.post("/upload", {}).status_code == 400, "our own page may"


@pytest.mark.parametrize("allowed", ["*", "https://friend.example"])
def test_a_site_that_may_upload_here_can_still_not_use_a_persons_session(
    tmp_path: Path, allowed: str
) -> None:
    with new_site(tmp_path, cors_origins=frozenset({allowed})) as site:
        browser = site.browser(site.person("ann@example.org", Role.EDITOR))
        foreign = {"Origin": "https://friend.example", "Sec_Fetch_Site": "cross-site"}
        assert browser.post("/upload", {}, **foreign).status_code == 401
        assert browser.post("/sign-in", {}, **foreign).status_code == 403
        assert browser.post("/upload", {}).status_code == 400, "our own page may"


def cookies_set(site: Site, email: str, **headers: str) -> dict[str, str]:
    answer = site.browser().sign_in(email, **headers)
    assert answer.status_code == 303
    return {line.partition("=")[0]: line for line in answer.headers.getlist("Set-Cookie")}


def test_over_https_the_cookie_is_for_this_host_and_secure(site: Site, ann: Person) -> None:
    cookies = cookies_set(site, ann.email, address="127.0.0.1", X_Forwarded_Proto="https")
    assert set(cookies) == {"__Host-sluice", "__Host-sluice-device"}
    for line in cookies.values():
        for flag in ("Secure", "HttpOnly", "SameSite=Lax", "Path=/"):
            assert flag in line.split("; ")
        assert "Domain" not in line


@pytest.mark.parametrize("address", ["127.0.0.1", "203.0.113.9"])
def test_over_http_the_cookie_is_not_secure(site: Site, ann: Person, address: str) -> None:
    """Nor for a stranger who only claims to be a proxy with HTTPS."""
    headers = {"X_Forwarded_Proto": "https"} if address != "127.0.0.1" else {}
    cookies = cookies_set(site, ann.email, address=address, **headers)
    assert set(cookies) == {"sluice", "sluice-device"}
    assert all("HttpOnly; Path=/; SameSite=Lax" in line for line in cookies.values())
    assert not any("Secure" in line for line in cookies.values())


def test_over_https_a_cookie_that_http_could_have_planted_does_not_count(
    site: Site, ann: Person
) -> None:
    browser = site.browser(ann)
    https = {"X-Forwarded-Proto": "https"}
    assert not browser.client.get("/api/session", headers=https).get_json()["signed_in"]


def test_programs_sign_in_and_out_with_json(site: Site, ann: Person) -> None:
    client = site.app.test_client()
    sent = {"email": ann.email, "password": GOOD_PASSWORD}
    assert client.post("/api/session", json=sent).status_code == 204
    document = client.get("/api/session").get_json()
    assert (document["kind"], document["name"]) == ("person", "ann")
    assert [project["role"] for project in document["projects"]] == ["editor"]
    assert client.delete("/api/session").status_code == 204
    assert client.get("/api/session").get_json()["kind"] == "nobody"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"email": "ann@example.org", "password": "wrong"}, 401),
        ({"email": "ann@example.org"}, 400),
        ({"email": 1, "password": "x"}, 400),
        ([], 400),
        ({"email": "\ud800", "password": "\ud800"}, 401),
    ],
)
def test_json_that_signs_nobody_in(site: Site, ann: Person, body: object, status: int) -> None:
    answer = site.app.test_client().post("/api/session", json=body)
    assert (answer.status_code, answer.content_type) == (status, "application/problem+json")
    assert "Set-Cookie" not in answer.headers


def test_a_form_that_is_none_is_refused_without_being_read(site: Site) -> None:
    client = site.app.test_client()
    for content_type in ("multipart/form-data; boundary=x", "application/json", ""):
        answer = client.post("/sign-in", data=b"email=a", content_type=content_type)
        assert answer.status_code == 400, content_type
    form = "application/x-www-form-urlencoded"
    assert client.post("/sign-in", data=b"a" * 100_000, content_type=form).status_code == 413
    assert client.post("/sign-in", data=b"a=b&" * 200, content_type=form).status_code == 400


def test_pages_with_secrets_are_kept_by_nobody(site: Site, ann: Person) -> None:
    for url in ("/account", "/api/session"):
        assert site.browser(ann).get(url).headers["Cache-Control"] == "no-store", url
    assert site.browser().get("/sign-in").headers["Cache-Control"] == "no-store"


def test_passwords_can_be_turned_off(tmp_path: Path) -> None:
    with new_site(tmp_path, sign_in=frozenset({"passkeys"})) as site:
        ann = site.person("ann@example.org", Role.EDITOR)
        assert 'type="password"' not in site.browser().get("/sign-in").text
        assert site.browser().sign_in(ann.email).status_code == 403
        assert 'type="password"' not in site.browser(ann).get("/account").text


@pytest.mark.parametrize(("host", "codes"), [("0.0.0.0", ["open_to_everybody"]), ("127.0.0.1", [])])
def test_a_server_that_is_open_to_everybody_says_so(
    tmp_path: Path, host: str, codes: list[str]
) -> None:
    with new_site(tmp_path, access="open", host=host) as site:
        answer = site.app.test_client().get("/readyz")
    found = [problem["code"] for problem in answer.get_json()["problems"]]
    assert answer.status_code == 200
    assert [code for code in found if code.startswith("open")] == codes
