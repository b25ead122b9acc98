"""Who may only watch sees a page without what they may not do."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.domain.access import Role
from tests.access.world import AccessWorld

FOR_SENDING = ("<upload-drop", "<upload-panel")
FOR_CHANGING = ('title="Rename" hidden', 'title="Delete" hidden')


@pytest.fixture
def world(tmp_path: Path) -> AccessWorld:
    world = AccessWorld(tmp_path)
    world.video()
    return world


@pytest.mark.parametrize(
    ("role", "may_send", "may_change"),
    [(Role.VIEWER, False, False), (Role.UPLOADER, True, True), (Role.EDITOR, True, True)],
)
def test_the_start_page_shows_what_the_role_may_do(
    world: AccessWorld, role: Role, may_send: bool, may_change: bool
) -> None:
    _, headers = world.person(role)
    page = world.client().get("/", headers=headers).get_data(as_text=True)
    assert "film.mp4" in page
    assert [each in page for each in FOR_SENDING] == [may_send] * 2
    assert [each in page for each in FOR_CHANGING] == [not may_change] * 2
