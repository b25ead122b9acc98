"""The page with a keyboard, a screen reader, a phone or dark mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.complaints import Complaints
from tests.browser.films import Films
from tests.browser.library_tools import put
from tests.browser.upload_page import MIB, UploadPage
from tests.live_server import Server
from tests.long_tests import long

pytestmark = pytest.mark.browser

OpenPage = Callable[..., UploadPage]

NAMED_ROLES = {"button", "link", "textbox", "progressbar", "dialog", "list", "Video", "image"}
"""Roles that need a name, as Chromium writes them."""

LONG_NAME = "An afternoon in the mountains with everyone who could come, second part, " * 2 + ".mp4"


def test_every_control_has_an_accessible_name(
    site: Server, open_page: OpenPage, films: Films
) -> None:
    put_everything(site, films)
    page = open_page(site)
    page.throttle(MIB)
    page.choose(films.middle)
    # Over 1 MiB: the page asks before it cancels.
    page.wait_for_progress(page.row(films.middle), 15)
    page.slow_down()
    assert nameless(page.page) == []
    page.button("Pause middle.mp4").click()
    page.button("Cancel middle.mp4").click()
    assert nameless(page.page) == []
    page.confirm("Cancel the upload")
    page.throttle(-1)
    page.choose(films.small)
    page.wait_for_success(films.small)
    assert nameless(page.page) == []
    page.videos.locator(".video-row__name").first.click()
    expect(page.page.locator("player-dialog video")).to_be_visible()
    assert nameless(page.page) == []
    page.page.goto(f"{site.url}/watch/{page.videos.first.get_attribute('data-id')}")
    assert nameless(page.page) == []


def put_everything(site: Server, films: Films) -> str:
    """Store a video, one that no browser plays, one with a long name, and an interrupted upload."""
    put(site, "papers.zip", films.small)
    site.post("/api/uploads", json={"name": LONG_NAME, "size": 5_000_000_000})
    put(site, "film.mp4", films.small)
    return put(site, LONG_NAME, films.small)


def nameless(page: Page) -> list[str]:
    """The role of every control that lacks the name a screen reader needs."""
    tools = page.context.new_cdp_session(page)
    nodes = tools.send("Accessibility.getFullAXTree")["nodes"]
    tools.detach()
    present = [node for node in nodes if not node["ignored"]]
    roles = {str(node["role"]["value"]) for node in present}
    assert roles & NAMED_ROLES, f"nothing usable among {roles}"
    return [
        str(node["role"]["value"])
        for node in present
        if node["role"]["value"] in NAMED_ROLES and not text_of(node)
    ]


def text_of(node: dict[str, Any]) -> str:
    name: str = node.get("name", {}).get("value", "")
    return name.strip()


def test_files_are_uploaded_paused_and_deleted_by_keyboard_only(
    site: Server, open_page: OpenPage, films: Films, complaints: Complaints
) -> None:
    complaints.allow_failed_requests()  # The page may just look at the film that is deleted.
    page = open_page(site)
    page.throttle(MIB)
    tab_to(page.page, "Choose files")
    with page.page.expect_file_chooser() as chooser:
        page.page.keyboard.press("Enter")
    chooser.value.set_files(films.middle)
    page.wait_for_progress(page.row(films.middle), 10)
    page.slow_down()
    tab_to(page.page, "Pause middle.mp4")
    page.page.keyboard.press("Space")
    expect(page.row(films.middle)).to_contain_text("paused")
    page.throttle(-1)
    expect(page.button("Resume middle.mp4")).to_be_focused()
    page.page.keyboard.press("Enter")
    page.wait_for_success(films.middle)
    expect(page.button("Delete middle.mp4")).to_be_visible()
    tab_to(page.page, "Delete middle.mp4")
    page.page.keyboard.press("Enter")
    expect(page.button("Keep")).to_be_focused()
    tab_to(page.page, "Delete")
    page.page.keyboard.press("Enter")
    expect(page.videos).to_have_count(0)
    expect(page.page.locator(":is(video-library, video-library *):focus")).to_be_attached()


def test_the_focus_moves_on_when_its_element_is_removed(
    site: Server, open_page: OpenPage, films: Films
) -> None:
    site.post("/api/uploads", json={"name": "a.mp4", "size": 1000})
    site.post("/api/uploads", json={"name": "b.mp4", "size": 1000})
    page = open_page(site)
    page.throttle(MIB)
    page.choose(films.middle)
    # Over 1 MiB: the page asks before it cancels.
    page.wait_for_progress(page.row(films.middle), 15)
    page.slow_down()
    page.button("Pause all").press("Enter")
    expect(page.button("Resume all")).to_be_focused()
    page.button("Cancel middle.mp4").press("Enter")
    page.button("Cancel the upload").press("Enter")
    expect(page.page.locator("main")).to_be_focused()
    page.button("Discard the upload of a.mp4").press("Enter")
    page.button("Discard").press("Enter")
    expect(page.button("Choose the file for b.mp4")).to_be_focused()
    page.button("Discard the upload of b.mp4").press("Enter")
    page.button("Discard").press("Enter")
    expect(page.page.locator("main")).to_be_focused()


def tab_to(page: Page, name: str) -> None:
    """Press Tab until the control of that name has the focus.

    Focus must be visible on every control; the page itself may first move it to a heading.
    """
    for _ in range(40):
        page.keyboard.press("Tab")
        focus = page.evaluate(
            """() => {
              const element = document.activeElement;
              const { outlineStyle, outlineWidth } = getComputedStyle(element);
              const isVisible = outlineStyle !== "none" && parseFloat(outlineWidth) >= 2;
              const name = element.getAttribute("aria-label") ?? element.textContent.trim();
              return { name, isVisible, isControl: element.tabIndex >= 0 };
            }"""
        )
        is_shown = focus["isVisible"] or not focus["isControl"]
        assert is_shown, f"the focus on {focus['name']} is not visible"
        if focus["name"] == name:
            return
    pytest.fail(f"Tab does not reach {name}")


@pytest.mark.parametrize("scheme", ["light", *long(["dark"])])
def test_a_phone_shows_every_page_without_scrolling_sideways(
    scheme: str, site: Server, open_page: OpenPage, films: Films, complaints: Complaints
) -> None:
    complaints.allow_failed_requests()
    upload_id = put_everything(site, films)
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
    page = open_page(site, color_scheme=scheme, **phone)
    page.throttle(MIB)
    page.choose(films.middle, films.small)
    page.wait_for_progress(page.row(films.middle), 5)
    expect(page.waiting_rows).to_have_count(1)
    assert page.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.button("Delete film.mp4").click()
    assert page.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.confirm("Keep")
    terms = {"name": LONG_NAME, "message": LONG_NAME, "extensions": ["mp4"] * 2, "expires": 3600}
    receive = site.post("/api/upload-links", json=terms).json()
    share = site.post("/api/share-links", json={"videos": [upload_id], "expires": 3600}).json()
    pages = (
        "project",
        "project/keys",
        "webhooks",
        "audit",
        "status",
        "links",
        "links/upload",
        "no",
    )
    of_links = (
        *("links", "links/upload", f"links/share?videos={upload_id}"),
        *(f"links/share/{share['id']}", f"links/upload/{receive['id']}"),
    )
    for path in (f"watch/{upload_id}", *pages, *of_links):
        page.page.goto(f"{site.url}/{path}")
        assert page.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        assert set(nameless(page.page)) <= {"list"}, path  # Those stand below headings.
    site.delete(f"/api/share-links/{share['id']}")


def test_dark_mode_is_dark_and_light_mode_is_light(
    site: Server, open_page: OpenPage, films: Films
) -> None:
    put(site, "film.mp4", films.small)
    page = open_page(site, color_scheme="light").page
    assert brightness(page, "html", "backgroundColor") > 200
    assert brightness(page, ".video-row__name", "color") < 80
    page.emulate_media(color_scheme="dark")
    assert brightness(page, "html", "backgroundColor") < 60
    assert brightness(page, ".panel:not([hidden])", "backgroundColor") < 80
    assert brightness(page, ".video-row__name", "color") > 180


def brightness(page: Page, selector: str, attribute: str) -> float:
    """0 is black, 255 white."""
    script = "(element, name) => getComputedStyle(element)[name].match(/[0-9.]+/g).map(Number)"
    channels = page.locator(selector).first.evaluate(script, attribute)
    return float(sum(channels[:3])) / 3
