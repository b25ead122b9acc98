"""The `backup` command, and servers started on its copies."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import requests
from click.testing import Result
from sqlalchemy import text

from app.core.jobs import Lane
from app.core.lifecycle import UploadState
from app.core.upload import UploadId
from app.db.engine import Database
from app.db.jobs import JobRecords
from app.http.services import Services
from app.records.uploads import UploadRecords
from app.run.admin.backup import Backup
from app.run.build import build_services
from app.settings import from_env
from app.video.serve.rows import MediaRecords
from tests.derived import files_in, files_of, place
from tests.live_server import NO_FFMPEG, Server, running_server
from tests.run.admin.running import run_command
from tests.run.admin.test_commands import Operator

pytestmark = pytest.mark.e2e

MEMORY = Path("/dev/shm")


def back_up(server: Server, folder: Path, *options: str) -> Result:
    return run_command(server, "backup", *options, str(folder))


def services_of(server: Server) -> Services:
    return build_services(from_env(server.environment))


def upload(server: Server, content: bytes) -> str:
    answer = server.post("/upload", files={"file": ("film.mp4", content)})
    answer.raise_for_status()
    return str(answer.json()["id"])


def download(server: Server, video: str) -> bytes:
    answer = server.get(f"/media/{video}")
    answer.raise_for_status()
    return answer.content


def modes(folder: Path) -> set[str]:
    return {oct(path.stat().st_mode & 0o077) for path in [folder, *folder.rglob("*")]}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("server"), **NO_FFMPEG) as running:
        yield running


@pytest.fixture
def server(shared: Server) -> Server:
    """A server of this file, without videos."""
    shared.empty()
    return shared


@pytest.fixture(params=["links", "copies"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A target on the library's file system, and one on another."""
    if request.param == "links":
        yield tmp_path / "backup"
        return
    if MEMORY.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip(f"{MEMORY} is the file system of {tmp_path}")
    with TemporaryDirectory(dir=MEMORY) as name:
        yield Path(name) / "backup"


def test_a_server_started_on_the_backup_has_everything(
    server: Server, folder: Path, tmp_path: Path
) -> None:
    films = (b"first film", b"second film" * 1000)
    contents = {upload(server, content): content for content in films}

    result = back_up(server, folder)

    assert result.exit_code == 0, result.stderr
    assert modes(folder) == {"0o0"}
    assert sorted(os.listdir(folder)) == ["library", "sluice.db"]
    with running_server(tmp_path, SLUICE_DATA_DIR=str(folder), **NO_FFMPEG) as restored:
        listed = restored.get("/api/videos").json()["videos"]
        assert {video["id"] for video in listed} == set(contents)
        assert {video: download(restored, video) for video in contents} == contents
        for video in contents:
            restored.delete(f"/api/videos/{video}").raise_for_status()
    assert {video: download(server, video) for video in contents} == contents


def test_the_next_backup_copies_new_files_and_drops_deleted_ones(
    server: Server, folder: Path
) -> None:
    old, kept = upload(server, b"old"), upload(server, b"kept")
    back_up(server, folder)
    server.delete(f"/api/videos/{old}").raise_for_status()
    new = upload(server, b"new")

    result = back_up(server, folder)

    assert set(os.listdir(folder / "library")) == {kept, new}
    assert "1 kept from an earlier backup, 1 removed" in result.stdout


def test_files_that_no_backup_made_stay_in_the_folder(server: Server, tmp_path: Path) -> None:
    library = tmp_path / "home" / "library"
    video = upload(server, b"film")
    (library / "books").mkdir(parents=True)
    (library / "novel.txt").write_text("mine")
    (library / f".{'0' * 32}.partial").write_text("of a backup that was interrupted")

    result = back_up(server, library.parent)

    assert result.exit_code == 0, result.stderr
    assert sorted(os.listdir(library)) == sorted([video, "books", "novel.txt"])


def test_a_video_added_and_deleted_during_a_backup_is_not_reported_missing(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = upload(server, b"kept")
    services, folder = services_of(server), tmp_path / "backup"
    file = services.database.file
    assert file is not None
    copy_database = file.copy_to

    def copy_beside_users(path: Path, **options: Any) -> None:
        gone, new = upload(server, b"gone soon"), upload(server, b"new")
        names.update({kept, new})
        copy_database(path, **options)
        server.delete(f"/api/videos/{gone}").raise_for_status()

    names: set[str] = set()
    monkeypatch.setattr(file, "copy_to", copy_beside_users)
    with closing(services.database):
        Backup(services, folder).run()

    restored = Server(tmp_path, {"SLUICE_DATA_DIR": str(folder)})
    listed = json.loads(run_command(restored, "videos", "list", "--json").stdout)
    assert {video["id"] for video in listed} == names == set(os.listdir(folder / "library"))


def test_an_unfinished_upload_starts_over_on_a_restored_server(
    server: Server, tmp_path: Path
) -> None:
    tus = {"Tus-Resumable": "1.0.0"}
    created = server.post("/tus/", headers={**tus, "Upload-Length": "11"})
    path = "/tus/" + created.headers["Location"].rsplit("/", 1)[1]
    part = {**tus, "Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"}
    requests.patch(server.url + path, b"half", headers=part, timeout=60).raise_for_status()
    back_up(server, tmp_path / "backup")

    options = {"SLUICE_DATA_DIR": str(tmp_path / "backup"), **NO_FFMPEG}
    with running_server(tmp_path, **options) as restored:
        rest = {**part, "Upload-Offset": "4"}
        answer = requests.patch(restored.url + path, b" a file", headers=rest, timeout=60)
    assert answer.status_code == 410


def test_only_the_database_is_copied_if_asked_for(server: Server, tmp_path: Path) -> None:
    upload(server, b"film")
    assert back_up(server, tmp_path / "backup", "--without-library").exit_code == 0
    assert os.listdir(tmp_path / "backup") == ["sluice.db"]


def test_a_folder_in_use_by_a_server_is_refused_as_a_target(
    server: Server, start_server: Callable[..., Server]
) -> None:
    other = start_server()
    video = upload(other, b"film")
    for folder in (server.library.parent, other.library.parent):
        result = back_up(server, folder)
        assert result.exit_code == 1
        assert "a server's data folder" in result.stderr
    assert download(other, video) == b"film"


def test_a_folder_that_cannot_be_written_is_named_in_one_line(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    result = back_up(server, tmp_path / "file" / "backup")
    assert result.exit_code == 1
    assert "Traceback" not in result.stderr
    assert str(tmp_path / "file") in result.stderr


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    with closing_operator(tmp_path / "library") as made:
        yield made


@contextmanager
def closing_operator(folder: Path) -> Iterator[Operator]:
    made = Operator(folder)
    try:
        yield made
    finally:
        made.services.database.close()


def content_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("options", [[], ["--without-library"]])
def test_a_backup_of_another_library_is_replaced_only_by_force(
    operator: Operator, tmp_path: Path, options: list[str]
) -> None:
    operator.finish("good.mp4")
    folder = tmp_path / "backup"
    assert operator.run("backup", str(folder)).exit_code == 0
    before = content_of(folder)
    with closing_operator(tmp_path / "other") as other:
        refused = other.run("backup", *options, str(folder))
        assert refused.exit_code == 1
        assert refused.stderr.startswith(f"Error: {folder} has a backup of another library.")
        assert refused.stderr.count("\n") == 1
        assert content_of(folder) == before
        assert other.run("backup", "--force", *options, str(folder)).exit_code == 0
    assert content_of(folder) != before


def test_a_library_that_lost_most_files_is_backed_up_only_by_force(
    operator: Operator, tmp_path: Path
) -> None:
    files = [operator.finish(f"{number}.mp4") for number in range(3)]
    folder = tmp_path / "backup"
    assert operator.run("backup", str(folder)).exit_code == 0
    for file in files[:2]:
        file.rename(tmp_path / file.name)
    refused = operator.run("backup", str(folder))
    assert refused.exit_code == 1
    assert f"2 of the 3 files in {folder} are missing" in refused.stderr
    forced = operator.run("backup", "--force", str(folder))
    assert forced.exit_code == 0
    assert {path.name for path in (folder / "library").iterdir()} == {file.name for file in files}


def test_records_that_lost_most_videos_are_backed_up_only_by_force(
    operator: Operator, tmp_path: Path
) -> None:
    operator.finish()
    folder = tmp_path / "backup"
    assert operator.run("backup", str(folder)).exit_code == 0
    with operator.services.database.write() as connection:
        connection.execute(text("DELETE FROM uploads"))
    refused = operator.run("backup", "--without-library", str(folder))
    assert (refused.exit_code, "1 of the 1 files" in refused.stderr) == (1, True)
    assert operator.run("backup", "--without-library", "--force", str(folder)).exit_code == 0


def test_the_last_copy_of_a_lost_file_stays_in_the_backup(
    operator: Operator, tmp_path: Path
) -> None:
    lost, *_ = (operator.finish(f"{number}.mp4") for number in range(3))
    folder = tmp_path / "backup"
    operator.run("backup", str(folder))
    lost.unlink()
    assert operator.run("backup", str(folder)).exit_code == 0
    assert (folder / "library" / lost.name).exists()


def test_a_first_backup_without_the_files_fails_and_names_some(
    operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.run.admin.backup.IDS_AT_ONCE", 2)
    files = sorted(operator.finish(f"{number}.mp4") for number in range(6))
    for file in files[:4]:
        file.rename(tmp_path / file.name)
    folder = tmp_path / "backup"
    result = operator.run("backup", str(folder))
    assert (result.exit_code, "2 linked" in result.stdout) == (1, True)
    [line] = result.stderr.splitlines()
    assert line.startswith("4 videos have a record but no file, here or in the backup: ")
    assert [file.name in line for file in files] == [True] * 3 + [False] * 3
    forced = operator.run("backup", "--force", str(folder))
    assert (forced.exit_code, forced.stderr) == (0, result.stderr)
    assert operator.run("backup", "--without-library", str(tmp_path / "records")).exit_code == 0
    for file in files[:4]:
        (tmp_path / file.name).rename(file)
    again = operator.run("backup", str(folder))
    assert (again.exit_code, again.stderr) == (0, "")


def test_a_file_that_goes_while_it_is_copied_is_missing_only_if_nobody_deleted_it(
    operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, deleted = (operator.finish(name) for name in ("lost.mp4", "deleted.mp4"))
    services, folder = operator.services, tmp_path / "backup"
    copy_database = Backup._copy_database

    def copy_before_they_go(backup: Backup) -> None:
        copy_database(backup)
        for file in (lost, deleted):
            (folder / "library" / file.name).unlink()
        lost.unlink()
        operator.run("videos", "delete", deleted.name)

    monkeypatch.setattr(Backup, "_copy_database", copy_before_they_go)
    made = Backup(services, folder)
    made.run()
    assert (made.without_file, made.names_without_file) == (1, [lost.name])
    with closing(Database(f"sqlite:///{folder}/sluice.db", synced=False)) as copy:
        states = UploadRecords(copy).states([UploadId(lost.name), UploadId(deleted.name)])
    assert states == {lost.name: UploadState.COMPLETE, deleted.name: UploadState.DELETED}


def test_videos_that_were_deleted_are_not_missing(operator: Operator, tmp_path: Path) -> None:
    ids = [operator.finish(f"{number}.mp4").name for number in range(3)]
    folder = tmp_path / "backup"
    operator.run("backup", str(folder))
    operator.run("videos", "delete", *ids)
    result = operator.run("backup", str(folder))
    assert (result.exit_code, "3 removed" in result.stdout) == (0, True)


def test_what_was_made_from_videos_is_made_again_from_a_backup(
    server: Server, tmp_path: Path
) -> None:
    video = UploadId(upload(server, b"film"))
    with closing(services_of(server).database) as database:
        now = datetime.now(UTC)
        MediaRecords(database).add(video, now, is_planned=True)
        JobRecords(database).enqueue(video, "pictures", lane=Lane.QUICK, priority=0, now=now)
    with files_of(server.library.parent) as files:
        place(files, video, "poster.jpg", b"poster")
    assert back_up(server, tmp_path / "backup").exit_code == 0
    with closing(Database(f"sqlite:///{tmp_path}/backup/sluice.db", synced=False)) as copy:
        assert MediaRecords(copy).unplanned(10) == [video]
        assert JobRecords(copy).of(video) == []
        assert files_in(tmp_path, copy).is_empty()
