"""What the command says while no server answers, and when it gives up."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from scripts.fleet.programs import free_port
from tests.client.conftest import MakeFile
from tests.client.running import SLUICE, SOON_SECONDS, CommandLine, finish, read_until
from tests.long_tests import long

pytestmark = pytest.mark.e2e

MOST_CONNECTIONS = 24
"""Of the client."""


@pytest.fixture
def nowhere(command: CommandLine) -> CommandLine:
    """The command line, with no server at its address."""
    command.url = f"http://127.0.0.1:{free_port()}"
    return command


@pytest.fixture
def silent(command: CommandLine) -> Iterator[CommandLine]:
    """The command line, with a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        yield command


def first_line(process: subprocess.Popen[str]) -> str:
    """The first line that a running command writes to standard error."""
    assert process.stderr is not None
    ready, _, _ = select.select([process.stderr], [], [], SOON_SECONDS)
    assert ready, "nothing was said"
    return process.stderr.readline()


def test_an_upload_says_at_once_what_it_is_waiting_for_and_how_long(
    nowhere: CommandLine, make_file: MakeFile
) -> None:
    process = nowhere.start("upload", make_file())
    said = first_line(process)
    process.send_signal(signal.SIGINT)
    ended = finish(process)
    assert said == (
        f"Cannot reach {nowhere.url} (connection refused). "
        "Trying again for up to 15 minutes. Ctrl-C stops.\n"
    )
    assert ended.code == 4
    assert "Stopped" in ended.err
    assert "kept" not in ended.err


def test_with_json_the_wait_is_an_event_beside_the_results(
    nowhere: CommandLine, make_file: MakeFile
) -> None:
    process = nowhere.start("upload", make_file(), "--json")
    event = json.loads(first_line(process))
    process.send_signal(signal.SIGINT)
    ended = finish(process)
    assert (event["event"], event["name"]) == ("waiting", None)
    assert "for up to 15 minutes" in event["detail"]
    assert ended.out == ""


def test_on_a_terminal_the_wait_is_shown_above_the_bars(
    nowhere: CommandLine, make_file: MakeFile
) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [SLUICE, "upload", make_file()], env=nowhere.environment, stderr=theirs
    ) as process:
        os.close(theirs)
        shown = read_until(ours, b"Ctrl-C stops.")
        process.send_signal(signal.SIGINT)
        shown += read_until(ours, b"Stopped")
    os.close(ours)
    assert b"connection refused" in shown
    assert process.returncode == 4


@pytest.mark.parametrize(
    "words", [["ls"], ["fetch", "0a"], *long([(["show", "0a"],), (["rm", "0a"],)])]
)
def test_a_query_gives_up_within_seconds(nowhere: CommandLine, words: list[str]) -> None:
    began = time.monotonic()
    ended = nowhere.run(*words)
    assert time.monotonic() - began < SOON_SECONDS
    assert ended.code == 3
    cause = f"Cannot reach {nowhere.url} (connection refused). "
    first, last = ended.err.splitlines()
    assert first == f"{cause}Trying again for up to 5 seconds. Ctrl-C stops."
    gave_up = re.fullmatch(r"Gave up after (\d+) seconds without progress\.", last[len(cause) :])
    assert last.startswith(cause)
    assert gave_up
    assert int(gave_up[1]) >= 5, "a busy machine may be late"


@pytest.mark.parametrize("words", [["upload", "film.mp4"], ["ls"], ["fetch", "0a"]])
def test_a_silent_server_is_reported_and_does_not_delay_ctrl_c(
    silent: CommandLine, make_file: MakeFile, words: list[str]
) -> None:
    make_file("film.mp4")
    process = silent.start(*words)
    assert first_line(process).startswith(f"No answer from {silent.url} yet")
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    ended = finish(process)
    assert time.monotonic() - began < SOON_SECONDS
    assert (ended.code, ended.err) == (4, "Stopped.\n")


def test_an_upload_waits_for_the_server_to_start(nowhere: CommandLine, make_file: MakeFile) -> None:
    process = nowhere.start("upload", make_file(), "--json")
    first_line(process)
    with socket.create_server(("127.0.0.1", int(nowhere.url.rpartition(":")[2]))) as listener:
        listener.settimeout(SOON_SECONDS)
        assert a_request_arrives(listener)
    process.send_signal(signal.SIGINT)
    assert finish(process).code == 4


def a_request_arrives(listener: socket.socket) -> bool:
    """Whether one of the client's connections asks; others are opened ahead of use."""
    with ExitStack() as opened:
        connections: list[socket.socket] = []
        while len(connections) < MOST_CONNECTIONS:
            connections.append(opened.enter_context(listener.accept()[0]))
            for connection in select.select(connections, [], [], 0.5)[0]:
                if re.match(rb"(GET /api/server|POST /api/uploads) ", connection.recv(100)):
                    return True
    return False
