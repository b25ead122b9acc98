"""The command line killed midway, and run again."""

from __future__ import annotations

import hashlib
import json
import signal
from pathlib import Path
from threading import Event

import pytest

from tests.client.bad_line import BadLine, hold
from tests.client.conftest import MakeFile
from tests.client.running import SLUICE, CommandLine, finish
from tests.dropzone_client import stored_sha256
from tests.live_server import Server
from tests.waiting import wait_until

MIB = 1024 * 1024

pytestmark = pytest.mark.e2e


def wait_until_stored(line: BadLine) -> None:
    """Wait until the server has recorded what was on its way to it."""
    wait_until(lambda: line.is_quiet, "what was on its way has arrived")


def upload_of(server: Server, size: int) -> dict[str, object]:
    """The unfinished upload of that size."""
    found = [u for u in server.get("/api/uploads").json()["uploads"] if u["length"] == size]
    assert len(found) == 1
    upload: dict[str, object] = found[0]
    return upload


def missing_bytes(server: Server, size: int) -> int:
    missing: list[list[int]] = upload_of(server, size)["missing"]  # type: ignore[assignment]
    return sum(end - start for start, end in missing)


@pytest.mark.parametrize("state", ["kept", "damaged", "lost"])
def test_a_killed_upload_resumes_without_resending_acknowledged_bytes(
    server: Server,
    line: BadLine,
    slow_command: CommandLine,
    make_file: MakeFile,
    has_ended: Event,
    state: str,
) -> None:
    size = 10_000_000 + len(state)
    path = make_file(size=size)
    line.bytes_per_second = 6_000_000
    line.on_body = hold(lambda: line.sent("/upload?") > 3 * MIB, has_ended)
    process = slow_command.start("upload", path, CHUNK_BYTES=MIB)
    wait_until(lambda: line.sent("/upload?") > 3 * MIB, "some of it is sent")
    process.send_signal(signal.SIGKILL)
    assert finish(process).code == -signal.SIGKILL
    has_ended.set()
    wait_until_stored(line)
    missing = missing_bytes(server, size)
    assert 0 < missing < size
    spoil(slow_command.home / "state" / "sluice" / "uploads.sqlite3", state)
    line.heal()
    # With more connections, a chunk that a busy machine delays would be sent twice.
    again = slow_command.run("upload", path, "--json", CHUNK_BYTES=MIB, PARALLEL=1)
    assert again.code == 0, again.err
    assert line.sent("/upload?") == missing == again.documents[0]["sent"]
    assert (
        stored_sha256(server, again.documents[0]["id"])
        == hashlib.sha256(path.read_bytes()).hexdigest()
    )


def spoil(records: Path, state: str) -> None:
    assert records.is_file()
    if state == "damaged":
        records.write_bytes(records.read_bytes()[:40] + b"\xff\x00")
    elif state == "lost":
        records.unlink()


def test_a_killed_fetch_resumes_without_refetching_recorded_bytes(
    line: BadLine, slow_command: CommandLine, make_file: MakeFile, home: Path, has_ended: Event
) -> None:
    size = 20_000_000
    path = make_file(size=size)
    stored = slow_command.run("upload", path, "--json").documents[0]
    target = home / "copy.mp4"

    def records() -> list[Path]:
        return list(home.glob("copy.mp4.*.part.json"))

    line.heal()
    line.bytes_per_second = 2_000_000
    line.on_answer = hold(lambda: bool(records()), has_ended)
    process = slow_command.start("fetch", stored["id"], "-o", target)
    wait_until(lambda: bool(records()), "the first record")
    process.send_signal(signal.SIGKILL)
    finish(process)
    has_ended.set()
    (record,) = records()
    kept = sum(end - start for start, end in json.loads(record.read_text())["done"])
    assert 0 < kept < size
    assert not target.exists()
    line.heal()
    again = slow_command.run("fetch", stored["id"], "-o", target, "--json")
    assert again.code == 0, again.err
    assert again.documents[0]["resumed"] == kept
    assert line.received() == size - kept
    assert target.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_an_upload_that_says_how_to_resume(
    line: BadLine,
    slow_command: CommandLine,
    make_file: MakeFile,
    has_ended: Event,
    number: signal.Signals,
) -> None:
    path = make_file(size=10_000_000 + number)
    line.bytes_per_second = 4_000_000
    line.on_body = hold(lambda: line.sent("/upload?") > 3 * MIB, has_ended)
    process = slow_command.start("upload", path, CHUNK_BYTES=MIB)
    wait_until(lambda: line.sent("/upload?") > 3 * MIB, "some of it is sent")
    process.send_signal(number)
    ended = finish(process)
    has_ended.set()
    assert ended.code == 4
    assert f"What was transferred is kept. To continue:\n  {SLUICE} upload {path}" in ended.err
    unfinished = slow_command.run("status", "--json").documents
    assert [upload["path"] for upload in unfinished] == [str(path)]
    line.heal()
    # With more connections, a chunk that a busy machine delays would be sent twice.
    again = slow_command.run("upload", path, "--json", CHUNK_BYTES=MIB, PARALLEL=1)
    assert again.code == 0
    assert again.documents[0]["sent"] < path.stat().st_size
    assert slow_command.run("status").out == ""


def test_a_signal_ends_a_fetch_that_says_how_to_resume(
    line: BadLine, slow_command: CommandLine, make_file: MakeFile, home: Path, has_ended: Event
) -> None:
    path = make_file(size=12_000_000)
    stored = slow_command.run("upload", path, "--json").documents[0]
    line.heal()
    line.bytes_per_second = 2_000_000
    line.on_answer = hold(lambda: line.received() > 2 * MIB, has_ended)
    process = slow_command.start("fetch", stored["id"], "-o", "copy.mp4")
    wait_until(lambda: line.received() > 2 * MIB, "some of it has come")
    process.send_signal(signal.SIGINT)
    ended = finish(process)
    has_ended.set()
    assert ended.code == 4
    assert f"fetch {stored['id']} -o copy.mp4" in ended.err
    line.heal()
    again = slow_command.run("fetch", stored["id"], "-o", "copy.mp4", "--json")
    assert again.documents[0]["resumed"] > 0
    assert (home / "copy.mp4").read_bytes() == path.read_bytes()
