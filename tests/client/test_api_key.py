"""The key is sent with every request to its own server, and to no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client.bad_line import BadLine, bad_line
from tests.client.conftest import MakeFile
from tests.client.running import CommandLine
from tests.live_server import Server

pytestmark = pytest.mark.e2e

HEADER = "Authorization: Bearer sk-123\r\n"


@pytest.fixture
def keyed(slow_command: CommandLine) -> CommandLine:
    """The command line with a key, and a ~/.netrc entry for the server too."""
    slow_command.extra = {"SLUICE_API_KEY": "sk-123"}
    netrc = slow_command.home / ".netrc"
    netrc.write_text("machine 127.0.0.1 login ana password other\n")
    netrc.chmod(0o600)
    return slow_command


def test_every_request_carries_the_key(
    line: BadLine, keyed: CommandLine, make_file: MakeFile
) -> None:
    (stored,) = keyed.run("upload", make_file(), "--json").documents
    keyed.run("fetch", stored["url"], "-o", "copy.mp4")
    keyed.run("doctor", "--pause", "0.1")
    keyed.run("rm", stored["id"])
    assert len(line.requests) > 8
    assert [request.path for request in line.requests if HEADER not in request.headers] == []


def test_an_address_on_another_server_is_fetched_without_it(
    server: Server, line: BadLine, keyed: CommandLine, make_file: MakeFile, home: Path
) -> None:
    path = make_file()
    (stored,) = keyed.run("upload", path, "--json").documents
    with bad_line(server.port) as other:
        keyed.run("fetch", f"{other.url}{stored['media']}", "-o", "copy.mp4")
        assert len(other.requests) > 0
        assert [request.path for request in other.requests if "sk-123" in request.headers] == []
    assert (home / "copy.mp4").read_bytes() == path.read_bytes()
