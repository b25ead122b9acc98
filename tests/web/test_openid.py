"""Signing in at an OpenID provider, from our page and back to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from werkzeug.test import TestResponse

from app.access import audit
from app.access.audit import AuditFilter
from app.access.people import find_by_email
from app.core.access import Role
from tests.access.openid_server import ANN, CLIENT_ID, CLIENT_SECRET, Provider, running_provider
from tests.site import Browser, Site, new_site


@pytest.fixture(scope="module")
def running() -> Iterator[Provider]:
    with running_provider() as provider:
        yield provider


@pytest.fixture
def provider(running: Provider) -> Iterator[Provider]:
    """As it was in the beginning."""
    before = {**vars(running), "person": dict(running.person)}
    yield running
    vars(running).update(before)


@pytest.fixture(scope="module")
def site(running: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with new_site(
        tmp_path_factory.mktemp("site"),
        oidc_issuer=running.issuer,
        oidc_client_id=CLIENT_ID,
        oidc_client_secret=CLIENT_SECRET,
        oidc_join=(("@example.org", Role.UPLOADER),),
    ) as site:
        yield site


def at_provider(browser: Browser, target: str = "/") -> str:
    """The path with which a browser comes back that has gone to the provider."""
    sent = browser.client.get("/sign-in/provider", query_string={"next": target})
    assert sent.status_code == 303
    answer = requests.get(sent.location, allow_redirects=False, timeout=60)
    assert answer.headers["Location"].startswith("http://localhost/sign-in/provider/callback?")
    return answer.headers["Location"].removeprefix("http://localhost")


def sign_in(browser: Browser, target: str = "/") -> TestResponse:
    return browser.get(at_provider(browser, target))


def test_the_page_offers_the_provider_by_its_name(site: Site) -> None:
    page = site.browser().get("/sign-in?next=/watch/1").get_data(as_text=True)
    assert "Sign in with single sign-on" in page
    assert 'href="/sign-in/provider?next=/watch/1"' in page


def test_somebody_of_the_domain_joins_and_lands_where_they_wanted(
    site: Site, provider: Provider
) -> None:
    browser = site.browser()
    before = browser.cookie
    answer = sign_in(browser, "/watch/1?a=b")
    assert (answer.status_code, answer.location) == (303, "/watch/1?a=b")
    assert browser.cookie not in {before, ""}
    who = browser.who()
    roles = {project["id"]: project["role"] for project in who["projects"]}
    assert (who["name"], roles) == ("Ann", {"local": "uploader"})
    again = site.browser()
    sign_in(again)
    ann = find_by_email(site.services.context, "ann@example.org")
    assert ann is not None
    methods = [session.method for session in site.identity.sessions.of_person(ann.id)]
    assert methods == ["provider", "provider"]
    told = [
        entry.action
        for entry in audit.every(site.services.context, AuditFilter(actor=f"person:{ann.id}"))
    ]
    assert sorted(told) == [
        *("member.added", "person.added", "provider.linked"),
        *("session.began", "session.began"),
    ]


def test_an_answer_works_once_and_in_the_browser_that_asked(site: Site, provider: Provider) -> None:
    browser, thief = site.browser(), site.browser()
    path = at_provider(browser)
    at_provider(thief)
    assert thief.get(path).status_code == 403
    assert site.browser().get(path).status_code == 403
    cookie = browser.client.get_cookie("sluice-provider")
    assert cookie is not None
    assert cookie.http_only
    assert cookie.same_site == "Lax"
    assert browser.get(path).status_code == 303
    browser.client.set_cookie("sluice-provider", cookie.value)
    refused = browser.get(path)
    assert refused.status_code == 403
    assert "used before" in refused.get_data(as_text=True)
    assert thief.who()["signed_in"] is False


def test_an_unknown_person_of_another_domain_does_not_get_in(
    site: Site, provider: Provider
) -> None:
    provider.person = {**ANN, "sub": "eve", "email": "eve@elsewhere.example"}
    browser = site.browser()
    refused = sign_in(browser)
    assert refused.status_code == 403
    assert "eve@elsewhere.example is not invited" in refused.get_data(as_text=True)
    assert browser.who()["signed_in"] is False
    assert find_by_email(site.services.context, "eve@elsewhere.example") is None


def test_who_signs_in_at_the_provider_adds_no_second_factor_by_the_password_alone(
    tmp_path: Path, provider: Provider
) -> None:
    options = {"oidc_issuer": provider.issuer, "oidc_client_id": CLIENT_ID}
    with new_site(
        tmp_path, **options, oidc_client_secret=CLIENT_SECRET, second_factor="everyone"
    ) as site:
        ann = site.person("ann@example.org", Role.EDITOR)
        owner, thief = site.browser(), site.browser(ann)
        sign_in(owner)
        for answer in (
            thief.post("/account/codes/begin"),
            thief.client.post("/account/passkeys/options", json={}),
        ):
            assert answer.status_code == 400
            assert "sign in with single sign-on" in answer.get_data(as_text=True)
        assert owner.post("/account/codes/begin").status_code == 200


def test_who_signs_in_is_not_sent_to_another_site(site: Site, provider: Provider) -> None:
    for target in ("//evil.example", "https://evil.example"):
        assert sign_in(site.browser(), target).location == "/"


def test_a_provider_that_is_down_has_a_page_that_says_so(tmp_path: Path) -> None:
    with new_site(
        tmp_path,
        oidc_issuer="http://127.0.0.1:9",
        oidc_client_id=CLIENT_ID,
    ) as site:
        answer = site.browser().get("/sign-in/provider")
        assert answer.status_code == 503
        assert "single sign-on cannot be reached" in answer.get_data(as_text=True)
        assert site.browser().get("/sign-in/provider/callback?error=x").status_code == 403


def test_without_a_provider_there_is_nothing_of_it(tmp_path: Path) -> None:
    with new_site(tmp_path, sign_in=frozenset({"passwords"})) as site:
        browser = site.browser()
        assert browser.get("/sign-in/provider").status_code == 404
        assert browser.post("/sign-in/passkey/options").status_code == 404
        page = browser.get("/sign-in").get_data(as_text=True)
        assert "passkey" not in page
        assert "Sign in with" not in page
