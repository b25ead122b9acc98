"""Many signals at the worst moments: a command always ends cleanly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from threading import Event

import pytest

from tests.client.bad_line import BadLine, hold
from tests.client.conftest import MakeFile
from tests.client.running import SLUICE, CommandLine, finish
from tests.waiting import wait_until

MIB = 1024 * 1024
ROUNDS = 500
MOST_SECONDS = 90.0

pytestmark = pytest.mark.e2e

COMMANDS = f"""
import signal, threading
from sluice_client.cli.signals import run_until_signalled

signal.signal(signal.SIGINT, signal.SIG_IGN)
print("ready", flush=True)
for _ in range({ROUNDS}):
    stop = threading.Event()

    def command():
        while not stop.wait(0.00001):  # inside the event's lock as often as can be
            pass
        return 4

    assert run_until_signalled(command, stop.set) == 4
"""


def test_no_signal_can_hang_the_command() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", COMMANDS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    deadline = time.monotonic() + MOST_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        process.send_signal(signal.SIGINT)
        time.sleep(0.0002)
    with suppress(ProcessLookupError):
        process.kill()
    ended = finish(process)
    assert (ended.code, ended.err) == (0, "")


def test_a_burst_of_signals_ends_an_upload_once_and_it_can_be_resumed(
    line: BadLine, slow_command: CommandLine, make_file: MakeFile, has_ended: Event
) -> None:
    path = make_file(size=10_000_000)
    line.bytes_per_second = 4_000_000
    line.on_body = hold(lambda: line.sent("/upload?") > 3 * MIB, has_ended)
    process = slow_command.start("upload", path, CHUNK_BYTES=MIB)
    wait_until(lambda: line.sent("/upload?") > 3 * MIB, "some of it is sent")
    for _ in range(1000):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            process.send_signal(number)
        if process.poll() is not None:
            break
        time.sleep(0.0005)
    ended = finish(process)
    has_ended.set()
    assert ended.code == 4
    assert ended.err.count("Stopped") == 1
    assert f"To continue:\n  {SLUICE} upload {path}" in ended.err
    line.heal()
    again = slow_command.run("upload", path, "--json", CHUNK_BYTES=MIB)
    assert again.code == 0
    assert again.documents[0]["sent"] < path.stat().st_size


@pytest.mark.parametrize("is_open", [True, False])
def test_a_signal_cancels_the_upload_of_standard_input(
    line: BadLine, slow_command: CommandLine, is_open: bool
) -> None:
    """Ctrl-C ends the program at the other end of the pipe too, sometimes first."""
    output, given = os.pipe()
    process = slow_command.start("upload", "-", "--name", "cut.mkv", stdin=output)
    os.close(output)
    os.write(given, b"the beginning")
    wait_until(lambda: any(r.path == "/tus/" for r in line.requests), "the upload has begun")
    if not is_open:
        os.close(given)
    process.send_signal(signal.SIGINT)
    ended = finish(process)
    if is_open:
        os.close(given)
    assert (ended.code, ended.err) == (4, "Stopped.\n")
    assert line.requests[-1].method == "DELETE"
    assert slow_command.run("ls", "--search", "cut.mkv").out == ""
