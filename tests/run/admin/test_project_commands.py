"""`flask projects` and `flask keys`, run through Flask's own CLI."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import update

from app.core.access import LOCAL
from app.db.tables import projects
from tests.run.admin.test_commands import Operator


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    made = Operator(tmp_path)
    made.services.identity.accounts.add(made.services.context.acting(LOCAL), "ann@example.org")
    yield made
    made.services.database.close()


def refused(operator: Operator, reason: str, *arguments: str) -> bool:
    result = operator.run(*arguments)
    return result.exit_code == 1 and reason in result.stderr


def test_the_operator_makes_projects(operator: Operator) -> None:
    made = operator.json("projects", "add", "News", "--manager", "Ann@example.org")
    assert [row["name"] for row in operator.json("projects", "list")] == ["News", "Videos"]
    (member,) = operator.services.identity.projects.members(made["id"])
    assert (member.email, member.role) == ("ann@example.org", "manager")
    assert refused(operator, "There is no person", "projects", "add", "Film", "--manager", "b@c")
    assert "News" in operator.run("projects", "list").stdout


def test_the_operator_makes_and_revokes_keys(operator: Operator) -> None:
    project = operator.json("projects", "add", "News")["id"]
    given = ("--project", project, "--role", "uploader", "--name", "backup")
    secret = operator.run("keys", "add", *given).stdout.strip()
    keys = operator.services.identity.keys
    caller = keys.caller(secret)
    assert caller is not None
    assert (caller.project, caller.role) == (project, "uploader")
    (row,) = operator.json("keys", "list", "--project", project)
    assert (row["id"], row["hint"]) == (caller.id, secret[:11])
    assert row["used"] is not None
    assert "backup" in operator.run("keys", "list", "--project", project).stdout
    assert refused(operator, "no such key", "keys", "revoke", caller.id)
    operator.run("keys", "revoke", caller.id, "--project", project)
    assert keys.caller(secret) is None
    assert operator.json("keys", "list", "--project", project) == []


@pytest.mark.parametrize("expires", ["86400", "2099-12-31"])
def test_a_key_of_the_operator_expires(operator: Operator, expires: str) -> None:
    given = ("--role", "viewer", "--name", "tv")
    made = operator.json("keys", "add", *given, "--expires", expires)
    assert datetime.fromisoformat(made["expires"]) > datetime.now(UTC)
    assert refused(operator, "to come", "keys", "add", *given, "--expires", "soon")


def test_the_operator_limits_projects(operator: Operator) -> None:
    limited = operator.json("projects", "set", "local", "--quota", "1.5GB", "--keep-videos", "30")
    assert limited["quota_bytes"] == 1_500_000_000
    assert limited["video_seconds"] == 30 * 24 * 3600
    free = operator.json("projects", "set", "local", "--quota", "none", "--keep-videos", "none")
    assert (free["quota_bytes"], free["video_seconds"]) == (None, None)
    assert refused(operator, "no such project", "projects", "set", "other", "--quota", "1")
    for wrong in (("--quota", "much"), ("--keep-videos", "long"), ()):
        assert operator.run("projects", "set", "local", *wrong).exit_code == 2


def test_the_operator_puts_a_wrong_count_right(operator: Operator) -> None:
    with operator.services.database.write() as connection:
        connection.execute(update(projects).values(used_bytes=7))
    assert operator.json("projects", "recount") == [{"id": "local", "was": 7, "is": 0}]
    assert "0 counts were wrong" in operator.run("projects", "recount").stdout
