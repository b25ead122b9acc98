"""Entries of the log as sentences."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from app.access.audit import AuditAction, AuditEntry
from app.core.access import Role
from app.web.audit import TITLES, actor_of, deed_of
from tests.site import Site


def entry(action: AuditAction, subject: str = "", **details: Any) -> AuditEntry:
    return AuditEntry(
        at=datetime(2026, 11, 24, tzinfo=UTC),
        action=action,
        actor="person:1",
        actor_name="Ada",
        address="192.0.2.7",
        subject=subject,
        project_id="local",
        details=details,
    )


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            entry(AuditAction.INVITATION_MADE, email="new@example.org", role="editor"),
            "Ada invited new@example.org as editor",
        ),
        (
            entry(AuditAction.LINK_MADE, "share_link:2", name="Holidays"),
            "Ada created the share link Holidays",
        ),
        (entry(AuditAction.LINK_CLOSED, "upload_link:2", name=""), "Ada closed an upload link"),
        (
            entry(AuditAction.MEMBER_CHANGED, "person:2", email="b@example.org", role="editor"),
            "Ada made b@example.org an editor",
        ),
        (
            entry(AuditAction.MEMBER_ADDED, "person:1", email="a@example.org", role="viewer"),
            "Ada joined the project as viewer",
        ),
        (
            entry(AuditAction.PERSON_CHANGED, email="b@example.org", change="block"),
            "Ada blocked b@example.org",
        ),
        (
            entry(AuditAction.VIDEO_RENAMED, filename="{a}.mp4", renamed_to="b.mp4"),
            "Ada renamed {a}.mp4 to b.mp4",
        ),
        (entry(AuditAction.SESSION_BEGAN, method="passkey"), "Ada signed in with a passkey"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_entry_is_a_sentence(given: AuditEntry, sentence: str) -> None:
    assert f"{actor_of(given)} {deed_of(given)}" == sentence


@pytest.mark.parametrize("action", AuditAction)
def test_every_action_has_words_even_without_details(action: AuditAction) -> None:
    assert "{" not in deed_of(entry(action))
    assert TITLES[action]


def test_the_log_is_written_in_sentences(site: Site) -> None:
    ada = site.person("Ada", Role.MANAGER)
    browser = site.browser(ada)
    browser.post("/project/members", {"email": "new@example.org", "role": "editor"})
    sentence = f"Ada</a> ({ada.email}) invited new@example.org as editor"
    assert sentence in browser.get("/audit").text
