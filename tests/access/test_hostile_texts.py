"""Texts and numbers that SQLite takes and PostgreSQL does not."""

from __future__ import annotations

import pytest

from tests.site import Browser, Site


@pytest.mark.parametrize("path", ["/s/a%00b", "/u/a%00b", "/api/audit?cursor=1099511627776"])
def test_they_are_refused_in_urls(site: Site, path: str) -> None:
    assert 400 <= site.app.test_client().get(path).status_code < 500


def test_they_are_refused_by_the_sign_in_page(site: Site) -> None:
    browser = Browser(site.app.test_client())
    assert 400 <= browser.sign_in("a\x00b@example.org", "c\x00d").status_code < 500
