"""The background worker: expiry by last activity, and what crashes leave behind."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from tests.dropzone_client import ChunkedFile, random_bytes, send_all, send_chunk
from tests.live_server import NO_FFMPEG, Server, running_server
from tests.waiting import wait_until

StartServer = Callable[..., Server]


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that these tests kill and start again."""
    with running_server(tmp_path_factory.mktemp("mortal"), **NO_FFMPEG) as server:
        yield server


def test_an_idle_upload_expires_and_others_do_not(start_server: StartServer) -> None:
    often = {"SLUICE_TEST_CONSTANTS": "sweep_seconds=0.2"}
    server = start_server(SLUICE_EXPIRY_SECONDS="3600", **often)
    finished = send_all(server, ChunkedFile(random_bytes(2000), 1000))
    idle = server.post("/api/uploads", json={"name": "idle.mp4", "size": 1000}).json()["id"]
    file = ChunkedFile(random_bytes(3000), 1000)
    active = send_chunk(server, file, 0).json()["id"]
    be_silent(server, seconds=2000)
    assert send_chunk(server, file, 1).status_code == 200
    be_silent(server, seconds=2000)
    wait_until(
        lambda: server.get(f"/api/uploads/{idle}").status_code == 410, "the idle one expires"
    )
    # The record changes before the file goes, so that a crash in between only leaves an orphan.
    wait_until(lambda: not (server.staging / idle).exists(), "its file is removed")
    assert server.get(f"/api/uploads/{active}").json()["state"] == "receiving"
    be_silent(server, seconds=2000)
    wait_until(
        lambda: server.get(f"/api/uploads/{active}").status_code == 410,
        "the other one expires when it is left alone",
    )
    wait_until(lambda: list(server.staging.iterdir()) == [], "no file is left")
    assert server.get(finished["media"]).status_code == 200


def test_a_restart_leaves_no_orphan_in_the_staging_folder(mortal: Server) -> None:
    server = mortal
    kept = server.post("/api/uploads", json={"name": "kept.mp4", "size": 1000}).json()["id"]
    ended = server.post("/api/uploads", json={"name": "ended.mp4", "size": 1000}).json()["id"]
    server.delete(f"/api/uploads/{ended}")
    server.stop(signal.SIGKILL)
    # As if the server had been killed between the record and the file of a cancellation.
    (server.staging / ended).write_bytes(bytes(1000))
    foreign = server.staging / ("f" * 32)
    foreign.write_bytes(b"another server's upload")
    forgotten = server.staging / ("e" * 32)
    forgotten.write_bytes(b"an upload without a record, untouched for long")
    os.utime(forgotten, (0, 0))
    server.start()
    wait_until(lambda: not (server.staging / ended).exists(), "the orphan is removed")
    wait_until(lambda: not forgotten.exists(), "the forgotten file is removed")
    assert (server.staging / kept).exists()
    assert foreign.exists()


def test_a_publication_cut_short_by_a_crash_is_finished(mortal: Server) -> None:
    server = mortal
    file = ChunkedFile(random_bytes(2000), 1000)
    upload_id = send_all(server, file)["id"]
    server.stop(signal.SIGKILL)
    # The state that a worker killed between the last byte and the rename leaves.
    _set_state(server, upload_id, "verifying")
    (server.library / upload_id).rename(server.staging / upload_id)
    server.start()
    wait_until(
        lambda: server.get(f"/api/uploads/{upload_id}").json()["state"] == "complete",
        "the file is published",
    )
    assert server.get(f"/media/{upload_id}").content == file.content


def be_silent(server: Server, *, seconds: int) -> None:
    """As if nothing had come of unfinished uploads for that much longer."""
    with closing(sqlite3.connect(server.database, timeout=60)) as database, database:
        database.execute(
            "UPDATE uploads SET active_at = active_at - ? WHERE state = 'receiving'",
            (seconds * 1_000_000,),
        )


def _set_state(server: Server, upload_id: str, state: str) -> None:
    # As a context manager, a connection ends its transaction and stays open.
    with closing(sqlite3.connect(server.library.parent / "sluice.db")) as database, database:
        database.execute(
            "UPDATE uploads SET state = ?, active_at = 0 WHERE id = ?", (state, upload_id)
        )


def test_an_upload_that_lost_its_bytes_expires_and_can_start_over(server: Server) -> None:
    made = {"name": "a.mp4", "size": 2000, "fingerprint": "lost"}
    file = ChunkedFile(random_bytes(2000), 1000)
    file.key = server.post("/api/uploads", json=made).json()["id"]
    send_chunk(server, file, 0)
    (server.staging / file.key).unlink()
    response = send_chunk(server, file, 1)
    assert (response.status_code, response.json()["code"]) == (410, "upload_gone")
    again = server.post("/api/uploads", json=made)
    assert again.status_code == 201
    file.key = again.json()["id"]
    assert send_all(server, file)["complete"] is True
