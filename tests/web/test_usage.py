"""How much of its quota a project uses, on its page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.core.access import FIRST_PROJECT, Role
from tests.site import Site, new_site

GB = 10**9


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with new_site(tmp_path) as site:
        yield site


def limits_of(site: Site) -> tuple[int | None, float | None]:
    project = site.identity.projects.get(FIRST_PROJECT)
    return project.quota_bytes, project.video_seconds


def test_an_administrator_sets_limits_and_managers_see_the_bar(site: Site) -> None:
    admin = site.browser(site.person("ann@example.org", Role.MANAGER, is_admin=True))
    manager = site.browser(site.person("bob@example.org", Role.MANAGER))
    assert "0 bytes used" in manager.get("/project").text
    saved = admin.post("/project/limits", {"quota": "50 GB", "keep_days": "30"})
    assert saved.status_code == 303
    assert limits_of(site) == (50 * GB, 30 * 86_400)
    page = manager.get("/project").text
    assert "0 bytes of 50 GB used" in page
    assert "<meter" in page
    assert "deleted 30 days after" in page
    assert "Save limits" not in page
    refused = manager.post("/project/limits", {"quota": "", "keep_days": ""})
    assert refused.status_code == 403
    admin.post("/project/limits", {"quota": "", "keep_days": " "})
    assert limits_of(site) == (None, None)


def test_what_is_no_size_and_no_time_is_refused_beside_its_field(site: Site) -> None:
    admin = site.browser(site.person("ann@example.org", Role.MANAGER, is_admin=True))
    for fields in (
        {"quota": "much", "keep_days": "1"},
        {"quota": "1", "keep_days": "soon"},
        {"quota": "1", "keep_days": "nan"},
        {"quota": "999999 PB", "keep_days": "1"},
    ):
        answer = admin.post("/project/limits", fields)
        assert answer.status_code == 400
        assert 'aria-invalid="true"' in answer.text
    assert limits_of(site) == (None, None)
