"""Derived files that the table does not know, and rows whose files are gone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.core.upload import UploadId
from app.db.engine import Database
from app.video.serve.adoption import ADOPTED, adopt_files
from app.video.serve.derived_files import DerivedFiles
from app.video.serve.derived_objects import FolderObjects
from tests.derived import files_in, path_of, place
from tests.records.making import new_sqlite

VIDEO, OTHER = UploadId("ab" * 16), UploadId("cd" * 16)

NAMES = {
    "poster.jpg": b"poster",
    "hls/source/init.mp4": b"init",
    "rungs/720/1.m4s": b"segment",
    "renditions/720.mp4": b"film",
}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with closing(new_sqlite(tmp_path / "records.db")) as database:
        yield database


@pytest.fixture
def files(database: Database, tmp_path: Path) -> DerivedFiles:
    return files_in(tmp_path / "media", database)


def adopt(files: DerivedFiles) -> None:
    assert isinstance(files.objects, FolderObjects)
    adopt_files(files, files.objects)


def leave_files_of_an_earlier_version(folder: Path) -> None:
    for name, content in NAMES.items():
        path = folder / VIDEO / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, (1000, 1000))
    os.utime(folder / VIDEO / "rungs/720", (2000, 2000))
    (folder / ".encoder.json").write_text("{}")
    (folder / ".making").mkdir()


def test_the_files_of_an_earlier_version_go_on_where_they_are(
    files: DerivedFiles, tmp_path: Path
) -> None:
    leave_files_of_an_earlier_version(tmp_path / "media")
    for _ in range(2):
        adopt(files)
        for name, content in NAMES.items():
            assert files.read(VIDEO, name) == content
            assert path_of(files, VIDEO, name) == tmp_path / "media" / VIDEO / name
    assert files.videos() == [VIDEO]
    found = files.find(VIDEO, "poster.jpg")
    assert found is not None
    assert found.made_at == datetime.fromtimestamp(1000, UTC)
    bundles = {bundle.name: bundle.used_at for bundle in files.evictable()}
    assert bundles["rungs/720"] == 2000
    assert set(bundles) == {"rungs/720", "renditions/720.mp4"}
    files.remove([VIDEO])
    assert not (tmp_path / "media" / VIDEO).exists()


def test_a_file_of_an_earlier_version_is_replaced_like_others(
    files: DerivedFiles, tmp_path: Path
) -> None:
    leave_files_of_an_earlier_version(tmp_path / "media")
    adopt(files)
    old = path_of(files, VIDEO, "poster.jpg")
    new = place(files, VIDEO, "poster.jpg", b"new")
    assert (old.exists(), new.read_bytes()) == (False, b"new")


def test_an_adoption_that_was_interrupted_goes_on(files: DerivedFiles, tmp_path: Path) -> None:
    leave_files_of_an_earlier_version(tmp_path / "media")
    adopt(files)
    known = {name: files.find(VIDEO, name) for name in NAMES}
    (tmp_path / "media" / ADOPTED).unlink()
    (tmp_path / "media" / OTHER).mkdir()
    (tmp_path / "media" / OTHER / "poster.jpg").write_bytes(b"other")
    adopt(files)
    assert {name: files.find(VIDEO, name) for name in NAMES} == known
    assert files.read(OTHER, "poster.jpg") == b"other"


def test_the_folder_is_read_once(files: DerivedFiles, tmp_path: Path) -> None:
    place(files, VIDEO, "poster.jpg", b"poster")
    adopt(files)
    (tmp_path / "media" / VIDEO / "sprite.jpg").write_bytes(b"of another program")
    adopt(files)
    assert files.top_names([VIDEO]) == {VIDEO: {"poster.jpg"}}


def test_files_of_a_database_that_is_gone_are_deleted(files: DerivedFiles, tmp_path: Path) -> None:
    """Another one was restored from a backup: everything is made again."""
    adopt(files)
    place(files, VIDEO, "poster.jpg", b"poster")
    place(files, VIDEO, "rungs/720/1.m4s", b"of an unknown encoder")
    with closing(new_sqlite(tmp_path / "restored.db")) as restored:
        found = files_in(tmp_path / "media", restored)
        adopt(found)
        assert found.find(VIDEO, "poster.jpg") is None
        found.remove_abandoned()
    assert not (tmp_path / "media" / VIDEO).exists()


def test_nothing_is_lost_by_a_start_without_the_disk(
    files: DerivedFiles, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    media, unmounted = tmp_path / "media", tmp_path / "unmounted"
    adopt(files)
    place(files, VIDEO, "poster.jpg", b"poster")
    media.rename(unmounted)
    media.mkdir()
    adopt(files)
    assert "Is its disk mounted?" in caplog.text
    place(files, OTHER, "poster.jpg", b"made without the disk")
    adopt(files)
    shutil.rmtree(media)
    unmounted.rename(media)
    adopt(files)
    files.remove_abandoned()
    assert files.read(VIDEO, "poster.jpg") == b"poster"


def test_another_folder_is_read(files: DerivedFiles, tmp_path: Path) -> None:
    adopt(files)
    place(files, OTHER, "poster.jpg", b"poster")
    (tmp_path / "media").rename(tmp_path / "other")
    leave_files_of_an_earlier_version(tmp_path / "media")
    (tmp_path / "media" / ADOPTED).write_text("of another database")
    adopt(files)
    assert files.read(VIDEO, "poster.jpg") == b"poster"
