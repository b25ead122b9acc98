"""Members, keys and several projects, as a manager sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from app.access.keys import is_key
from app.core.access import Role
from tests.access.accounts import bearer, make_key, make_project, sign_in
from tests.browser.films import Films
from tests.browser.upload_page import UploadPage
from tests.live_server import Server

pytestmark = pytest.mark.browser

OpenAs = Callable[[dict[str, Role]], Page]


@pytest.fixture
def open_as(browser: Browser, closed_server: Server) -> Iterator[OpenAs]:
    """Opens the start page as a new person with roles in projects."""
    context = browser.new_context()

    def open_page(roles: dict[str, Role]) -> Page:
        cookie = sign_in(closed_server, roles)
        context.add_cookies([{"name": "sluice", "value": cookie, "url": closed_server.url}])
        page = context.new_page()
        page.goto(closed_server.url)
        return page

    yield open_page
    context.close()


def test_a_manager_makes_a_key_and_copies_it_once_the_script_is_here(
    closed_server: Server, open_as: OpenAs
) -> None:
    page = open_as({make_project(closed_server): Role.MANAGER})
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("link", name="Project").click()
    page.get_by_role("link", name="Keys").click()
    page.get_by_label("What it is for").fill("camera in the hall")
    page.get_by_label("Expires").select_option("in 90 days")
    scripts = list[Route]()

    def hold(route: Route) -> None:
        scripts.append(route)

    page.route("**/js/forms.js", hold)
    with page.expect_request("**/js/forms.js"):
        page.get_by_role("button", name="Create key").click(no_wait_after=True)
    expect(page.get_by_text("Copy it now: it is not shown again.")).to_be_visible()
    expect(page.get_by_role("button", name="Copy")).to_be_hidden()
    for script in scripts:
        script.continue_()
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    key = page.evaluate("navigator.clipboard.readText()")
    assert is_key(key)
    assert closed_server.get("/api/videos", headers=bearer(key)).status_code == 200


def test_what_was_done_is_read_out(closed_server: Server, open_as: OpenAs) -> None:
    page = open_as({make_project(closed_server): Role.VIEWER})
    page.goto(f"{closed_server.url}/account")
    page.get_by_role("button", name="Save").first.click()
    expect(page.get_by_role("status")).to_contain_text("is saved")
    expect(page.get_by_role("status")).to_be_focused()


def test_an_upload_goes_on_in_its_project_when_another_tab_changes_to_another(
    closed_server: Server, open_as: OpenAs, films: Films
) -> None:
    here, there = make_project(closed_server), make_project(closed_server)
    other = open_as({here: Role.MANAGER, there: Role.UPLOADER})
    page = UploadPage(other.context, closed_server)
    page.page.goto(closed_server.url)
    other.get_by_role("button", name="Ann Baker: account").click()
    other.locator(f"button[value='{there}']").click()
    expect(other.locator(f"html[data-project='{there}']")).to_be_attached()
    page.choose(films.small)
    page.wait_for_success(films.small)
    headers = bearer(make_key(closed_server, project=here))
    (video,) = closed_server.get("/api/videos", headers=headers).json()["videos"]
    assert video["filename"] == films.small.name
