"""A group of a batch that cannot be stored while the next one arrives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from app.core.access import FIRST_PROJECT, Scope
from app.core.errors import NoRoom
from app.http.services import Services
from app.protocols import batch
from app.protocols.batch import GROUP_FILES
from app.run.build import build_services
from app.run.factory import create_app
from app.settings import Settings
from app.uploads.files import ReceivedFile
from tests.dropzone_client import form_body, form_headers


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    settings = Settings(
        staging_dir=tmp_path / "staging", data_dir=tmp_path / "data", durability="none"
    )
    services = build_services(settings)
    with closing(services.database):
        services.prepare()
        yield services


@pytest.fixture(autouse=True)
def groups_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a group would be kept for its time before it has all its files."""
    monkeypatch.setattr(batch, "GROUP_SECONDS", 60.0)


def post(services: Services, count: int) -> Any:
    """The answer to a batch of `count` small files."""
    files = [(f"{number:03}.mp4", b"%d" % number) for number in range(count)]
    client = create_app(services).test_client()
    return client.post("/batch", data=form_body({}, files), headers=form_headers())


def names(services: Services) -> list[str]:
    return sorted(video.filename for video in services.library.all(Scope(FIRST_PROJECT)))


def fail_once(services: Services, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the first group fail, as a disk or a database may."""
    errors, keep_all = [error], services.whole_files.keep_all

    def keep(files: Sequence[ReceivedFile]) -> Any:
        if errors:
            for file in files:
                services.whole_files.drop(file)
            raise errors.pop()
        return keep_all(files)

    monkeypatch.setattr(services.whole_files, "keep_all", keep)


@pytest.mark.parametrize("count", [GROUP_FILES + 2, 2 * GROUP_FILES])
def test_files_after_a_group_that_failed_unexpectedly_are_kept(
    services: Services, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_once(services, RuntimeError("nobody expects this"), monkeypatch)
    assert post(services, count).status_code == 500
    assert names(services) == [f"{number:03}.mp4" for number in range(GROUP_FILES, count)]
    assert [file.key for file in services.inspection.staged()] == []


def test_a_group_without_space_says_so_and_others_are_stored(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_once(services, NoRoom("The disk is full."), monkeypatch)
    answer = post(services, GROUP_FILES + 2).get_json()
    assert (answer["stored"], answer["refused"]) == (2, GROUP_FILES)
    codes = {receipt["error"]["code"] for receipt in answer["files"][:GROUP_FILES]}
    assert codes == {NoRoom.code}
    assert names(services) == [f"{number:03}.mp4" for number in (GROUP_FILES, GROUP_FILES + 1)]
