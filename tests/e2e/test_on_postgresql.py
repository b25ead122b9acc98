"""A server whose records are on PostgreSQL: outages, and the way there and back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Event, Semaphore

import pytest
import requests

from tests.live_server import NO_FFMPEG, ROOT, Server, running_server
from tests.postgresql import Postgresql, postgresql
from tests.run.admin.running import run_command
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

TUS = {"Tus-Resumable": "1.0.0"}
MIB = 1024**2

_numbers = count()


@pytest.fixture(scope="module")
def database_server() -> Iterator[Postgresql]:
    with postgresql(is_safe=True) as server:
        yield server


@pytest.fixture
def url(database_server: Postgresql) -> str:
    """Of an empty database."""
    return database_server.create(f"records {next(_numbers)}")


@pytest.fixture(scope="module")
def server(
    database_server: Postgresql, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A server of this file; tests stop its database, and start it again."""
    options = {"SLUICE_DATABASE_URL": database_server.create("records"), **NO_FFMPEG}
    with running_server(tmp_path_factory.mktemp("server"), **options) as server:
        yield server


class Film:
    """An upload by tus of three chunks."""

    def __init__(self, server: Server) -> None:
        self.content = os.urandom(3 * MIB)
        headers = {**TUS, "Upload-Length": str(len(self.content))}
        created = server.post("/tus/", headers=headers)
        assert created.status_code == 201
        self.id = created.headers["Location"].rpartition("/")[2]

    def send(self, server: Server) -> requests.Response:
        """The next chunk."""
        return self.send_from(server, self.offset(server))

    def send_from(self, server: Server, offset: int) -> requests.Response:
        """The chunk that begins there."""
        headers = {**TUS, "Upload-Offset": str(offset)}
        headers["Content-Type"] = "application/offset+octet-stream"
        body = self.content[offset : offset + MIB]
        return server.patch(f"/tus/{self.id}", headers=headers, data=body)

    def head(self, server: Server) -> requests.Response:
        return requests.head(f"{server.url}/tus/{self.id}", headers=TUS, timeout=60)

    def offset(self, server: Server) -> int:
        return int(self.head(server).headers["Upload-Offset"])


def run(server: Server, *module: str) -> subprocess.CompletedProcess[str]:
    """A Python module with its arguments and the server's settings, until it ends."""
    return subprocess.run(
        [sys.executable, "-m", *module],
        cwd=ROOT,
        env=server.environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_upload_goes_on_after_the_database_was_away(
    server: Server, database_server: Postgresql
) -> None:
    film = Film(server)
    assert film.send(server).status_code == 204
    database_server.stop()
    try:
        for worker in server.web_workers():  # Others take their place, which have no database.
            worker.kill()
        refused = server.post("/tus/", headers={**TUS, "Upload-Length": "5"})
        assert refused.status_code == 503
        assert int(refused.headers["Retry-After"]) > 0
        assert server.get("/readyz").status_code == 503
        assert server.get("/healthz").status_code == 200
    finally:
        database_server.start()
    assert film.offset(server) == MIB
    assert [film.send(server).status_code for _ in range(2)] == [204, 204]
    assert server.get(f"/media/{film.id}").content == film.content


def test_nothing_acknowledged_is_lost_when_the_database_crashes_amid_uploads(
    server: Server, database_server: Postgresql
) -> None:
    films = [Film(server) for _ in range(4)]
    is_waiting, is_crashing = Semaphore(0), Event()

    def send(film: Film) -> list[int]:
        """Everything, chunk by chunk; the statuses."""
        statuses, acknowledged = [], 0
        while acknowledged < len(film.content):
            found = film.head(server)
            if found.status_code == 200:
                offset = int(found.headers["Upload-Offset"])
                assert offset >= acknowledged
                if offset == len(film.content) - MIB and not is_crashing.is_set():
                    is_waiting.release()
                    is_crashing.wait(120)
                found = film.send_from(server, offset)
            statuses.append(found.status_code)
            if found.status_code == 204:
                acknowledged = int(found.headers["Upload-Offset"])
        return statuses

    with ThreadPoolExecutor(len(films)) as threads:
        sent = [threads.submit(send, film) for film in films]
        assert all(is_waiting.acquire(timeout=120) for _ in films)
        is_crashing.set()  # All send their last chunks now.
        database_server.stop(signal.SIGQUIT)
        wait_until(lambda: server.get("/readyz").status_code == 503, "the server has noticed")
        database_server.start()
        statuses = {status for each in sent for status in each.result()}
    assert statuses <= {204, 503}
    for film in films:
        assert server.get(f"/media/{film.id}").content == film.content


def test_a_restart_of_the_database_between_chunks_goes_unnoticed(
    server: Server, database_server: Postgresql
) -> None:
    film = Film(server)
    for _ in range(3):
        database_server.stop()
        database_server.start()
        assert film.send(server).status_code == 204
    assert server.get(f"/media/{film.id}").content == film.content


def test_a_server_without_its_database_says_so_in_one_line_and_not_the_password(
    tmp_path: Path,
) -> None:
    url = f"postgresql://sluice:geheim@/films?host={tmp_path}"
    server = Server(tmp_path, {"SLUICE_DATABASE_URL": url})
    ended = run(server, server.module)
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert "database" in ended.stderr
    assert str(tmp_path) in ended.stderr
    assert "geheim" not in ended.stderr


def test_records_do_not_move_while_a_node_elsewhere_writes_them(
    server: Server, tmp_path: Path
) -> None:
    film = Film(server)
    wait_until(lambda: server.get("/api/status").json()["nodes"], "its lease has begun")
    elsewhere = Server(tmp_path, server.options)
    copied = run_command(elsewhere, "database", "copy", "file")
    assert (copied.exit_code, "Nodes are running" in copied.stderr) == (1, True)
    assert film.send(server).status_code == 204


def test_a_backup_of_it_starts_without_it(server: Server, tmp_path: Path) -> None:
    film = Film(server)
    for _ in range(3):
        film.send(server)
    made = run_command(server, "backup", str(tmp_path / "backup"))
    assert made.exit_code == 0, made.stderr
    options = {"SLUICE_DATA_DIR": str(tmp_path / "backup"), **NO_FFMPEG}
    with running_server(tmp_path, **options) as restored:
        assert restored.get(f"/media/{film.id}").content == film.content


def test_without_a_bucket_a_second_node_does_not_start(server: Server, tmp_path: Path) -> None:
    second = Server(tmp_path, server.options)
    wait_until(lambda: server.get("/api/status").json()["nodes"], "the first has reported itself")
    refused = run(second, second.module)
    assert refused.returncode == 2
    [line] = refused.stderr.splitlines()
    assert f":{server.port} is running with the same database" in line


@pytest.mark.long
def test_a_library_moves_from_postgresql_to_a_file_and_back(server: Server, url: str) -> None:
    """The last test: the server has another database afterwards."""
    film, begun = Film(server), Film(server)
    for _ in range(3):
        film.send(server)
    begun.send(server)
    assert "Stop it" in run_command(server, "database", "copy", "file").stderr
    for there, options in (("file", {}), (url, {"SLUICE_DATABASE_URL": url})):
        server.stop()
        copied = run(server, "flask", "--app", "wsgi", "database", "copy", there)
        assert copied.returncode == 0, copied.stderr
        assert "records copied and compared" in copied.stdout
        assert "moved to another database" in run_command(server, "sweep").stderr
        server.options = {**options, **NO_FFMPEG}
        server.start()
        assert server.get(f"/media/{film.id}").content == film.content
        assert begun.send(server).status_code == 204
    assert server.get(f"/media/{begun.id}").content == begun.content
