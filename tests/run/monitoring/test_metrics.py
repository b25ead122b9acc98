"""/metrics after real uploads, across several processes that start and end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import requests

from scripts.fleet.programs import free_port
from tests.dropzone_client import ChunkedFile, random_bytes, send_all
from tests.live_server import NO_FFMPEG, ROOT, Server, running_server
from tests.long_tests import long
from tests.run.monitoring.scrape import Change, scrape
from tests.waiting import wait_until

CHUNK = 100_000
TUS = {"Tus-Resumable": "1.0.0"}
PATCH = {**TUS, "Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with three workers, shared by the tests, which only compare changes."""
    folder = tmp_path_factory.mktemp("server")
    with running_server(folder, SLUICE_WORKERS="3", **NO_FFMPEG) as running:
        yield running


def upload_to_each_worker(server: Server) -> int:
    """Upload over new connections until every worker has received some; the number of files."""
    count = 0
    while count < 6 or len(counting(server)) < 3:
        with ThreadPoolExecutor(6) as pool:
            files = [ChunkedFile(random_bytes(3 * CHUNK, count + n), CHUNK) for n in range(6)]
            list(pool.map(lambda file: send_all(server, file), files))
        count += 6
        assert count < 600, "some worker never gets a request"
    return count


def counting(server: Server) -> list[Path]:
    """Files of the workers that had an upload, or whose predecessor did."""
    files = metrics_folder(server).glob("histogram_web*.db")
    return [path for path in files if b'"upload"' in path.read_bytes()]


def metrics_folder(server: Server) -> Path:
    """The folder of the files that the workers hold open."""
    found: set[Path] = set()

    def look() -> set[Path]:
        for worker in server.web_workers():
            paths = (Path(file.path) for file in worker.open_files())
            found.update(path.parent for path in paths if path.name.startswith("counter_"))
        return found

    wait_until(look, "a worker counts")
    (folder,) = found
    return folder


def tus_upload(server: Server, length: int) -> str:
    """The URL of a new upload."""
    response = server.post("/tus/", headers={**TUS, "Upload-Length": str(length)})
    return server.url + "/tus/" + response.headers["Location"].rsplit("/", 1)[1]


def test_the_counts_of_all_workers_add_up(server: Server) -> None:
    counts = Change(server)
    files = upload_to_each_worker(server)
    posts = {"protocol": "upload", "method": "POST", "status": "2xx"}
    assert counts.total("sluice_requests_total", **posts) == 3 * files
    assert counts.total("sluice_request_seconds_count", protocol="upload") == 3 * files
    assert counts.total("sluice_stage_seconds_count", stage="receive") == 3 * files
    assert counts.total("sluice_stage_seconds_count", stage="publish") == files
    received = counts.total("sluice_received_bytes_total", protocol="upload")
    assert 3 * CHUNK * files < received < 1.1 * 3 * CHUNK * files
    events = counts.by("event", "sluice_uploads_total")
    assert events == {"created": files, "complete": files}
    under_way = scrape(server).by("state", "sluice_uploads_under_way")
    assert under_way == {"receiving": 0, "held": 0, "verifying": 0}


def test_sent_bytes_are_counted(server: Server) -> None:
    media, counts = (
        send_all(server, ChunkedFile(random_bytes(CHUNK), CHUNK))["media"],
        Change(server),
    )
    server.get(media)
    server.get(media, headers={"Range": "bytes=100-299"})
    requests.head(server.url + media, timeout=60)
    wait_until(
        lambda: counts.total("sluice_sent_bytes_total") == CHUNK + 200,
        "exactly the bytes that went out are counted",
    )
    assert scrape(server).total("sluice_downloads_in_progress") == 0


def test_a_viewer_who_leaves_counts_for_less_than_the_file(server: Server) -> None:
    length = 64_000_000
    media, counts = send_all(server, ChunkedFile(bytes(length), length))["media"], Change(server)
    with requests.get(server.url + media, stream=True, timeout=60) as download:
        next(download.iter_content(1000))
        assert scrape(server).total("sluice_downloads_in_progress") == 1
    wait_until(lambda: counts.total("sluice_sent_bytes_total"), "it is noticed to be over")
    assert 1000 <= counts.total("sluice_sent_bytes_total") < length
    assert scrape(server).total("sluice_downloads_in_progress") == 0


def test_errors_are_counted_by_code_and_strange_requests_get_no_labels_of_their_own(
    server: Server,
) -> None:
    counts = Change(server)
    server.get(f"/api/uploads/{'0' * 32}")
    for number in range(3):
        server.get(f"/nowhere/{number}")
        requests.request(f"BREW{number}", server.url + "/upload", timeout=60)
    codes = counts.by("code", "sluice_errors_total")
    assert codes == {"upload_not_found": 1, "not_found": 3, "method_not_allowed": 3}
    assert counts.by("method", "sluice_requests_total").keys() == {"GET", "other"}
    assert counts.by("protocol", "sluice_requests_total").keys() <= {
        "api_uploads",
        "upload",
        "metrics",
        "other",
    }


class SlowBody:
    """A body that waits midway until it is released."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.is_released = False

    def __iter__(self) -> SlowBody:
        return self

    def __next__(self) -> bytes:
        if not self.length:
            raise StopIteration
        while self.length <= CHUNK and not self.is_released:
            time.sleep(0.02)
        self.length -= CHUNK
        return bytes(CHUNK)


def test_an_upload_is_seen_while_it_runs(server: Server) -> None:
    url, body, counts = tus_upload(server, 20 * CHUNK), SlowBody(20 * CHUNK), Change(server)
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(requests.patch, url, data=body, headers=PATCH, timeout=60)
        try:
            wait_until(
                lambda: counts.total("sluice_received_bytes_total", protocol="tus") > 0,
                "bytes are counted before the request is over",
            )
            assert counts.total("sluice_requests_in_progress", protocol="tus") == 1
            assert scrape(server).by("state", "sluice_uploads_under_way")["receiving"] == 1
        finally:
            body.is_released = True
        assert sending.result().status_code == 204
    assert counts.total("sluice_requests_in_progress", protocol="tus") == 0
    assert counts.total("sluice_received_bytes_total", protocol="tus") == 20 * CHUNK


def test_a_killed_worker_loses_only_its_counts_in_progress(server: Server) -> None:
    counts = Change(server)
    files = upload_to_each_worker(server)
    url, body = tus_upload(server, 20 * CHUNK), SlowBody(20 * CHUNK)
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(requests.patch, url, data=body, headers=PATCH, timeout=60)
        running = "sluice_requests_in_progress"
        wait_until(lambda: scrape(server).total(running, protocol="tus") == 1, "the upload runs")
        for worker in server.web_workers():
            os.kill(worker.pid, signal.SIGKILL)
        body.is_released = True
        with pytest.raises(requests.ConnectionError):
            sending.result()
    wait_until(lambda: scrape(server).total(running, protocol="tus") == 0, "it is over")
    assert counts.total("sluice_requests_total", protocol="upload") == 3 * files
    assert counts.by("event", "sluice_uploads_total")["complete"] == files
    upload_to_each_worker(server)
    assert requests.delete(url, headers=TUS, timeout=60).status_code == 204


def test_a_worker_that_replaces_a_killed_one_continues_its_files(server: Server) -> None:
    upload_to_each_worker(server)
    folder, before = metrics_folder(server), files_of_counts(server)
    for _ in range(3):
        killed = server.web_workers()
        for worker in killed:
            worker.kill()
        psutil.wait_procs(killed, 30)
        wait_until(lambda: answers(server), "others answer")
    wait_until(lambda: len(server.web_workers()) == 3, "all have their places")
    assert metrics_folder(server) == folder
    assert files_of_counts(server) == before
    assert scrape(server).total("sluice_requests_total", protocol="health") >= 3


def files_of_counts(server: Server) -> set[str]:
    """Names of the web workers' files that do not count requests in progress."""
    files = metrics_folder(server).glob("*_web*.db")
    return {path.name for path in files if "livesum" not in path.name}


def test_a_half_made_file_of_a_killed_process_is_skipped(server: Server) -> None:
    (metrics_folder(server) / "counter_999999.db").touch()
    assert scrape(server).total("sluice_requests_total") > 0


def test_the_background_worker_is_counted_too(start_server: Callable[..., Server]) -> None:
    server = start_server(SLUICE_EXPIRY_SECONDS="4")
    counts = Change(server)
    server.post("/api/uploads", json={"name": "idle.mp4", "size": 1000})
    wait_until(
        lambda: counts.by("event", "sluice_uploads_total").get("expired") == 1,
        "the upload that expired is counted",
    )
    assert counts.by("event", "sluice_uploads_total") == {"created": 1, "expired": 1}


def test_a_cancelled_upload_is_counted(server: Server) -> None:
    counts = Change(server)
    cancelled = server.post("/api/uploads", json={"name": "other.mp4", "size": 1000}).json()["id"]
    server.delete(f"/api/uploads/{cancelled}")
    assert counts.by("event", "sluice_uploads_total") == {"created": 1, "cancelled": 1}


@pytest.mark.parametrize("number", [signal.SIGTERM, *long([signal.SIGKILL])])
def test_a_server_starts_counting_at_zero_and_leaves_no_files(
    server: Server, number: signal.Signals
) -> None:
    """`test_folder.py` shows what becomes of the files of a server that was killed."""
    send_all(server, ChunkedFile(random_bytes(CHUNK), CHUNK))
    first, started = metrics_folder(server), scrape(server).total("sluice_start_time_seconds")
    server.restart(number)
    assert not first.exists()
    counts = scrape(server)
    assert counts.total("sluice_uploads_total") == 0
    assert counts.total("sluice_start_time_seconds") > started


def test_gunicorn_without_the_supervisor_also_counts_over_its_workers(tmp_path: Path) -> None:
    port = free_port()
    server = Server(tmp_path, {"SLUICE_PORT": str(port), "SLUICE_WORKERS": "2", **NO_FFMPEG}, port)
    program = [
        sys.executable,
        "-m",
        "gunicorn",
        "-c",
        "python:app.run.server.gunicorn_conf",
        "wsgi:app",
    ]
    with (tmp_path / "log").open("wb") as log:
        server.process = subprocess.Popen(
            program,
            cwd=ROOT,
            env=server.environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        wait_until(lambda: answers(server), "gunicorn serves")
        folder = metrics_folder(server)
        wait_until(lambda: len(list(folder.glob("counter_*.db"))) == 2, "both workers count")
        before = scrape(server).total("sluice_requests_total", protocol="health")
        for _ in range(40):
            server.get("/healthz")
        assert scrape(server).total("sluice_requests_total", protocol="health") == before + 40
    finally:
        server.stop()
    assert not folder.exists()


def answers(server: Server) -> bool:
    try:
        return server.get("/healthz").ok
    except requests.ConnectionError:
        return False
