"""Who may only watch sees a page without what they may not do."""

from __future__ import annotations

import pytest

from app.core.access import Role
from tests.site import Site

FOR_SENDING = ("<upload-drop", "<upload-panel")
FOR_CHANGING = ('title="Rename" hidden', 'title="Delete" hidden')


@pytest.mark.parametrize(
    ("role", "may_send", "may_change"),
    [(Role.VIEWER, False, False), (Role.UPLOADER, True, True), (Role.EDITOR, True, True)],
)
def test_the_start_page_shows_what_the_role_may_do(
    site: Site, role: Role, may_send: bool, may_change: bool
) -> None:
    site.video()
    page = site.client(site.person(role, role)).get("/").text
    assert "film.mp4" in page
    assert [each in page for each in FOR_SENDING] == [may_send] * 2
    assert [each in page for each in FOR_CHANGING] == [not may_change] * 2
