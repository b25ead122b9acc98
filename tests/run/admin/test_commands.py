"""The operator's commands, run through Flask's own CLI."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from flask import Flask
from sqlalchemy import update

from app.access import audit
from app.access.audit import AuditFilter
from app.access.signing import Signing
from app.core.access import FIRST_PROJECT, Scope
from app.core.errors import StorageFailed
from app.core.lifecycle import UploadState
from app.core.upload import Upload, UploadId
from app.db.nodes import SharedValues
from app.db.tables import projects
from app.http import context
from app.http.services import Services
from app.ingest.source import StreamSource
from app.records.uploads import UploadRecords
from app.run.admin.commands import operator_app
from app.run.build import build_services
from app.settings import Settings
from app.uploads.service import NewUpload
from tests.live_server import leave_database

DAY = 24 * 3600


class Operator:
    """A server's folders, and an operator who runs commands on them."""

    def __init__(self, folder: Path) -> None:
        settings = Settings(
            staging_dir=folder / "staging", data_dir=folder / "data", durability="none"
        )
        leave_database(settings.data_dir / "sluice.db")
        self.services: Services = build_services(settings)
        self.services.prepare()
        self.app: Flask = operator_app()
        context.init_app(self.app, self.services)

    def run(self, *arguments: str) -> Result:
        return self.app.test_cli_runner().invoke(args=arguments)

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json").stdout)

    def begin(self, filename: str = "film.mp4", length: int = 1000) -> Upload:
        upload, _ = self.services.uploads.create(
            NewUpload(scope=Scope(FIRST_PROJECT), filename=filename, length=length)
        )
        return upload

    def finish(self, filename: str = "film.mp4", content: bytes = b"x" * 1000) -> Path:
        """Publish a file, with its digest; its path. The file's name is the id."""
        upload = self.begin(filename, len(content))
        source = StreamSource(_Bytes(content), len(content))
        upload = self.services.chunks.append(upload, 0, source)
        assert upload.state is UploadState.COMPLETE
        self.services.housekeeping.digest()
        return self.services.settings.library_dir / upload.id


class _Bytes:
    def __init__(self, content: bytes) -> None:
        self._content = content

    def read(self, size: int, /) -> bytes:
        block, self._content = self._content[:size], self._content[size:]
        return block


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    made = Operator(tmp_path)
    yield made
    made.services.database.close()


def test_uploads_list_shows_unfinished_uploads(operator: Operator) -> None:
    operator.finish("done.mp4")
    upload = operator.begin("under way.mp4")
    assert [row["id"] for row in operator.json("uploads", "list")] == [upload.id]
    result = operator.run("uploads", "list")
    assert upload.id in result.stdout
    assert "under way.mp4" in result.stdout
    assert "done.mp4" not in result.stdout


def test_uploads_show_lists_the_missing_ranges(operator: Operator) -> None:
    upload = operator.begin(length=1000)
    shown = operator.json("uploads", "show", upload.id)
    assert shown["missing"] == [[0, 1000]]
    assert shown["state"] == "receiving"
    assert "receiving" in operator.run("uploads", "show", upload.id).stdout


def test_a_file_name_cannot_control_the_terminal(operator: Operator) -> None:
    upload = operator.begin("a\u202e4pm.exe")
    for result in (operator.run("uploads", "list"), operator.run("uploads", "show", upload.id)):
        assert "\u202e" not in result.stdout
        assert "4pm.exe" in result.stdout


def test_uploads_expire_ends_an_upload_and_frees_its_space(operator: Operator) -> None:
    upload, other = operator.begin(), operator.begin("other.mp4")
    assert operator.run("uploads", "expire", upload.id).exit_code == 0
    staged = [path.name for path in operator.services.settings.staging_dir.iterdir()]
    assert staged == [other.id]
    result = operator.run("uploads", "show", upload.id)
    assert result.exit_code == 1
    assert "expired" in result.stderr


def test_a_finished_file_cannot_be_expired(operator: Operator) -> None:
    stored = operator.finish()
    result = operator.run("uploads", "expire", stored.name)
    assert result.exit_code == 1
    assert stored.exists()


@pytest.mark.parametrize(
    "command",
    [("uploads", "show"), ("uploads", "expire"), ("videos", "show"), ("videos", "delete")],
)
@pytest.mark.parametrize("upload_id", ["0" * 32, "../../etc/passwd"])
def test_an_unknown_id_is_one_line_and_status_1(
    operator: Operator, command: tuple[str, ...], upload_id: str
) -> None:
    result = operator.run(*command, upload_id)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1


def test_videos_list_and_show_finished_files(operator: Operator) -> None:
    ids = [operator.finish(f"{number}.mp4").name for number in range(3)]
    assert [row["id"] for row in operator.json("videos", "list")] == ids[::-1]
    assert len(operator.json("videos", "list", "--limit", "2")) == 2
    assert len(operator.json("videos", "show", ids[0])["sha256"]) == 64


def test_lists_show_sizes_and_dates_for_people(operator: Operator) -> None:
    video = operator.finish("film.mp4", b"x" * 1_500_000).name
    upload = operator.begin("begun.mp4", 20_000_000).id
    time = r"20\d\d-\d\d-\d\d \d\d:\d\d"
    assert re.fullmatch(
        rf"{video}  {time} +1\.5 MB  film\.mp4\n", operator.run("videos", "list").stdout
    )
    assert re.fullmatch(
        rf"{upload}  {time} +0 bytes of 20 MB  begun\.mp4\n", operator.run("uploads", "list").stdout
    )


def test_lists_and_verify_go_beyond_one_page(operator: Operator) -> None:
    operator.services.library.max_page = 2
    ids = {operator.finish(f"{number}.mp4").name for number in range(5)}
    assert {row["id"] for row in operator.json("videos", "list")} == ids
    assert operator.json("verify") == {"checked": 5, "without_digest": 0, "differences": []}


def test_videos_delete_removes_only_the_named_files(operator: Operator) -> None:
    first, second, third = (operator.finish(f"{number}.mp4") for number in range(3))
    assert operator.run("videos", "delete", first.name, second.name).exit_code == 0
    assert [path.exists() for path in (first, second, third)] == [False, False, True]
    told = list(audit.every(operator.services.context, AuditFilter()))
    assert [entry.subject for entry in told] == [f"video:{second.name}", f"video:{first.name}"]
    assert {(entry.action, entry.actor_name) for entry in told} == {("video.deleted", "operator")}


def test_verify_accepts_files_that_match_their_records(operator: Operator) -> None:
    operator.finish()
    operator.begin()
    result = operator.run("verify")
    assert result.exit_code == 0
    assert result.stdout.startswith("1 files checked")
    assert operator.json("verify") == {"checked": 1, "without_digest": 0, "differences": []}


def test_verify_names_everything_that_differs(operator: Operator) -> None:
    missing, shorter, longer, changed, sound = (operator.finish(f"{n}.mp4") for n in range(5))
    missing.unlink()
    shorter.write_bytes(shorter.read_bytes()[:-1])
    longer.write_bytes(longer.read_bytes() + b"x")
    changed.write_bytes(b"y" + changed.read_bytes()[1:])
    stranger = sound.with_name("f" * 32)
    stranger.write_bytes(b"?")
    found = {row["name"]: row["what"] for row in operator.json("verify")["differences"]}
    assert found == {
        missing.name: "missing",
        shorter.name: "wrong_size",
        longer.name: "wrong_size",
        changed.name: "wrong_digest",
        stranger.name: "no_record",
    }


def test_verify_fails_when_anything_differs(operator: Operator) -> None:
    operator.finish().unlink()
    result = operator.run("verify")
    assert result.exit_code == 1
    assert "missing" in result.stdout
    assert operator.run("verify", "--json").exit_code == 1


def test_verify_does_not_report_a_file_deleted_meanwhile(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = operator.finish()
    library = operator.services.library
    real = library.open

    def delete_first(upload: Upload, span: Any) -> Any:
        library.delete(Scope(FIRST_PROJECT), upload.id)
        return real(upload, span)

    monkeypatch.setattr(library, "open", delete_first)
    assert operator.run("verify").exit_code == 0
    assert not stored.exists()


def test_verify_counts_files_without_a_digest(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator.services.housekeeping, "digest", lambda: None)
    operator.finish()
    assert operator.json("verify")["without_digest"] == 1


@pytest.mark.parametrize(("checksum", "code"), [("4waSgw==", 0), ("AAAAAA==", 1)])
def test_verify_compares_the_crc32c_of_what_went_straight_to_a_bucket(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, checksum: str, code: int
) -> None:
    monkeypatch.setattr(operator.services.housekeeping, "digest", lambda: None)
    stored = operator.finish(content=b"123456789")
    UploadRecords(operator.services.database)._set(UploadId(stored.name), crc32c=checksum)
    result = operator.run("verify", "--json")
    assert (result.exit_code, json.loads(result.stdout)["without_digest"]) == (code, 0)


def test_sweep_removes_files_without_a_record(operator: Operator) -> None:
    upload = operator.begin()
    staged = operator.services.settings.staging_dir / upload.id
    operator.services.uploads.cancel(Scope(FIRST_PROJECT), upload.id)
    staged.write_bytes(b"left by a crash")
    assert operator.run("sweep").exit_code == 0
    assert not staged.exists()


def test_sweep_publishes_what_was_interrupted_and_deletes_what_has_expired(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = operator.services
    idle, old, young = operator.begin(), operator.finish(), operator.finish()

    def fail(*_: object) -> None:
        raise StorageFailed("The disk fails.")

    with monkeypatch.context() as patch:
        patch.setattr(services.store.library, "publish", fail)
        with pytest.raises(StorageFailed):
            operator.finish("interrupted.mp4")
    (interrupted,) = services.records.in_state(
        UploadState.VERIFYING, 10, idle_since=datetime.now(UTC)
    )
    with services.database.write() as connection:
        connection.execute(update(projects).values(video_seconds=DAY))
    for upload_id, seconds in ((idle.id, 30 * DAY), (old.name, 2 * DAY), (interrupted.id, 60)):
        moment = datetime.now(UTC) - timedelta(seconds=seconds)
        services.records._set(UploadId(upload_id), active_at=moment)
    result = operator.run("sweep")
    assert (result.exit_code, result.stdout) == (0, "swept\n")
    states = {
        name: services.records.get(UploadId(name)).state
        for name in (idle.id, old.name, young.name, interrupted.id)
    }
    assert states == {
        idle.id: UploadState.EXPIRED,
        old.name: UploadState.DELETED,
        young.name: UploadState.COMPLETE,
        interrupted.id: UploadState.COMPLETE,
    }


def test_disk_bench_prints_a_table_with_an_explanation_and_leaves_nothing(
    operator: Operator,
) -> None:
    result = operator.run("disk-bench", "--seconds", "0.02", "--bytes", "65536")
    assert result.exit_code == 0, result.output
    assert "one file system" in result.stdout
    assert "one 20 MB chunk" in result.stdout
    settings = operator.services.settings
    assert [*settings.staging_dir.iterdir(), *settings.library_dir.iterdir()] == []


def test_disk_bench_measures_the_folder_it_is_given(operator: Operator, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (one,) = operator.json(
        "disk-bench", "--folder", str(folder), "--seconds", "0.02", "--bytes", "4096"
    )
    assert one["folder"] == str(folder)
    assert len(one["cells"]) == 4 * 9


def test_disk_bench_checks_for_space_first(operator: Operator) -> None:
    result = operator.run("disk-bench", "--bytes", str(10**15))
    assert result.exit_code == 1
    assert "PB that this needs" in result.stderr


@pytest.mark.parametrize("option", [("--seconds", "0"), ("--bytes", "1"), ("--folder", "/nowhere")])
def test_disk_bench_refuses_impossible_options(operator: Operator, option: tuple[str, str]) -> None:
    assert operator.run("disk-bench", *option).exit_code == 2


def test_a_renewed_secret_is_another_one(operator: Operator) -> None:
    before = operator.services.identity.signing.secret
    assert operator.run("renew-secret").exit_code == 0
    assert Signing(SharedValues(operator.services.database)).secret != before
