"""The pages of links: their terms can be changed, and their addresses are in the rows."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from sqlalchemy import update

from app.access import audit
from app.access.audit import AuditAction, AuditFilter
from app.access.share_links import ShareLink
from app.core.access import FIRST_PROJECT, Role
from app.db.tables import share_links
from tests.site import HTML, Browser, Site


def editor(site: Site) -> Browser:
    return site.browser(site.person("Ann", Role.EDITOR))


def link_of(site: Site, link: ShareLink) -> ShareLink:
    return site.identity.share_links.get(FIRST_PROJECT, link.id)


def test_the_terms_of_a_share_link_are_changed_on_its_page(site: Site) -> None:
    ann, link, guest = editor(site), site.share_link(), site.browser()
    path = f"/links/share/{link.id}"
    terms = {"name": "Holidays", "max_views": "20", "lifetime": "86400", "password": "sesame"}
    assert ann.post(path, terms).location == f"{path}?done=changed"
    changed = link_of(site, link)
    assert (changed.name, changed.max_views, changed.can_download) == ("Holidays", 20, False)
    assert changed.expires_at is not None
    assert changed.code == link.code
    assert "Password" in guest.get(f"/s/{link.code}").text
    shown = ann.get(f"{path}?done=changed").text
    assert "The link is changed." in shown
    assert 'value="Holidays"' in shown
    kept = {"name": "Holidays", "lifetime": "kept", "can_download": "1", "max_views": ""}
    ann.post(path, kept)
    again = link_of(site, link)
    assert (again.max_views, again.can_download) == (None, True)
    assert (again.expires_at, again.password_hash) == (changed.expires_at, changed.password_hash)
    ann.post(path, {**kept, "lifetime": "", "no_password": "1"})
    assert (link_of(site, link).expires_at, link_of(site, link).password_hash) == (None, None)
    wrong = ann.post(path, {**kept, "max_views": "many"})
    assert (wrong.status_code, "above 0" in wrong.text) == (400, True)
    wanted = AuditFilter(project_id=FIRST_PROJECT, action=AuditAction.LINK_CHANGED)
    entries = audit.page(site.services.context, wanted, limit=10, cursor=None).entries
    assert [entry.subject for entry in entries] == [f"share_link:{link.id}"] * 3


def test_the_terms_of_a_share_link_are_changed_over_json(site: Site) -> None:
    link, client = site.share_link(), site.client(site.person("Ann", Role.EDITOR))
    path = f"/api/share-links/{link.id}"
    changed = client.patch(path, json={"name": "Holidays", "expires": 60}).get_json()
    assert (changed["name"], changed["can_download"], changed["views"]) == ("Holidays", True, 0)
    assert changed["expires"] is not None
    changed = client.patch(path, json={"expires": None, "max_views": 3, "password": "x"}).get_json()
    assert (changed["expires"], changed["max_views"], changed["has_password"]) == (None, 3, True)
    assert client.patch(path, json={"name": None, "password": None}).get_json()["name"] == ""
    assert link_of(site, link).password_hash is None
    for wrong in ({"expires": "2001-01-01"}, {"max_views": 0}, {"max_views": "1"}, {"name": 7}):
        assert client.patch(path, json=wrong).status_code == 400, wrong
    assert client.delete(path).status_code == 204
    assert client.patch(path, json={"name": "late"}).status_code == 404


def test_a_share_link_that_has_expired_works_again_with_more_time(site: Site) -> None:
    link, client = site.share_link(), site.client(site.person("Ann", Role.EDITOR))
    path = f"/api/share-links/{link.id}"
    with site.services.database.write() as connection:
        connection.execute(update(share_links).values(expires_at=datetime.now(UTC)))
    assert site.client().get(f"/s/{link.code}", headers=HTML).status_code == 410
    assert client.patch(path, json={"name": "Other words alone"}).status_code == 200
    client.patch(path, json={"expires": 3600})
    assert site.client().get(f"/s/{link.code}", headers=HTML).status_code == 200


def test_the_terms_of_an_upload_link_are_shown_and_changed_on_its_page(site: Site) -> None:
    ann, link = editor(site), site.upload_link()
    path = f"/links/upload/{link.id}"
    terms = {
        "name": "Wedding",
        "message": "Thanks!",
        "max_bytes": "1.5",
        "max_file_bytes": "0,5",
        "extensions": "mp4, mov",
        "lifetime": "604800",
        "password": "sesame",
    }
    assert ann.post(path, terms).location == f"{path}?done=changed"
    shown = ann.get(path).text
    for words in ('value="Wedding"', "Thanks!", 'value="1.5"', 'value="0.5"', 'value="mp4, mov"'):
        assert words in shown
    changed = site.identity.upload_links.get(FIRST_PROJECT, link.id)
    assert (changed.max_bytes, changed.max_file_bytes) == (1_500_000_000, 500_000_000)
    ann.post(path, {"name": "Wedding", "lifetime": "kept"})
    again = site.identity.upload_links.get(FIRST_PROJECT, link.id)
    assert (again.max_bytes, again.message) == (None, "")
    assert (again.expires_at, again.password_hash) == (changed.expires_at, changed.password_hash)
    wrong = ann.post(path, {**terms, "max_bytes": "1e999990"})
    assert (wrong.status_code, "above 0" in wrong.text) == (400, True)
    assert "Thanks!" in wrong.text


def test_the_row_of_a_link_has_a_button_that_copies_its_address(site: Site) -> None:
    ann, share, receive = editor(site), site.share_link(), site.upload_link()
    for path, code in (("/links", f"/s/{share.code}"), ("/links/upload", f"/u/{receive.code}")):
        copied = re.findall(r'<copy-text [^>]*data-value="([^"]*)"', ann.get(path).text)
        assert f"http://localhost{code}" in copied


def test_a_new_upload_link_has_a_proposed_limit_and_a_week(site: Site) -> None:
    shown = editor(site).get("/links/upload").text
    form = shown[shown.index('action="/links/upload"') :]
    assert form.index('name="name"') < form.index('name="lifetime"') < form.index("<details")
    assert 'name="lifetime" value="604800" checked' in form
    assert re.search(r'name="max_bytes"[^>]*value="100"', form)
