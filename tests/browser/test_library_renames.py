"""Videos are renamed in place."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.complaints import Complaints
from tests.browser.films import Films
from tests.browser.library_tools import expect_names, hold, put, release, search_field
from tests.browser.stored import videos_of
from tests.browser.test_library import OpenPage
from tests.live_server import Server

pytestmark = pytest.mark.browser


def test_a_video_is_renamed_with_the_keyboard_alone(clips: Server, open_page: OpenPage) -> None:
    page = open_page(clips)
    link = page.videos.nth(1).locator(".video-row__name")
    link.press("F2")
    field = page.page.get_by_label("New name of film.webm")
    expect(field).to_have_value("film")
    page.page.keyboard.type("Übung 1")
    page.page.keyboard.press("Enter")
    expect(link).to_have_text("Übung 1.webm")
    expect(link).to_be_focused()
    expect(page.page.locator("live-announcer")).to_have_text(
        "film.webm is now called Übung 1.webm."
    )
    assert videos_of(clips)[1]["filename"] == "Übung 1.webm"
    expect(page.button("Delete Übung 1.webm")).to_be_visible()
    link.press("F2")
    page.page.keyboard.type("something else")
    page.page.keyboard.press("Escape")
    expect(link).to_have_text("Übung 1.webm")
    expect(link).to_be_focused()
    assert videos_of(clips)[1]["filename"] == "Übung 1.webm"


def test_a_name_that_cannot_be_is_explained_beside_the_field(
    clips: Server, open_page: OpenPage, complaints: Complaints
) -> None:
    complaints.allow_failed_requests()
    page = open_page(clips)
    page.button("Rename film.webm").click()
    field = page.page.get_by_label("New name of film.webm")
    field.fill("  ")
    field.press("Enter")
    expect(page.videos.nth(1).get_by_role("alert")).to_have_text("Enter a name.")
    expect(field).to_be_focused()
    field.fill("late")
    expect(page.videos.nth(1).get_by_role("alert")).to_have_count(0)
    clips.delete(f"/api/videos/{videos_of(clips)[1]['id']}")
    page.button("Save").click()
    expect(page.videos.nth(1).get_by_role("alert")).to_have_text(
        "This video has been deleted in the meantime."
    )
    page.button("Cancel").click()
    expect(page.videos.nth(1).locator(".video-row__name")).to_have_text("film.webm")


@pytest.mark.long
def test_a_rename_that_is_being_saved_cannot_be_cancelled(
    clips: Server, open_page: OpenPage
) -> None:
    page = open_page(clips)
    hold(page, "PATCH")
    page.button("Rename film.webm").click()
    page.page.keyboard.type("saved")
    page.page.keyboard.press("Enter")
    expect(page.button("Cancel")).to_be_disabled()
    page.page.keyboard.press("Escape")
    expect(page.page.get_by_label("New name of film.webm")).to_be_focused()
    search_field(page).focus()
    release(page)
    expect(page.videos.nth(1).locator(".video-row__name")).to_have_text("saved.webm")
    expect(page.videos.nth(1).locator("form")).to_have_count(0)
    expect(search_field(page)).to_be_focused()


@pytest.mark.long
def test_a_rename_survives_a_search_that_takes_its_row_away(
    clips: Server, open_page: OpenPage, complaints: Complaints
) -> None:
    page = open_page(clips)
    hold(page, "PATCH")
    page.button("Rename film.webm").click()
    page.page.keyboard.type("saved")
    page.page.keyboard.press("Enter")
    search_field(page).fill("clip")
    expect(page.videos).to_have_count(3)
    release(page)
    expect(page.page.locator("live-announcer")).to_have_text(
        "film.webm is now called saved.webm. It is not in the list shown."
    )
    expect(search_field(page)).to_be_focused()
    assert complaints.unexpected == []


@pytest.mark.long
def test_a_failed_rename_whose_row_is_gone_is_told_above_the_list(
    clips: Server, open_page: OpenPage, complaints: Complaints
) -> None:
    complaints.allow_failed_requests()
    page = open_page(clips)
    hold(page, "PATCH")
    page.button("Rename film.webm").click()
    page.page.keyboard.type("saved")
    page.page.keyboard.press("Enter")
    search_field(page).fill("clip")
    expect(page.videos).to_have_count(3)
    page.page.route("**/api/videos/*", lambda route: route.abort())
    release(page)
    problem = page.page.locator("video-library").get_by_role("alert")
    expect(problem).to_contain_text("Could not rename \u2068film.webm\u2069")


@pytest.mark.long
def test_two_rename_forms_each_have_their_message(clips: Server, open_page: OpenPage) -> None:
    page = open_page(clips)
    for name in ("film.webm", "clip 2.mp4"):
        page.button(f"Rename {name}").click()
        field = page.page.get_by_label(f"New name of {name}")
        field.fill(" ")
        field.press("Enter")
        expect(field).to_have_accessible_description("Enter a name.")
        expect(field).to_have_attribute("aria-invalid", "true")


@pytest.mark.long
def test_a_name_of_dots_is_refused(
    site: Server, open_page: OpenPage, films: Films, complaints: Complaints
) -> None:
    complaints.allow_failed_requests()
    put(site, "plain", films.small)
    page = open_page(site)
    page.button("Rename plain").click()
    page.page.keyboard.type("..")
    page.page.keyboard.press("Enter")
    expect(page.videos.first.get_by_role("alert")).to_contain_text("refused this name")
    assert [video["filename"] for video in videos_of(site)] == ["plain"]


def test_a_renamed_video_moves_with_the_focus_to_its_place(
    clips: Server, open_page: OpenPage
) -> None:
    page = open_page(clips)
    page.page.get_by_label("Sort").select_option("Name, A to Z")
    expect_names(page, "clip 1.mov", "clip 2.mp4", "Clip 10.mp4", "été.mp4", "film.webm")
    page.videos.first.locator(".video-row__name").press("F2")
    page.page.keyboard.type("later")
    page.page.keyboard.press("Enter")
    expect_names(page, "clip 2.mp4", "Clip 10.mp4", "été.mp4", "film.webm", "later.mov")
    expect(page.videos.last.locator(".video-row__name")).to_be_focused()


@pytest.mark.long
def test_a_name_that_is_being_typed_survives_another_order_of_the_list(
    clips: Server, open_page: OpenPage
) -> None:
    page = open_page(clips)
    hold(page, "GET")
    page.page.get_by_label("Sort").select_option("Name, A to Z")
    page.videos.first.locator(".video-row__name").press("F2")
    page.page.keyboard.type("lr")
    page.page.keyboard.press("ArrowLeft")
    release(page)
    expect(page.videos.last).to_contain_text("film.webm")
    page.page.keyboard.type("ate")
    page.page.keyboard.press("Enter")
    expect_names(page, "clip 2.mp4", "Clip 10.mp4", "été.mp4", "film.webm", "later.mov")
    expect(page.videos.last.locator(".video-row__name")).to_be_focused()


@pytest.mark.long
def test_the_focus_is_not_lost_with_the_list_it_was_in(clips: Server, open_page: OpenPage) -> None:
    page = open_page(clips)
    hold(page, "GET")
    search_field(page).fill("clip")
    page.videos.nth(1).locator(".video-row__name").focus()
    release(page)
    expect(page.videos).to_have_count(3)
    expect(page.page.get_by_role("heading", name="Library")).to_be_focused()


def test_a_renamed_video_that_no_longer_matches_leaves_the_search(
    clips: Server, open_page: OpenPage
) -> None:
    page = open_page(clips)
    search_field(page).fill("clip")
    expect(page.videos).to_have_count(3)
    page.videos.first.locator(".video-row__name").press("F2")
    page.page.keyboard.type("other")
    page.page.keyboard.press("Enter")
    expect_names(page, "clip 2.mp4", "Clip 10.mp4")
    expect(page.page.locator("live-announcer")).to_have_text(
        "clip 1.mov is now called other.mov. It is not in the list shown."
    )
    expect(page.page.get_by_role("heading", name="Library")).to_be_focused()
