"""The doctor against a real nginx, once set up badly and once well."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from sluice_client import Client
from sluice_client.doctor.findings import Finding, Level
from tests.client.bad_line import BadLine
from tests.client.conftest import MakeFile
from tests.client.running import CommandLine
from tests.live_server import Server, free_port
from tests.waiting import wait_until

MakeClient = Callable[..., Client]
PAUSE_SECONDS = 2.0

pytestmark = pytest.mark.e2e

CONFIG = """
{user_line}
worker_processes 1;
daemon off;
pid {folder}/pid;
error_log {folder}/errors;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        {server_lines}
        location / {{
            proxy_pass http://127.0.0.1:{target};
            {location_lines}
        }}
    }}
}}
"""

GOOD = {
    "server_lines": "client_max_body_size 0; client_body_timeout 120s;",
    "location_lines": "proxy_request_buffering off; proxy_http_version 1.1;",
}
AS_INSTALLED = {"server_lines": "", "location_lines": ""}
BUFFERING = {"server_lines": "client_max_body_size 60m;", "location_lines": ""}
IMPATIENT = {
    "server_lines": "client_max_body_size 0; client_body_timeout 1s; keepalive_timeout 1s;",
    "location_lines": "proxy_request_buffering off; proxy_http_version 1.1;",
}


@contextmanager
def nginx(folder: Path, target: int, lines: dict[str, str]) -> Iterator[str]:
    """nginx as an ordinary process before a server; its address."""
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    if program is None:
        pytest.skip("nginx is not installed")
    folder.mkdir()
    port = free_port()
    config = folder / "nginx.conf"
    # Started by root it would work as another user, to whom pytest's folders are closed.
    user_line = "user root;" if os.geteuid() == 0 else ""
    config.write_text(
        CONFIG.format(user_line=user_line, folder=folder, port=port, target=target, **lines)
    )
    words = [program, "-c", str(config), "-p", str(folder), "-e", str(folder / "errors")]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: answers(url), "nginx answers")
        yield url
    finally:
        process.terminate()
        process.wait()


def answers(url: str) -> bool:
    try:
        return requests.get(f"{url}/healthz", timeout=5).ok
    except requests.ConnectionError:
        return False


@pytest.fixture
def examine(
    server: Server, tmp_path: Path, make_client: MakeClient
) -> Callable[[dict[str, str]], dict[str, Finding]]:
    """What the doctor finds behind an nginx with these lines, by the name of the check."""

    def run(lines: dict[str, str]) -> dict[str, Finding]:
        with nginx(tmp_path / "nginx", server.port, lines) as url:
            return {f.check: f for f in make_client(url).examine(PAUSE_SECONDS)}

    return run


Examine = Callable[[dict[str, str]], dict[str, Finding]]


def test_a_good_nginx_is_found_good(examine: Examine) -> None:
    findings = examine(GOOD)
    assert [finding for finding in findings.values() if finding.level is Level.CHANGE] == []
    assert findings["who answers"].text.startswith("nginx")
    assert findings["request buffering"].text.startswith("bodies stream")


def test_buffering_and_a_body_limit_are_found_with_the_lines_that_end_them(
    examine: Examine,
) -> None:
    findings = examine(BUFFERING)
    buffering, size = findings["request buffering"], findings["body size"]
    assert buffering.level is Level.CHANGE
    assert "    proxy_request_buffering off;" in buffering.advice
    assert size.level is Level.CHANGE
    assert 56 <= float(size.text.split("about ")[1].split(" ")[0]) <= 60
    assert "    client_max_body_size 0;" in size.advice


def test_impatience_is_found(examine: Examine) -> None:
    findings = examine(IMPATIENT)
    assert findings["pause in a body"].level is Level.CHANGE
    assert findings["idle connection"].level is Level.NOTE


def test_nginx_as_installed_is_found_too_small_and_the_client_copes(
    server: Server, tmp_path: Path, command: CommandLine, make_file: MakeFile
) -> None:
    film = make_file(size=5_000_000)
    with nginx(tmp_path / "nginx", server.port, AS_INSTALLED) as url:
        command.url = url
        found = command.run("doctor", "--pause", PAUSE_SECONDS, "--json")
        sent = command.run("upload", film, "--json")
    levels = {document["check"]: document["level"] for document in found.documents}
    assert (found.code, levels["body size"]) == (1, "change")
    assert (sent.code, sent.documents[0]["verified"]) == (0, True)


def test_without_a_proxy_all_is_well_and_nothing_stays(
    server: Server, command: CommandLine
) -> None:
    found = command.run("doctor", server.url, "--pause", "0.5")
    assert found.code == 0, found.out
    assert "bodies of 4096.0 MiB are accepted" in found.out
    uploads = server.get("/api/uploads").json()["uploads"]
    assert [upload for upload in uploads if upload["filename"] == "sluice-doctor"] == []


def test_a_server_that_is_no_sluice_is_said_to_be_none(
    line: BadLine, slow_command: CommandLine
) -> None:
    line.on_head = lambda refusing, _: refusing.answer("200 OK", body="It works!")
    found = slow_command.run("doctor", GIVE_UP_SECONDS=1)
    assert found.code == 3
    assert "is not a Sluice server" in found.err
