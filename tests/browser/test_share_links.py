"""Sharing a film: a link is made, a guest watches, the link is revoked."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import requests
from playwright.sync_api import BrowserContext, expect

from tests.browser.complaints import Complaints
from tests.browser.films import Films
from tests.browser.library_tools import put
from tests.browser.test_player import seek, value_of, video_of, wait_for
from tests.live_server import Server

pytestmark = pytest.mark.browser


def test_a_guest_watches_by_a_link_until_it_is_revoked(
    site: Server, new_context: Callable[..., BrowserContext], films: Films, complaints: Complaints
) -> None:
    complaints.allow_failed_requests()
    member, guest = new_context().new_page(), new_context().new_page()
    member.goto(f"{site.url}/watch/{put(site, 'holidays.mp4', films.middle)}")
    member.get_by_role("link", name="Share").click()
    member.get_by_label("Title for your guests").fill("Our holidays")
    member.get_by_role("button", name="Make a link").click()
    expect(member.get_by_role("img", name="QR code of the address")).to_be_visible()
    address = member.get_by_label("Send this to your guests").input_value()

    guest.goto(address)
    expect(guest.get_by_role("heading", name="Our holidays")).to_be_visible()
    expect(guest.get_by_role("link", name="Download")).to_have_count(0)
    video = video_of(guest)
    guest.get_by_role("button", name="play", exact=True).focus()
    guest.keyboard.press("Space")
    wait_for(video, "!video.paused && video.currentTime > 0")
    assert "/t/" in value_of(video, "video.currentSrc")
    seek(video, 5)
    wait_for(video, "video.currentTime > 5")

    member.locator("summary").filter(has_text="Revoke").click()
    member.get_by_role("button", name="Revoke: Our holidays").click()
    expect(member.get_by_text("None yet.")).to_be_visible()
    guest.reload()
    expect(guest.get_by_text("Whoever shared this has closed the link.")).to_be_visible()


def test_a_set_behind_a_password_is_opened_film_by_film(
    site: Server, new_context: Callable[..., BrowserContext], films: Films
) -> None:
    videos = [put(site, f"part {number}.mp4", films.small) for number in (1, 2)]
    terms = {"videos": videos, "password": "open sesame", "can_download": True}
    link = requests.post(f"{site.url}/api/share-links", json=terms, timeout=60).json()
    guest = new_context(java_script_enabled=False).new_page()
    guest.goto(link["url"])
    guest.get_by_label("Password").fill("open sesame")
    guest.keyboard.press("Enter")
    guest.get_by_role("link", name="part 2.mp4").click()
    expect(guest.get_by_role("heading", name="part 2.mp4")).to_be_visible()
    expect(guest.get_by_role("link", name="Download")).to_be_visible()
    guest.get_by_role("link", name="All videos").click()
    expect(guest.get_by_role("button", name="Download all")).to_be_visible()
