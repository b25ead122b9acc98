"""The audit log."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from app.access import audit
from app.access.audit import MAX_TEXT_CHARACTERS, AuditAction, AuditFilter
from app.core.access import ANONYMOUS, LOCAL, Caller, CallerKind
from app.core.errors import InvalidRequest
from app.db.context import Context
from app.db.engine import Database
from app.settings import Settings

START = datetime(2030, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
ANA = Caller(kind=CallerKind.PERSON, id="a" * 32, name="Ana")


class Clock:
    now = START

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(database: Database, clock: Clock) -> Context:
    return context_of(database, clock)


def context_of(database: Database, clock: Clock) -> Context:
    settings = Settings(audit_seconds=30 * 86_400)
    return Context(database=database, clock=clock, new_id=str, settings=settings)


def numbers(log: Context, wanted: AuditFilter) -> list[object]:
    return [entry.details["number"] for entry in audit.every(log, wanted)]


def test_an_entry_tells_who_did_what_when_and_from_where(log: Context) -> None:
    about: dict[str, Any] = {"filename": "film.mp4", "bytes": 12, "is_new": True, "note": None}
    ann = log.acting(ANA, address="192.0.2.7")
    audit.note(ann, AuditAction.VIDEO_DELETED, "video:1", project="p", **about)
    audit.note(log.acting(ANONYMOUS), AuditAction.SESSION_REFUSED, email="eve@mail.example")
    audit.note(log.acting(LOCAL), AuditAction.KEY_MADE)
    made, refused, deleted = audit.page(log, AuditFilter(), limit=3, cursor=None).entries
    assert (deleted.at, deleted.address, deleted.project_id) == (START, "192.0.2.7", "p")
    assert (deleted.actor, deleted.actor_name) == (f"person:{ANA.id}", "Ana")
    assert (deleted.action, deleted.subject, deleted.details) == ("video.deleted", "video:1", about)
    assert (refused.actor, made.actor) == ("nobody", "local")


def test_entries_are_found_by_project_action_actor_and_time(log: Context, clock: Clock) -> None:
    for number in range(6):
        clock.now = START + number * DAY
        audit.note(
            log.acting(ANA if number < 3 else LOCAL),
            AuditAction.KEY_MADE if number % 2 else AuditAction.KEY_REVOKED,
            project="p" if number < 4 else "",
            number=number,
        )
    assert numbers(log, AuditFilter()) == [5, 4, 3, 2, 1, 0]
    assert numbers(log, AuditFilter(project_id="p")) == [3, 2, 1, 0]
    assert numbers(log, AuditFilter(action=AuditAction.KEY_MADE)) == [5, 3, 1]
    assert numbers(log, AuditFilter(actor=ANA.actor, project_id="p")) == [2, 1, 0]
    assert numbers(log, AuditFilter(since=START + DAY, until=START + 3 * DAY)) == [2, 1]


def test_pages_follow_each_other_while_entries_are_added(log: Context) -> None:
    for number in range(5):
        audit.note(log.acting(ANA), AuditAction.KEY_MADE, number=number)
    first = audit.page(log, AuditFilter(), limit=2, cursor=None)
    audit.note(log.acting(ANA), AuditAction.KEY_MADE)
    second = audit.page(log, AuditFilter(), limit=2, cursor=first.next_cursor)
    third = audit.page(log, AuditFilter(), limit=2, cursor=second.next_cursor)
    pages = [[entry.details["number"] for entry in page.entries] for page in (first, second, third)]
    assert pages == [[4, 3], [2, 1], [0]]
    assert third.next_cursor is None


@pytest.mark.parametrize("cursor", ["", "-1", "x", "1.5", "9" * 40, "１"])
def test_a_made_up_cursor_is_refused(log: Context, cursor: str) -> None:
    with pytest.raises(InvalidRequest):
        audit.page(log, AuditFilter(), limit=1, cursor=cursor)


def test_old_entries_are_removed_in_batches(log: Context, clock: Clock) -> None:
    for number in range(audit.MAX_PAGE + 3):
        clock.now = START if number < audit.MAX_PAGE + 1 else START + 20 * DAY
        audit.note(log.acting(ANA), AuditAction.KEY_MADE, number=number)
    clock.now = START + 31 * DAY
    audit.remove_old(log)
    assert numbers(log, AuditFilter()) == [audit.MAX_PAGE + 2, audit.MAX_PAGE + 1]


def test_what_strangers_send_is_kept_short_and_printable(log: Context) -> None:
    hostile = "\x00\ud800\n\u202e" + "x" * 10_000
    eve = Caller(kind=CallerKind.UPLOAD_LINK, id="l", name=hostile, visitor="v")
    ctx = log.acting(eve, address=hostile)
    audit.note(ctx, AuditAction.SESSION_REFUSED, hostile, name=hostile)
    (entry,) = audit.page(log, AuditFilter(), limit=1, cursor=None).entries
    texts = [entry.actor_name, entry.subject, entry.address, str(entry.details["name"])]
    assert all(each.isprintable() and len(each) <= MAX_TEXT_CHARACTERS for each in texts)


def test_what_was_done_stays_done_if_the_log_cannot_be_written(
    in_file: Database, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    ctx = context_of(in_file, clock).acting(ANA)
    with in_file.read() as connection:
        (pages,) = connection.execute(text("PRAGMA page_count")).one()
        connection.execute(text(f"PRAGMA max_page_count = {pages}"))
    with caplog.at_level(logging.ERROR):
        for _ in range(100):
            audit.note(ctx, AuditAction.VIDEO_DELETED, "video:1", name="x" * 500)
    assert "video.deleted" in caplog.text
    assert "video:1" in caplog.text
