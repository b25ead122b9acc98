"""A disk that fills up: a small file system in memory, mounted for the test."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import disk_usage
from urllib.parse import urlsplit

import pytest

from tests.conformance.tus_client import Tus
from tests.dropzone_client import ChunkedFile, random_bytes, send_all, send_chunk, stored_sha256
from tests.live_server import FFMPEG, NO_FFMPEG, Server, running_server
from tests.s3_servers import S3Server, new_prefix
from tests.waiting import wait_until

MIB = 1024 * 1024


@contextmanager
def mounted(folder: Path) -> Iterator[Path]:
    """A folder with 64 MiB of space."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system takes root")
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)]
    mounting = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounting.returncode != 0:
        pytest.skip(f"this machine does not let root mount: {mounting.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "small") as folder:
        yield folder


@pytest.fixture(scope="module", params=["staging", "data"])
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    base, variable = tmp_path_factory.mktemp("server"), f"SLUICE_{request.param.upper()}_DIR"
    with mounted(base / "small") as folder:
        options = {variable: str(folder / request.param), **NO_FFMPEG}
        with running_server(base, **options) as server:
            yield server


@pytest.fixture
def cramped(running: Server) -> Server:
    """A server whose staging folder or library has 64 MiB of space, and is empty."""
    running.empty()
    # The background worker may have a deleted file open for a moment longer, which keeps its space.
    small = running.folder / "small"
    wait_until(lambda: disk_usage(small).free > 60 * MIB, "the space of what was deleted is free")
    return running


def test_a_file_that_does_not_fit_is_refused_before_a_byte_is_sent(cramped: Server) -> None:
    response = cramped.post("/api/uploads", json={"name": "a.mp4", "size": 100 * MIB})
    assert (response.status_code, response.json()["code"]) == (507, "no_room")
    file = ChunkedFile(random_bytes(MIB), MIB)
    too_large = {"dztotalfilesize": str(100 * MIB), "dztotalchunkcount": "100"}
    response = send_chunk(cramped, file, 0, **too_large)
    assert (response.status_code, response.json()["code"]) == (507, "no_room")
    assert list(cramped.staging.iterdir()) == []
    assert cramped.get("/api/uploads").json()["uploads"] == []


def test_an_upload_with_reserved_space_finishes_while_others_are_refused(cramped: Server) -> None:
    file = ChunkedFile(random_bytes(40 * MIB, 40), 8 * MIB)
    created = cramped.post("/api/uploads", json={"name": "a.mp4", "size": 40 * MIB})
    assert created.status_code == 201
    refused = cramped.post("/api/uploads", json={"name": "b.mp4", "size": 40 * MIB})
    assert refused.status_code == 507
    file.key = created.json()["id"]
    answer = send_all(cramped, file)
    assert answer["complete"] is True
    assert stored_sha256(cramped, answer["id"]) == file.sha256


def test_cancelling_frees_the_space(cramped: Server) -> None:
    first = cramped.post("/api/uploads", json={"name": "a.mp4", "size": 40 * MIB}).json()
    assert cramped.delete(f"/api/uploads/{first['id']}").status_code == 204
    second = cramped.post("/api/uploads", json={"name": "b.mp4", "size": 40 * MIB})
    assert second.status_code == 201


def test_a_whole_file_that_does_not_fit_leaves_nothing(cramped: Server) -> None:
    content = random_bytes(70 * MIB, 41)
    response = cramped.post("/upload", files={"file": ("whole.mp4", content)})
    assert (response.status_code, response.json()["code"]) == (507, "no_room")
    assert list(cramped.staging.iterdir()) == []
    assert [path for path in cramped.library.iterdir() if path.is_file()] == []


def test_readiness_reports_a_staging_folder_in_memory_and_little_space(
    small_disk: Path, start_server: Callable[..., Server]
) -> None:
    server = start_server(SLUICE_STAGING_DIR=str(small_disk / "staging"), **FFMPEG)
    codes = {problem["code"] for problem in server.get("/readyz").json()["problems"]}
    assert codes == {"staging_in_memory", "staging_low_on_room"}
    assert "kept in memory" in server.log
    (small_disk / "filler").write_bytes(bytes(50 * MIB))
    response = server.get("/readyz")
    assert response.status_code == 503
    assert response.json()["status"] == "not ready"


def test_with_a_bucket_a_full_staging_disk_is_to_be_tried_again(
    small_disk: Path, versitygw: S3Server, start_server: Callable[..., Server]
) -> None:
    options = {**versitygw.access.settings(new_prefix()), **NO_FFMPEG}
    server = start_server(SLUICE_STAGING_DIR=str(small_disk / "staging"), **options)
    file, tus = ChunkedFile(random_bytes(20 * MIB, 42), 10 * MIB), Tus(f"{server.url}/tus/")
    url = tus.create(8 * MIB)
    filler = small_disk / "filler"
    filler.write_bytes(bytes(disk_usage(small_disk).free - 18 * MIB))
    for answer in (
        send_chunk(server, file, 0),
        server.post("/upload", files={"file": ("whole.mp4", random_bytes(8 * MIB, 43))}),
        server.patch(
            urlsplit(url).path,
            data=random_bytes(8 * MIB, 44),
            headers={
                "Tus-Resumable": "1.0.0",
                "Upload-Offset": "0",
                "Content-Type": "application/offset+octet-stream",
            },
        ),
    ):
        assert answer.status_code == 503, answer.text
        assert "Retry-After" in answer.headers
        assert (answer.json()["code"], answer.json()["retryable"]) == ("server_busy", True)
    filler.unlink()
    assert stored_sha256(server, send_all(server, file)["id"]) == file.sha256
    # The bytes that the disk had room for are stored.
    offset = tus.offset(url)
    assert tus.patch(url, offset, random_bytes(8 * MIB, 44)[offset:]).status == 204


def test_a_folder_that_cannot_be_written_is_reported(
    tmp_path: Path, start_server: Callable[..., Server]
) -> None:
    staging = tmp_path / "staging"
    server = start_server(SLUICE_STAGING_DIR=str(staging), **FFMPEG)
    staging.rmdir()
    staging.write_text("in the way")
    response = server.get("/readyz")
    assert response.status_code == 503
    assert [p["code"] for p in response.json()["problems"]] == ["staging_not_writable"]
    assert str(tmp_path) not in response.text, "anyone may ask"
    created = server.post("/api/uploads", json={"name": "a.mp4", "size": 10})
    assert (created.status_code, created.json()["code"]) == (500, "storage_failed")
    assert str(tmp_path) not in created.text
    assert f"The server's disk failed: File exists. ({staging})" in server.log, "the operator may"


def test_an_unusable_database_is_reported_in_one_line(tmp_path: Path) -> None:
    server = Server(tmp_path)
    data = Path(server.environment["SLUICE_DATA_DIR"])
    data.mkdir()
    (data / "sluice.db").write_bytes(b"this is no database" * 1000)
    with pytest.raises(RuntimeError, match="did not start"):
        server.start()
    assert "The database failed: file is not a database." in server.log
    assert "Traceback" not in server.log
    assert server.process is not None
    assert server.process.wait(60) == 2
