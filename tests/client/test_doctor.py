"""The doctor against a real nginx, well and badly configured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sluice_client import Client
from sluice_client.doctor import Finding, Level
from tests.client.bad_line import BadLine
from tests.client.conftest import MakeFile
from tests.client.running import CommandLine
from tests.live_server import Server
from tests.nginx import bare_nginx

MakeClient = Callable[..., Client]
PAUSE_SECONDS = 2.0

pytestmark = pytest.mark.e2e

GOOD = {
    "server_lines": "client_max_body_size 0; client_body_timeout 120s;",
    "location_lines": "proxy_request_buffering off; proxy_http_version 1.1;",
}
BUFFERING = {"server_lines": "client_max_body_size 60m;", "location_lines": ""}
IMPATIENT = {
    "server_lines": "client_max_body_size 0; client_body_timeout 1s; keepalive_timeout 1s;",
    "location_lines": "proxy_request_buffering off; proxy_http_version 1.1;",
}


@pytest.fixture
def examine(
    server: Server, tmp_path: Path, make_client: MakeClient
) -> Callable[[dict[str, str]], dict[str, Finding]]:
    """The doctor's findings behind an nginx with these lines, by check."""

    def run(lines: dict[str, str]) -> dict[str, Finding]:
        with bare_nginx(tmp_path / "nginx", server.port, **lines) as url:
            return {f.check: f for f in make_client(url).examine(PAUSE_SECONDS)}

    return run


Examine = Callable[[dict[str, str]], dict[str, Finding]]


def test_a_well_configured_nginx_passes(examine: Examine) -> None:
    findings = examine(GOOD)
    assert [finding for finding in findings.values() if finding.level is Level.CHANGE] == []
    assert findings["who answers"].text.startswith("nginx")
    assert findings["request buffering"].text.startswith("bodies stream")


def test_buffering_and_a_body_limit_are_found_with_the_lines_that_fix_them(
    examine: Examine,
) -> None:
    findings = examine(BUFFERING)
    buffering, size = findings["request buffering"], findings["body size"]
    assert buffering.level is Level.CHANGE
    assert "    proxy_request_buffering off;" in buffering.advice
    assert size.level is Level.CHANGE
    assert 56 <= float(size.text.split("about ")[1].split(" ")[0]) <= 60
    assert "    client_max_body_size 0;" in size.advice


def test_short_timeouts_are_found(examine: Examine) -> None:
    findings = examine(IMPATIENT)
    assert findings["pause in a body"].level is Level.CHANGE
    assert findings["idle connection"].level is Level.NOTE


def test_nginx_as_installed_has_too_small_a_limit_and_the_client_copes(
    server: Server, tmp_path: Path, command: CommandLine, make_file: MakeFile
) -> None:
    film = make_file(size=5_000_000)
    with bare_nginx(tmp_path / "nginx", server.port) as url:
        command.url = url
        found = command.run("doctor", "--pause", PAUSE_SECONDS, "--json")
        sent = command.run("upload", film, "--json")
    levels = {document["check"]: document["level"] for document in found.documents}
    assert (found.code, levels["body size"]) == (1, "change")
    assert (sent.code, sent.documents[0]["verified"]) == (0, True)


def test_without_a_proxy_everything_passes_and_nothing_is_left(
    server: Server, command: CommandLine
) -> None:
    found = command.run("doctor", server.url, "--pause", "0.5")
    assert found.code == 0, found.out
    assert "bodies of 4096.0 MiB are accepted" in found.out
    uploads = server.get("/api/uploads").json()["uploads"]
    assert [upload for upload in uploads if upload["filename"] == "sluice-doctor"] == []


def test_a_server_that_is_not_sluice_is_reported(line: BadLine, slow_command: CommandLine) -> None:
    line.on_head = lambda refusing, _: refusing.answer("200 OK", body="It works!")
    found = slow_command.run("doctor", GIVE_UP_SECONDS=1)
    assert found.code == 3
    assert "is not a Sluice server" in found.err
