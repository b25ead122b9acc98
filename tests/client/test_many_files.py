"""Folders: small files in bundles, the others in chunks, each stored once."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.client.bad_line import HOLD_SECONDS, BadLine, Line, Request, sometimes
from tests.client.conftest import MakeFile
from tests.client.running import CommandLine, finish
from tests.dropzone_client import crc32c_of, forged, stored_sha256
from tests.live_server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e


def make_folder(make_file: MakeFile, name: str, count: int, size: int = 20_000) -> dict[str, str]:
    """A folder of small files in subfolders; their names on the server, and CRC32C."""
    made = {}
    for number in range(count):
        relative = f"{name}/day {number % 3}/clip {number}.mov"
        path = make_file(relative, size + number)
        made[relative] = crc32c_of(path.read_bytes())
    return made


def videos_under(server: Server, name: str) -> Iterator[dict[str, Any]]:
    """All videos of a folder."""
    query = "?limit=200"
    while query:
        page = server.get(f"/api/videos{query}").json()
        yield from (v for v in page["videos"] if v["filename"].startswith(f"{name}/"))
        query = f"?limit=200&cursor={page['next']}" if page["next"] else ""


def stored_under(server: Server, name: str) -> list[tuple[str, str]]:
    """Names and CRC32C of the videos of a folder."""
    return sorted((video["filename"], video["crc32c"]) for video in videos_under(server, name))


def ids_under(server: Server, name: str) -> set[str]:
    """Ids of the videos of a folder."""
    return {video["id"] for video in videos_under(server, name)}


def test_three_hundred_small_files_go_in_a_few_requests(
    server: Server, line: BadLine, slow_command: CommandLine, make_file: MakeFile, home: Path
) -> None:
    files = make_folder(make_file, "many", 300)
    done = slow_command.run("upload", home / "many", "--json")
    assert done.code == 0, done.err
    assert stored_under(server, "many") == sorted(files.items())
    assert {d["name"]: d["crc32c"] for d in done.documents} == files
    assert 0 < sum(request.path == "/batch" for request in line.requests) <= 10
    assert len(line.requests) <= 20
    assert line.sent("/upload?") == 0


def test_an_uploaded_folder_is_not_sent_again(
    server: Server, line: BadLine, slow_command: CommandLine, make_file: MakeFile, home: Path
) -> None:
    files = make_folder(make_file, "twice", 20)
    slow_command.run("upload", home / "twice")
    make_file("twice/day 0/new.mov", 5_000)
    line.heal()
    line.requests.clear()
    again = slow_command.run("upload", home / "twice", "--json")
    assert again.code == 0, again.err
    assert sum(document["sent"] for document in again.documents) == 5_000
    assert len(stored_under(server, "twice")) == len(files) + 1
    slow_command.run("upload", home / "twice")  # The server may not have the last SHA-256 before.
    line.requests.clear()
    assert slow_command.run("upload", home / "twice").code == 0
    assert [request.method for request in line.requests] == ["GET"]


def test_files_that_are_gone_from_the_server_are_sent_again(
    server: Server, command: CommandLine, make_file: MakeFile, home: Path
) -> None:
    files = make_folder(make_file, "gone", 5)
    command.run("upload", home / "gone")
    for video in list(videos_under(server, "gone"))[:2]:
        server.delete(f"/api/videos/{video['id']}")
    again = command.run("upload", home / "gone", "--json")
    assert again.code == 0, again.err
    assert sum(document["sent"] > 0 for document in again.documents) == 2
    assert stored_under(server, "gone") == sorted(files.items())


def test_interrupted_bundles_store_each_file_once(
    server: Server, line: BadLine, slow_command: CommandLine, make_file: MakeFile, home: Path
) -> None:
    files = make_folder(make_file, "cut", 60, size=100_000)
    line.on_body = sometimes(Line.cut, after=2_000_000, times=2, path="/batch")
    done = slow_command.run("upload", home / "cut", "--json")
    assert done.code == 0, done.err
    assert stored_under(server, "cut") == sorted(files.items())
    assert len(done.documents) == 60


def test_a_bundle_whose_answer_is_lost_stores_each_file_once(
    server: Server, line: BadLine, slow_command: CommandLine, make_file: MakeFile, home: Path
) -> None:
    files = make_folder(make_file, "lost", 10)
    line.on_answer = sometimes(Line.cut, after=0, times=1, path="/batch")
    done = slow_command.run("upload", home / "lost", "--json")
    assert done.code == 0, done.err
    assert stored_under(server, "lost") == sorted(files.items())
    assert sum(request.path == "/batch" for request in line.requests) == 2
    assert {d["name"]: d["crc32c"] for d in done.documents} == files
    assert {d["id"] for d in done.documents} == ids_under(server, "lost")


def test_files_that_the_server_cannot_take_yet_are_sent_again(
    server: Server, line: BadLine, slow_command: CommandLine, make_file: MakeFile, home: Path
) -> None:
    """As it says while its database is away."""
    files = make_folder(make_file, "later", 10)
    error = {"status": 503, "code": "server_busy", "detail": "Later.", "retryable": True}
    answer = json.dumps({"files": [{"error": error}] * len(files)})
    kind = "Content-Type: application/json"
    line.on_body = sometimes(
        lambda broken: broken.answer("200 OK", kind, body=answer), after=0, times=1, path="/batch"
    )
    done = slow_command.run("upload", home / "later", "--json")
    assert done.code == 0, done.err
    assert stored_under(server, "later") == sorted(files.items())
    assert sum(request.path == "/batch" for request in line.requests) == 2


def test_a_run_that_is_killed_before_the_answer_stores_each_file_once(
    server: Server, line: BadLine, slow_command: CommandLine, make_file: MakeFile, home: Path
) -> None:
    files = make_folder(make_file, "untold", 10)
    line.on_answer = sometimes(Line.stall, after=0, times=1, path="/batch")
    process = slow_command.start("upload", home / "untold", "--json")
    wait_until(lambda: any(r.path == "/batch" and r.status for r in line.requests), "an answer")
    process.send_signal(signal.SIGKILL)
    finish(process)
    assert stored_under(server, "untold") == sorted(files.items())
    line.heal()
    again = slow_command.run("upload", home / "untold", "--json")
    assert again.code == 0, again.err
    assert line.sent("/batch") > 0
    assert stored_under(server, "untold") == sorted(files.items())
    assert {d["id"] for d in again.documents} == ids_under(server, "untold")


def test_a_folder_is_recognised_without_local_records(
    server: Server, command: CommandLine, make_file: MakeFile, home: Path
) -> None:
    files = make_folder(make_file, "forgotten", 10)
    first = command.run("upload", home / "forgotten", "--json")
    shutil.rmtree(home / "state")
    again = command.run("upload", home / "forgotten", "--json")
    assert again.code == 0, again.err
    assert {d["id"] for d in again.documents} == {d["id"] for d in first.documents}
    assert stored_under(server, "forgotten") == sorted(files.items())


def test_copies_in_different_folders_are_all_kept(
    server: Server, line: BadLine, slow_command: CommandLine, make_file: MakeFile, home: Path
) -> None:
    original = make_file("copies/monday/same.mov", 20_000)
    for folder in ("copies/tuesday", "elsewhere"):
        (home / folder).mkdir()
        shutil.copy2(original, home / folder)
    named = [original, home / "elsewhere" / "same.mov"]
    line.on_answer = sometimes(Line.cut, after=0, times=1, path="/batch")
    for_folder = slow_command.run("upload", home / "copies", "--json")
    line.on_answer = sometimes(Line.cut, after=0, times=1, path="/batch")
    by_name = slow_command.run("upload", *named, "--json")
    line.heal()
    again = slow_command.run("upload", *named, "--json")
    names = [name for name, _ in stored_under(server, "copies")]
    assert names == ["copies/monday/same.mov", "copies/tuesday/same.mov"]
    documents = [*for_folder.documents, *by_name.documents]
    assert len({document["id"] for document in documents}) == 4
    assert {d["id"] for d in again.documents} == {d["id"] for d in by_name.documents}
    assert line.sent("/batch") == 0


def test_a_file_that_only_resembles_a_stored_one_is_stored_too(
    server: Server, command: CommandLine, make_file: MakeFile, home: Path
) -> None:
    changed, other = make_file("alike/a.mov", 4_000_000), make_file("alike/b.mov", 1000)
    first = command.run("upload", home / "alike", "--json")
    facts = changed.stat()
    with changed.open("r+b") as file:
        file.seek(300_000)  # Between the bytes that the fingerprint samples.
        file.write(b"other bytes")
    os.utime(changed, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    shutil.rmtree(home / "state")
    second = command.run("upload", home / "alike", "--json")
    assert second.code == 0, second.err
    digests = {d["name"]: d["crc32c"] for d in second.documents}
    assert digests["alike/a.mov"] == crc32c_of(changed.read_bytes())
    assert digests["alike/b.mov"] == crc32c_of(other.read_bytes())
    stored = [(d["name"], d["crc32c"]) for d in first.documents]
    assert stored_under(server, "alike") == sorted({*stored, *digests.items()})


@pytest.mark.parametrize("has_records", [True, False])
def test_a_file_with_the_fingerprint_and_crc32c_of_a_stored_one_is_stored_too(
    server: Server,
    command: CommandLine,
    make_file: MakeFile,
    home: Path,
    *,
    has_records: bool,
) -> None:
    """Anybody who may upload can have stored the other one."""
    name = f"forgery {has_records}"
    path = make_file(f"{name}/a.mov", 4_000_000)
    make_file(f"{name}/b.mov", 1000)
    content, facts = path.read_bytes(), path.stat()
    path.write_bytes(forged(content, 300_000))  # Between the bytes that the fingerprint samples.
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    first = command.run("upload", home / name, "--json")
    path.write_bytes(content)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    if not has_records:
        shutil.rmtree(home / "state")
    second = command.run("upload", home / name, "--json")
    assert second.code == 0, second.err
    (before,) = (d for d in first.documents if d["name"] == f"{name}/a.mov")
    (after,) = (d for d in second.documents if d["name"] == f"{name}/a.mov")
    assert before["crc32c"] == crc32c_of(content)
    assert after["id"] != before["id"]
    assert stored_sha256(server, after["id"]) == hashlib.sha256(content).hexdigest()


def test_bundles_shrink_below_a_proxys_limit(
    server: Server, line: BadLine, slow_command: CommandLine, make_file: MakeFile, home: Path
) -> None:
    def refuse_large(refusing: Line, request: Request) -> None:
        if request.length > 300_000:
            refusing.answer("413 Request Entity Too Large", "Content-Type: text/html")

    files = make_folder(make_file, "limit", 12, size=100_000)
    large = make_file("limit/large.mov", 400_000)
    files["limit/large.mov"] = crc32c_of(large.read_bytes())
    line.on_head = refuse_large
    done = slow_command.run("upload", home / "limit", CHUNK_BYTES=262_144)
    assert done.code == 0, done.err
    assert stored_under(server, "limit") == sorted(files.items())


def test_a_killed_folder_upload_resumes(
    server: Server,
    line: BadLine,
    slow_command: CommandLine,
    make_file: MakeFile,
    home: Path,
    has_ended: Event,
) -> None:
    def is_one_stored() -> bool:
        return any(request.path == "/batch" and request.status for request in line.requests)

    def lose_the_second(line: Line, request: Request) -> None:
        if request.path == "/batch" and is_one_stored():
            has_ended.wait(HOLD_SECONDS)
            line.cut()

    files = make_folder(make_file, "killed", 130, size=10_000)
    line.on_head = lose_the_second
    process = slow_command.start("upload", home / "killed", "--json", PARALLEL=1)
    wait_until(is_one_stored, "a bundle")
    process.send_signal(signal.SIGKILL)
    finish(process)
    has_ended.set()
    wait_until(lambda: line.is_quiet, "what was on its way has arrived")
    stored = len(stored_under(server, "killed"))
    line.heal()
    again = slow_command.run("upload", home / "killed", "--json")
    assert again.code == 0, again.err
    assert 0 < stored < len(files)
    assert stored_under(server, "killed") == sorted(files.items())
    assert {document["name"] for document in again.documents} == set(files)


def test_everything_in_a_folder_is_sent_or_named(
    server: Server, command: CommandLine, make_file: MakeFile, home: Path
) -> None:
    make_file("odd/a b/same.mov", 1000)
    make_file("odd/c/same.mov", 1000)
    make_file("odd/empty.mov", 0)
    make_file('odd/qu"ote 100%;é.mov', 1000)
    (home / "odd" / "to a file.mov").symlink_to(make_file("elsewhere.mov", 1000))
    (home / "odd" / "round").symlink_to(home / "odd")
    (home / "odd" / "broken.mov").symlink_to(home / "nothing")
    (home / "odd" / "c" / "latest.mov").symlink_to("same.mov")
    os.mkfifo(home / "odd" / "pipe")
    (home / "odd" / os.fsdecode(b"latin\xe9.mov")).write_bytes(b"old name")
    done = command.run("upload", home / "odd", "--json")
    assert [name for name, _ in stored_under(server, "odd")] == [
        "odd/a b/same.mov",
        "odd/c/same.mov",
        "odd/empty.mov",
        "odd/latin\ufffd.mov",
        'odd/qu"ote 100%;é.mov',
        "odd/to a file.mov",
    ]
    assert done.code == 1
    failed = [d["error"]["detail"] for d in done.documents if "error" in d]
    assert failed == [f"{home}/odd/broken.mov: is a broken link"]
    assert "pipe: skipped, is a pipe" in done.err
    assert "round: skipped, is a link to a folder" in done.err
    assert f"latest.mov: skipped, is the same file as {home}/odd/c/same.mov" in done.err
