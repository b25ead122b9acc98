"""When systemd-tmpfiles removes files, as its configuration says."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.run.server import start_checks
from app.run.server.start_checks import CleaningAge, cleaning_age, staging_warnings
from app.settings import from_env


def configure(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.conf").write_text(text)
    return folder


def test_files_are_removed_at_the_age_of_the_folder_above(tmp_path: Path) -> None:
    folder = configure(
        tmp_path / "lib",
        tmp="# comment\n\nq /tmp 1777 root root 10d\nq /var/tmp 1777 root root 30d\n",
    )
    file = folder / "tmp.conf"
    assert cleaning_age(Path("/tmp/sluice"), [folder]) == CleaningAge("/tmp", 864_000.0, file)
    assert cleaning_age(Path("/var/tmp/sluice"), [folder]) == CleaningAge(
        "/var/tmp", 2_592_000.0, file
    )
    assert cleaning_age(Path("/srv/staging"), [folder]) is None
    assert cleaning_age(Path("/tmpfiles"), [folder]) is None


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        ("D /tmp 1777 root root -", None),
        ("D /tmp", None),
        ("d! /tmp 1777 root root 1w2d", 777_600.0),
        ("e /tmp - - - am:12h", 43_200.0),
        ("d /tmp - - - ~5", 5.0),
        ("d /tmp - - - soon", None),
        ("R /tmp/sluice - - - 1d", None),
    ],
)
def test_an_age_is_read_as_systemd_reads_it(
    tmp_path: Path, line: str, seconds: float | None
) -> None:
    found = cleaning_age(Path("/tmp/sluice"), [configure(tmp_path / "lib", tmp=line)])
    assert (found and found.seconds) == seconds


def test_a_file_of_the_operator_replaces_that_of_the_system(tmp_path: Path) -> None:
    system = configure(tmp_path / "lib", tmp="q /tmp 1777 root root 10d")
    own = configure(tmp_path / "etc", tmp="q /tmp 1777 root root 90d")
    found = cleaning_age(Path("/tmp/sluice"), [own, system])
    assert found is not None
    assert found.seconds == 90 * 86_400


def test_an_excluded_folder_is_not_cleaned(tmp_path: Path) -> None:
    folder = configure(tmp_path / "lib", a="x /tmp/sluice", tmp="q /tmp 1777 root root 10d")
    assert cleaning_age(Path("/tmp/sluice"), [folder]) is None


def test_an_expiry_beyond_the_cleaning_is_warned_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    age = CleaningAge("/tmp", 864_000.0, Path("/usr/lib/tmpfiles.d/tmp.conf"))
    monkeypatch.setattr(start_checks, "cleaning_age", lambda _folder: age)
    environ = {"SLUICE_DATA_DIR": str(tmp_path), "SLUICE_STAGING_DIR": "/tmp/sluice"}
    (warning,) = staging_warnings(
        from_env({**environ, "SLUICE_EXPIRY_SECONDS": "11d"}), is_systemd=True
    )
    assert "10 days" in warning
    assert "SLUICE_EXPIRY_SECONDS (11 days)" in warning
    assert staging_warnings(from_env(environ), is_systemd=True) == [], "a week is less"
    assert (
        staging_warnings(from_env({**environ, "SLUICE_EXPIRY_SECONDS": "11d"}), is_systemd=False)
        == []
    )
