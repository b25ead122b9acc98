"""Pages of links behind a proxy that serves Sluice under a path."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import Client

from app.core.access import Role
from tests.links.link_requests import HTML, MakeLink, create, sent
from tests.site import Site

PREFIX = "/videos"

_URL = re.compile(r'\b(?:href|src|action|poster|data-root|data-[a-z-]*url)="(/[^"]*)"')


def behind_prefix(app: Flask) -> Client:
    """A browser behind nginx with `location /videos/ { proxy_pass http://sluice/; }`."""

    def proxied(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        assert environ["PATH_INFO"].startswith(f"{PREFIX}/")
        path = environ["PATH_INFO"].removeprefix(PREFIX)
        told = {"PATH_INFO": path, "HTTP_X_FORWARDED_PREFIX": PREFIX}
        return app.wsgi_app({**environ, **told}, start_response)

    return Client(proxied)


@pytest.fixture
def guest(app: Flask) -> Client:
    return behind_prefix(app)


def shared(member: FlaskClient, *videos: str) -> str:
    answer = member.post("/api/share-links", json={"videos": videos, "can_download": True})
    url: str = answer.get_json()["url"]
    return PREFIX + url.removeprefix("http://localhost")


def urls_in(page: str) -> list[str]:
    """The URLs of a page, all of which lie below the prefix, and lead on to others there."""
    urls = [url.replace("&amp;", "&") for url in _URL.findall(page)]
    assert urls
    onward = [target for url in urls for target in parse_qs(urlsplit(url).query).get("next", [])]
    assert [url for url in (*urls, *onward) if not url.startswith(f"{PREFIX}/")] == []
    return urls


def texts_in(value: object) -> Iterator[str]:
    """All texts in a JSON value."""
    if isinstance(value, str):
        yield value
    for each in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from texts_in(each)


def test_a_guest_plays_and_downloads_under_the_prefix(
    member: FlaskClient, stranger: FlaskClient, make_link: MakeLink, guest: Client
) -> None:
    video = sent(stranger, make_link(), "a.mp4", 10)
    page = guest.post(shared(member, video), follow_redirects=True).text
    (state_url,) = [url for url in urls_in(page) if url.endswith("/state")]
    state = guest.get(state_url).get_json()
    paths = [text for text in texts_in(state) if text.startswith("/")]
    assert state["media"] in paths
    assert [path for path in paths if not path.startswith(f"{PREFIX}/t/")] == []
    assert guest.get(state["media"]).data == bytes(10)
    (download,) = [url for url in urls_in(page) if url.endswith("/download")]
    assert guest.get(download, follow_redirects=True).data == bytes(10)


def test_a_guest_gets_all_videos_of_a_set_under_the_prefix(
    member: FlaskClient, stranger: FlaskClient, make_link: MakeLink, guest: Client
) -> None:
    link = make_link()
    videos = [sent(stranger, link, f"{number}.mp4", 10) for number in range(2)]
    page = guest.post(shared(member, *videos), follow_redirects=True).text
    (archive,) = [url for url in urls_in(page) if url.endswith("/archive")]
    assert guest.post(archive, data={"id": videos}).mimetype == "application/zip"


def test_a_sender_uploads_under_the_prefix(make_link: MakeLink, guest: Client) -> None:
    path = PREFIX + make_link()["path"]
    urls = urls_in(guest.get(path, headers=HTML).text)
    assert {f"{path}/upload", f"{path}/batch", path} <= set(urls)
    assert create(guest, {"path": path}, 10).headers["Location"].startswith(f"{path}/tus/")
    file = (io.BytesIO(bytes(10)), "a.mp4")
    answer = guest.post(f"{path}/upload", data={"file": file}, headers=HTML)
    assert answer.headers["Location"].startswith(path)


def test_an_invitation_leads_to_sign_in_and_back_under_the_prefix(site: Site) -> None:
    ann, bob = site.person("Ann", Role.VIEWER), site.person("Bob", Role.VIEWER)
    project, invitations = site.project(), site.identity.invitations
    for email in ("new@example.org", bob.email):
        code = invitations.to_join(site.operator, email, project_id=project, role=Role.VIEWER)
        browser, path = behind_prefix(site.app), f"{PREFIX}/join/{code}"
        ways = [url for url in urls_in(browser.get(path, headers=HTML).text) if "next=" in url]
        assert {parse_qs(urlsplit(url).query)["next"][0] for url in ways} == {path}
        browser.set_cookie("sluice", site.session(ann))
        (out,) = [url for url in urls_in(browser.get(path, headers=HTML).text) if "next=" in url]
        assert browser.post(out).location == path


def test_a_person_in_no_project_tries_the_same_page_again_under_the_prefix(site: Site) -> None:
    browser = behind_prefix(site.app)
    browser.set_cookie("sluice", site.session(site.person("Eve")))
    for path in (f"{PREFIX}/", f"{PREFIX}/?q=holidays"):
        assert path in urls_in(browser.get(path, headers=HTML).text)
