"""`sluice login`, and what the client says without a key that works."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.core.access import Role
from tests.access.accounts import make_key, make_project, revoke
from tests.client.bad_line import bad_line
from tests.client.conftest import MakeFile
from tests.client.running import SLUICE, CommandLine, finish
from tests.live_server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e


@pytest.fixture
def closed(home: Path, closed_server: Server) -> Iterator[CommandLine]:
    """The command line of somebody who has not logged in yet."""
    with closing(CommandLine(home, closed_server.url)) as running:
        yield running


def log_in(command: CommandLine, key: str) -> int:
    return command.run("login", "--server", command.url, "--api-key", key).code


def test_a_key_is_checked_kept_and_removed(
    closed: CommandLine, closed_server: Server, make_file: MakeFile
) -> None:
    key = make_key(closed_server, Role.UPLOADER, make_project(closed_server))
    refused = closed.run("ls")
    assert refused.code == 1
    assert "sluice login" in refused.err
    assert log_in(closed, key[:-1]) == 1
    assert log_in(closed, key) == 0
    kept = closed.home / "config" / "sluice" / "keys.json"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert json.loads(kept.read_text()) == {closed.url: key}
    assert closed.run("upload", make_file()).code == 0
    assert "film.mp4" in closed.run("ls").out
    closed.extra = {"SLUICE_API_KEY": key[:-1]}  # It comes before the one that is kept.
    assert closed.run("ls").code == 1
    assert closed.run("ls", "--api-key", key).code == 0
    closed.extra = {}
    assert closed.run("logout").code == 0
    assert closed.run("ls").code == 1
    assert closed.run("logout").code == 1


def test_a_script_logs_in_with_the_key_on_standard_input(
    closed: CommandLine, closed_server: Server
) -> None:
    told = subprocess.check_output(
        [SLUICE, "login", "--json"],
        env=closed.environment,
        input=make_key(closed_server) + "\n",
        text=True,
        timeout=60,
    )
    assert json.loads(told)["projects"][0]["name"] == "Videos"
    assert closed.run("ls").code == 0


def test_a_server_that_checks_no_keys_keeps_none(command: CommandLine) -> None:
    ended = command.run("login", "--server", command.url, "--api-key", "sluice_nonsense")
    assert ended.code == 1
    assert "does not ask for keys" in ended.err
    assert command.run("logout").code == 1


def test_a_role_that_may_not_send_is_named(
    closed: CommandLine, closed_server: Server, make_file: MakeFile
) -> None:
    closed.extra = {"SLUICE_API_KEY": make_key(closed_server, Role.VIEWER)}
    refused = closed.run("upload", make_file(), "--json")
    assert refused.code == 1
    assert refused.documents[0]["error"]["code"] == "not_allowed"


def test_an_upload_ends_when_its_key_is_revoked(
    closed: CommandLine, closed_server: Server, make_file: MakeFile
) -> None:
    key = make_key(closed_server, project=make_project(closed_server))
    closed.extra = {"SLUICE_API_KEY": key}
    with bad_line(closed_server.port) as line:
        line.bytes_per_second, closed.url = 500_000, line.url
        sending = closed.start("upload", make_file(size=60_000_000))
        wait_until(lambda: any(request.body for request in line.requests), "it sends")
        revoke(closed_server, key)
        ended = finish(sending)
    assert ended.code == 1
    assert "revoked" in ended.err
    assert "sluice login" in ended.err
