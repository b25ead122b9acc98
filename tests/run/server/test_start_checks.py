"""A server that cannot start explains why."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from app.core.nodes import NodeReport
from app.db.engine import Database
from app.db.nodes import NodeRecords
from app.run.server.start_checks import (
    StartRefused,
    require_free_address,
    require_only_node,
    require_usable_folders,
    staging_warnings,
)
from app.settings import Settings, from_env
from app.settings.staging import remember_staging, remembered_staging
from scripts.fleet.programs import free_port


def test_a_staging_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = from_env({"SLUICE_STAGING_DIR": str(tmp_path), "SLUICE_DATA_DIR": str(tmp_path)})
    require_usable_folders(settings)
    os.chown(tmp_path, 4711, -1) if os.geteuid() == 0 else None
    monkeypatch.setattr(os, "geteuid", lambda: 4712)
    with pytest.raises(StartRefused, match=r"belongs to .*SLUICE_STAGING_DIR"):
        require_usable_folders(settings)


@pytest.mark.parametrize(
    ("link", "variable"), [("staging", "SLUICE_STAGING_DIR"), ("library", "SLUICE_DATA_DIR")]
)
def test_a_folder_that_is_a_link_is_refused(tmp_path: Path, link: str, variable: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / link).symlink_to(tmp_path / "elsewhere")
    settings = from_env(
        {"SLUICE_STAGING_DIR": str(tmp_path / "staging"), "SLUICE_DATA_DIR": str(tmp_path)}
    )
    with pytest.raises(StartRefused, match=f"symbolic link.*{variable}"):
        require_usable_folders(settings)


def folders(staging: Path, data: Path) -> Settings:
    return from_env({"SLUICE_STAGING_DIR": str(staging), "SLUICE_DATA_DIR": str(data)})


@pytest.mark.parametrize("staging", ["data/library", "data/library/staging", "data/media", "link"])
def test_a_staging_folder_among_other_files_is_refused(tmp_path: Path, staging: str) -> None:
    (tmp_path / "data" / "library").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "data" / "library")
    with pytest.raises(StartRefused, match="SLUICE_STAGING_DIR to another folder"):
        require_usable_folders(folders(tmp_path / staging, tmp_path / "data"))


@pytest.mark.parametrize("staging", ["data", "data/staging", "."])
def test_a_staging_folder_around_or_beside_the_library_is_fine(
    tmp_path: Path, staging: str
) -> None:
    settings = folders(tmp_path / staging, tmp_path / "data")
    require_usable_folders(settings)
    assert settings.staging_dir.is_dir()
    assert settings.library_dir.is_dir()


def test_the_folder_that_a_refusal_names_can_be_used_by_a_library_of_an_older_version(
    tmp_path: Path,
) -> None:
    data, before = tmp_path / "data", tmp_path / "before"
    data.mkdir()
    (data / "staging").write_text(str(before))
    with pytest.raises(StartRefused, match=f"as in {data}/staging"):
        require_usable_folders(folders(data / "library", data))
    require_usable_folders(folders(data / "staging", data))
    assert (data / "staging").is_dir()
    assert remembered_staging(data) == before


@pytest.mark.parametrize(
    ("staging", "data", "variable"),
    [
        ("file", "data", "SLUICE_STAGING_DIR"),
        ("file/below", "data", "SLUICE_STAGING_DIR"),
        ("staging", "file", "SLUICE_DATA_DIR"),
        ("x" * 300, "data", "SLUICE_STAGING_DIR"),
        ("staging", "x" * 300, "SLUICE_DATA_DIR"),
    ],
)
def test_a_folder_that_cannot_be_made_is_named_with_its_setting(
    tmp_path: Path, staging: str, data: str, variable: str
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartRefused, match=f"{tmp_path}.* cannot be used: .*{variable}"):
        require_usable_folders(folders(tmp_path / staging, tmp_path / data))


def test_uploads_left_in_the_staging_folder_of_the_last_start_are_reported(tmp_path: Path) -> None:
    before, settings = tmp_path / "before", folders(tmp_path / "now", tmp_path / "data")
    require_usable_folders(settings)
    before.mkdir()
    remember_staging(settings.data_dir, before)
    assert staging_warnings(settings, is_systemd=False) == []
    (before / ("0" * 32)).touch()
    (warning,) = staging_warnings(settings, is_systemd=False)
    assert warning.startswith(f"1 files of unfinished uploads are in {before}")


def test_a_second_node_is_refused_where_each_has_files_of_its_own(on_server: Database) -> None:
    nodes = NodeRecords(on_server)
    require_only_node(nodes, release_seconds=0)
    other = NodeReport(name="one-1", address="one:8000", version="1", is_leaving=False, counts={})
    nodes.tell(other, lease_seconds=3600)
    nodes.tell(replace(other, name="two-2", address="two:8000"), lease_seconds=0)
    with pytest.raises(StartRefused, match=r"one:8000 is running .*SLUICE_STORAGE is empty"):
        require_only_node(nodes, release_seconds=0)
    nodes.tell(other, lease_seconds=1)  # It was killed.
    require_only_node(nodes)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_an_address_is_free_until_someone_listens_there(host: str) -> None:
    port = free_port()
    require_free_address(host, port, release_seconds=0)
    refused = pytest.raises(StartRefused, match=f"Port {port} is in use.*SLUICE_PORT")
    with socket.create_server(("127.0.0.1", port)), refused:
        require_free_address(host, port, release_seconds=0)
    require_free_address(host, port, release_seconds=0)


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid", "2001:db8::1"])
def test_an_address_of_another_machine_is_refused(host: str) -> None:
    with pytest.raises(StartRefused, match=f"{host} is not an address of.*SLUICE_HOST"):
        require_free_address(host, free_port(), release_seconds=0)


def test_a_privileged_port_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_socket: socket.socket, _address: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket, "socket", _socket_that(refuse))
    with pytest.raises(StartRefused, match=r"may not listen on port 80.*SLUICE_PORT"):
        require_free_address("127.0.0.1", 80, release_seconds=0)


def _socket_that(refuse: object) -> type:
    return type("Refusing", (socket.socket,), {"bind": refuse})
