"""The bar is the same on every page, and marks where one is."""

from __future__ import annotations

import re

import pytest
from flask.testing import FlaskClient

from app.core.access import Role
from tests.site import HTML, Site

NOTHING = "/watch/" + "0" * 32


def bar(client: FlaskClient, path: str, label: str = "Site") -> list[tuple[str, str]]:
    """The links of a bar, each with its `aria-current`."""
    shown = client.get(path, headers=HTML).text
    found = re.search(rf'<nav class="[^"]*" aria-label="{label}">(.*?)</nav>', shown, re.DOTALL)
    links = found[1] if found else ""
    return re.findall(r'<a href="[^"]*"(?: aria-current="(\w+)")?>([^<]*)</a>', links)


@pytest.mark.parametrize(
    ("role", "is_admin", "places"),
    [
        (Role.VIEWER, False, ["Library"]),
        (Role.EDITOR, False, ["Library", "Links"]),
        (Role.MANAGER, False, ["Library", "Links", "Project"]),
        (Role.VIEWER, True, ["Library", "Project", "Server"]),
    ],
)
def test_every_page_has_the_bar_with_what_the_person_may_visit(
    site: Site, role: Role, is_admin: bool, places: list[str]
) -> None:
    client = site.client(site.person("Ann", role, is_admin=is_admin))
    video = site.video()
    pages = ("/", f"/watch/{video.id}", "/account", "/people", "/status", "/links", NOTHING, "/no")
    for path in pages:
        assert [name for _, name in bar(client, path)] == places, path


def test_the_bar_and_its_tabs_mark_where_one_is(site: Site) -> None:
    client = site.client(site.person("Ann", Role.MANAGER, is_admin=True))
    share, receive = site.share_link(), site.upload_link()
    webhook = site.webhook()
    tabs = {
        "/": ("Library", ""),
        "/links": ("Links", "Share"),
        f"/links/share/{share.id}": ("Links", "Share"),
        f"/links/upload/{receive.id}": ("Links", "Receive"),
        "/project": ("Project", "Members"),
        "/project/keys": ("Project", "Keys"),
        f"/webhooks/{webhook}": ("Project", "Webhooks"),
        "/audit?project=local": ("Project", "Log"),
        "/audit": ("Server", "Log"),
        "/people": ("Server", "People"),
        "/status": ("Server", "Status"),
    }
    for path, (place, tab) in tabs.items():
        assert [name for current, name in bar(client, path) if current] == [place], path
        marked = [name for current, name in bar(client, path, place) if current]
        assert marked == ([tab] if tab else []), path
    assert [current for current, _ in bar(client, "/links/upload", "Links")] == ["", "page"]
    assert bar(client, f"/links/share/{share.id}", "Links")[0] == ("true", "Share")
    assert bar(client, "/account") == bar(client, "/no")


def test_guests_and_who_is_not_signed_in_see_no_bar(site: Site) -> None:
    stranger = site.client()
    for path in ("/sign-in", f"/u/{site.upload_link().code}", f"/s/{site.share_link().code}"):
        shown = stranger.get(path, headers=HTML).text
        assert 'aria-label="Site"' not in shown
        assert "sign-in" not in re.sub(r'action="[^"]*"', "", shown) or path == "/sign-in"
    assert ">Sign in</a>" in stranger.get("/no", headers=HTML).text
