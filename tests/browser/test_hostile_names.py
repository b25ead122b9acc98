"""File names are the only text that strangers can put on the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.films import Films
from tests.browser.library_tools import put
from tests.browser.stored import videos_of
from tests.browser.upload_page import UploadPage
from tests.live_server import Server
from tests.long_tests import long

pytestmark = pytest.mark.browser

OpenPage = Callable[..., UploadPage]

NAMES = [
    '<img src=x onerror="window.ran=1"><b>film.mp4',
    "\"'`&quot;&lt; onmouseover=window.ran=1 x=.mp4",
    "{{ 7 * 7 }} ${7*7} {% raw %}.mp4",
    "annex\u202e4pm.exe.mp4",  # what follows runs from right to left
    "a" * 240 + ".mp4",
    "\ufdfd" * 60 + ".mp4",  # the widest character there is
    "100%.mp4",
]

HARDEST = (NAMES[0], NAMES[5])
"""Markup, and what is widest."""

SCRIPT_IN_FOLDERS = "x</script><script>window.ran=1</script>.mp4"
"""A file name cannot contain a slash, but what a client sends can."""


def test_names_are_shown_as_plain_text(
    site: Server, open_page: OpenPage, films: Films, tmp_path: Path
) -> None:
    paths = [tmp_path / name for name in NAMES]
    for number, path in enumerate(paths):
        path.write_bytes(films.small.read_bytes() + bytes(number))
    page = open_page(site)
    page.choose(*paths)
    expect(page.page.locator("upload-row.dz-success")).to_have_count(len(NAMES))
    assert page.page.locator("upload-row [data-part=name]").all_text_contents() == NAMES
    links = page.videos.locator(".video-row__name")
    expect(links).to_have_count(len(NAMES))
    assert sorted(links.all_text_contents()) == sorted(NAMES)
    nothing_is_out_of_place(page)
    page.reload()
    assert sorted(links.all_text_contents()) == sorted(NAMES)
    for video in videos_of(site):
        if video["filename"] in HARDEST:
            page.page.goto(f"{site.url}/watch/{video['id']}")
            assert page.page.locator("h1").text_content() == video["filename"]
            nothing_is_out_of_place(page)


def nothing_is_out_of_place(page: UploadPage) -> None:
    """Assert that no name ran as a script, became markup or made the page wider."""
    for width in (1280, 360):
        page.page.set_viewport_size({"width": width, "height": 800})
        assert page.page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.page.evaluate("window.ran === undefined")
    assert page.page.locator("[src=x], main b, [onerror], [onmouseover]").count() == 0


def test_names_from_other_clients_are_plain_text_everywhere(
    site: Server, open_page: OpenPage, films: Films
) -> None:
    put(site, SCRIPT_IN_FOLDERS, films.small)
    site.post("/api/uploads", json={"name": SCRIPT_IN_FOLDERS, "size": 1000})
    page = open_page(site)
    expect(page.waiting_rows).to_contain_text(SCRIPT_IN_FOLDERS)
    expect(page.videos).to_contain_text(SCRIPT_IN_FOLDERS)
    nothing_is_out_of_place(page)
    page.videos.get_by_role("button", name="Delete").click()
    expect(page.page.get_by_role("dialog")).to_contain_text(SCRIPT_IN_FOLDERS)
    page.confirm("Keep")
    page.videos.locator(".video-row__name").click()
    expect(page.page.get_by_role("dialog")).to_contain_text(SCRIPT_IN_FOLDERS)
    nothing_is_out_of_place(page)


@pytest.mark.parametrize("name", ["a\u2069\u202eb.mp4", *long(["a\u202eb.mp4", "a\u2067b.mp4"])])
def test_a_name_does_not_reverse_the_text_around_it(
    name: str, site: Server, open_page: OpenPage, films: Films
) -> None:
    put(site, name, films.small)
    site.post("/api/uploads", json={"name": name, "size": 1000})
    page = open_page(site)
    question = page.page.locator("confirm-dialog [data-part=text]")
    page.videos.get_by_role("button", name="Delete").click()
    assert left_of(question, "will be") < left_of(question, "from the server")
    page.confirm("Keep")
    page.waiting_rows.get_by_role("button", name="Discard").click()
    assert left_of(question, "are on") < left_of(question, "the server")
    page.confirm("Keep")


def left_of(element: Locator, words: str) -> float:
    """The left edge of these words on the screen, in pixels."""
    left: float = element.evaluate(
        """(element, words) => {
          const [text] = [...element.childNodes].filter((node) => node.data?.includes(words));
          const range = document.createRange();
          const start = text.data.indexOf(words);
          range.setStart(text, start);
          range.setEnd(text, start + words.length);
          return range.getBoundingClientRect().left;
        }""",
        words,
    )
    return left


SCRIPT = "<script>document.title = 'ran'; alert(1)</script>"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("page.html", f"<!doctype html>{SCRIPT}"),
        ("picture.svg", f"<svg xmlns='http://www.w3.org/2000/svg'>{SCRIPT}</svg>"),
    ],
)
def test_an_uploaded_page_is_downloaded_and_not_opened(
    name: str, content: str, site: Server, open_page: OpenPage, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(content)
    address = f"/media/{put(site, name, path)}"
    page = open_page(site)
    with page.page.expect_download() as download:
        page.page.evaluate("(address) => { location.href = address; }", address)
    assert download.value.suggested_filename == name
    assert page.page.url == f"{site.url}/"
    assert "sandbox" in site.get(address).headers["Content-Security-Policy"]


def test_an_uploaded_page_named_like_a_video_does_not_run(
    site: Server, open_page: OpenPage, tmp_path: Path
) -> None:
    path = tmp_path / "page.html.mp4"
    path.write_text(f"<!doctype html>{SCRIPT}")
    address = f"/media/{put(site, path.name, path)}"
    page = open_page(site)
    dialogs: list[str] = []
    page.page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    page.page.goto(site.url + address)
    page.page.wait_for_timeout(500)
    assert page.page.title() != "ran"
    assert dialogs == []
    headers = site.get(address).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
