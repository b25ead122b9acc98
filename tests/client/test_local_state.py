"""Files, names, records and settings on this machine."""

from __future__ import annotations

import os
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_client import FileProblem, Options, find_files, load_options, resume_store
from sluice_client.errors import SluiceError
from sluice_client.file_names import name_in, usable_name
from sluice_client.local_file import LocalFile
from sluice_client.options import BadSetting, variable_of
from sluice_client.resume_store import EXPIRY_SECONDS, ResumeStore, UploadRecord
from sluice_client.sources import Left

RECORD = UploadRecord("http://a", "print", "0a1b", "/film.mp4", 10)


@given(st.text(), st.booleans())
def test_a_name_from_a_server_stays_in_its_folder(name: str, is_windows: bool) -> None:
    usable = usable_name(name, "fallback.bin", is_windows=is_windows)
    assert usable
    assert "/" not in usable
    assert "\\" not in usable
    assert not usable.startswith(".")
    assert not any(ord(character) < 32 for character in usable)
    assert len(usable.encode()) <= 255


@pytest.mark.parametrize(
    "name",
    [
        "con.mp4",
        "NUL",
        'a:b*c?"<d>|.mov',
        "trailing dot.",
        "no\u00a0break.mp4",
        "u\u0308.mp4",
        "n" * 251 + ".mp4",
        "family \U0001f468\u200d\U0001f469.mp4",
    ],
)
def test_a_name_that_this_system_can_hold_is_not_changed(name: str) -> None:
    assert usable_name(name, "fallback.bin", is_windows=False) == name


def test_names_are_changed_where_windows_cannot_hold_them() -> None:
    assert usable_name("con.mp4", "id.bin", is_windows=True) == "id.bin"
    assert usable_name("a:b?.mp4 .", "id.bin", is_windows=True) == "a_b_.mp4"


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ('attachment; filename="film.mp4"', "film.mp4"),
        ("inline; filename=\"?l.mp4\"; filename*=UTF-8''%C3%96l.mp4", "Öl.mp4"),
        ('attachment; filename="../../etc/passwd"', "passwd"),
        ('attachment; filename="..\\\\..\\\\run.bat"', "run.bat"),
        ('attachment; filename=".bashrc"', "bashrc"),
        ("attachment; filename*=UTF-8''a%2F..%2F%1B%5B31m.mp4", "_[31m.mp4"),
        ("attachment", "id.bin"),
        ("", "id.bin"),
    ],
)
def test_names_are_taken_from_the_header_and_made_safe(header: str, name: str) -> None:
    assert usable_name(name_in(header), "id.bin") == name


def used_at(folder: Path, fingerprint: str, moment: float | None = None) -> float:
    """When the record was used last, or set to `moment`."""
    with closing(sqlite3.connect(folder / "uploads.sqlite3")) as database, database:
        if moment is not None:
            change = "UPDATE uploads SET used_at = ? WHERE fingerprint = ?"
            database.execute(change, (moment, fingerprint))
        query = "SELECT used_at FROM uploads WHERE fingerprint = ?"
        found: float = database.execute(query, (fingerprint,)).fetchone()[0]
        return found


def test_a_record_survives_and_is_forgotten(tmp_path: Path) -> None:
    store = ResumeStore(tmp_path)
    odd = replace(RECORD, fingerprint="odd", path="/\udcff.mp4", is_stored=True)
    store.save(odd)
    store.save(RECORD)
    again = ResumeStore(tmp_path)
    assert again.all() == [odd, RECORD]
    assert again.load("http://a", "print", "odd", "other") == {"print": RECORD, "odd": odd}
    assert again.load("http://b", "print") == {}
    again.forget("http://a", "print", "other")
    assert again.all() == [odd]


@pytest.mark.parametrize("damage", ["emptied", "overwritten", "cut off"])
def test_a_damaged_database_is_replaced(tmp_path: Path, damage: str) -> None:
    store = ResumeStore(tmp_path)
    store.save(RECORD)
    path = tmp_path / "uploads.sqlite3"
    sound = path.read_bytes()
    damaged = {"emptied": b"", "overwritten": b"x" * len(sound), "cut off": sound[:5000]}
    path.write_bytes(damaged[damage])
    assert store.load("http://a", "print") == {}
    assert store.all() == []
    store.save(RECORD)
    assert store.load("http://a", "print") == {"print": RECORD}


def test_an_id_that_would_change_a_url_is_not_read_from_a_record(tmp_path: Path) -> None:
    store = ResumeStore(tmp_path)
    store.save(replace(RECORD, id="../../api/videos/x"))
    assert store.load("http://a", "print") == {}
    assert store.all() == []


def test_old_records_are_swept(tmp_path: Path) -> None:
    store = ResumeStore(tmp_path)
    store.save(RECORD, replace(RECORD, fingerprint="old"))
    used_at(tmp_path, "old", time.time() - EXPIRY_SECONDS - 60)
    (tmp_path / "uploads").mkdir()
    (tmp_path / "uploads" / f"{'1a' * 16}.json").write_bytes(b"{}")
    (tmp_path / "uploads" / "x1.tmp").write_bytes(b"")
    store.sweep()
    assert store.all() == [RECORD]
    assert [path.name for path in tmp_path.iterdir()] == ["uploads.sqlite3"]


def test_files_that_are_no_records_stay(tmp_path: Path) -> None:
    video = tmp_path / "uploads" / "film.mp4"
    video.parent.mkdir()
    video.write_bytes(b"film")
    ResumeStore(tmp_path).sweep()
    assert video.read_bytes() == b"film"


def test_records_are_private(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    ResumeStore(tmp_path).save(RECORD)
    assert (tmp_path / "uploads.sqlite3").stat().st_mode & 0o777 == 0o600


def test_text_that_is_no_unicode_is_not_remembered(tmp_path: Path) -> None:
    store = ResumeStore(tmp_path)
    store.save(replace(RECORD, id="\udcff"))
    assert store.load("http://a", "\udcff") == {}
    assert store.all() == []


def test_a_database_that_stays_locked_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resume_store, "LOCKED_SECONDS", 0.01)
    store = ResumeStore(tmp_path)
    store.save(RECORD)
    with closing(sqlite3.connect(tmp_path / "uploads.sqlite3", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        store.save(replace(RECORD, fingerprint="new"))
        assert store.load("http://a", "print") == {}
    assert store.all() == [RECORD]


@pytest.mark.parametrize("column", ["id", "path", "length"])
def test_a_damaged_row_counts_as_missing(tmp_path: Path, column: str) -> None:
    store = ResumeStore(tmp_path)
    store.save(RECORD)
    with closing(sqlite3.connect(tmp_path / "uploads.sqlite3")) as database, database:
        database.execute(f"UPDATE uploads SET {column} = NULL")
    assert store.load("http://a", "print") == {}
    assert store.all() == []


def test_a_record_in_use_does_not_expire(tmp_path: Path) -> None:
    store = ResumeStore(tmp_path)
    store.save(RECORD)
    used_at(tmp_path, "print", time.time() - EXPIRY_SECONDS + 60)
    assert store.load("http://a", "print")
    assert used_at(tmp_path, "print") > time.time() - 3600


def test_a_record_written_while_the_clock_was_ahead_expires_like_the_others(tmp_path: Path) -> None:
    store = ResumeStore(tmp_path)
    store.save(RECORD)
    used_at(tmp_path, "print", time.time() + 10 * EXPIRY_SECONDS)
    store.sweep()
    assert used_at(tmp_path, "print") < time.time() + 3600
    assert store.all() == [RECORD]


def test_an_unwritable_folder_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = ResumeStore(tmp_path / "file")
    store.save(RECORD)
    store.sweep()
    assert store.load("http://a", "print") == {}


def test_threads_and_programs_write_at_the_same_time(tmp_path: Path) -> None:
    prints = [f"print{number}" for number in range(200)]

    def work(part: int) -> None:
        store = ResumeStore(tmp_path)
        for fingerprint in prints[part::4]:
            store.save(replace(RECORD, fingerprint=fingerprint))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert sorted(ResumeStore(tmp_path).load("http://a", *prints)) == sorted(prints)


def test_a_fingerprint_changes_with_name_time_size_and_sampled_bytes(tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    path.write_bytes(bytes(1_000_000))
    prints = {fingerprint(path), fingerprint(path, "other.mp4")}
    os.utime(path, ns=(1, 1))
    prints.add(fingerprint(path))
    path.write_bytes(bytes(1_000_001))
    os.utime(path, ns=(1, 1))
    prints.add(fingerprint(path))
    path.write_bytes(b"x" + bytes(1_000_000))
    os.utime(path, ns=(1, 1))
    prints.add(fingerprint(path))
    assert len(prints) == 5
    assert fingerprint(path) in prints
    assert all(0 < len(text) <= 200 and text.isprintable() for text in prints)


def fingerprint(path: Path, name: str | None = None) -> str:
    file = LocalFile.at(path, name)
    with file.open() as descriptor:
        return file.fingerprint(descriptor)


def test_a_pipe_or_a_folder_is_not_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, word in ((tmp_path / "pipe", "a pipe"), (tmp_path, "a folder")):
        with pytest.raises(FileProblem, match=word):
            LocalFile.at(path)


def test_files_are_found_once_and_named_after_their_folder(tmp_path: Path) -> None:
    folder = tmp_path / "trip" / "day"
    folder.mkdir(parents=True)
    (folder / "a.mov").write_bytes(b"a")
    (folder / "b.mov").write_bytes(b"b")
    words = [str(tmp_path / "trip"), str(folder / "a.mov"), str(folder / "*.mov")]
    found = [file for file in find_files(words) if isinstance(file, LocalFile)]
    assert [file.name for file in found] == ["trip/day/a.mov", "trip/day/b.mov"]


def test_an_empty_folder_and_a_missing_file_are_reported(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    found = list(find_files([str(tmp_path / "empty"), str(tmp_path / "none")]))
    assert [(left.is_failure, left.reason) for left in found if isinstance(left, Left)] == [
        (False, "the folder is empty"),
        (True, "no such file or folder"),
    ]


def test_every_setting_is_documented_with_its_variable_and_default() -> None:
    text = (Path(__file__).parents[2] / "docs" / "client.md").read_text(encoding="utf-8")
    for name, item in Options.__dataclass_fields__.items():
        default = f"`{item.metadata['default']}`" if item.metadata["default"] else "none"
        assert f"| `{name}` | `{variable_of(name)}` | {default} |" in text


@pytest.mark.parametrize("code", [kind.exit_code for kind in SluiceError.__subclasses__()])
def test_every_exit_code_is_documented(code: int) -> None:
    text = (Path(__file__).parents[2] / "docs" / "client.md").read_text(encoding="utf-8")
    assert f"\n| {code} | " in text


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SLUICE_URL", "ftp://x"),
        ("SLUICE_CLIENT_PARALLEL", "0"),
        ("SLUICE_CLIENT_GIVE_UP_SECONDS", "soon"),
        ("SLUICE_CLIENT_LIMIT_RATE", "2MB"),
        ("SLUICE_CLIENT_LIMIT_RATE", "-1"),
    ],
)
def test_an_invalid_setting_is_named(variable: str, value: str) -> None:
    with pytest.raises(BadSetting, match=variable):
        load_options({variable: value})


def test_an_api_key_appears_neither_in_errors_nor_in_the_settings_repr() -> None:
    with pytest.raises(BadSetting) as bad:
        load_options({"SLUICE_API_KEY": "secret key"})
    assert str(bad.value) == "SLUICE_API_KEY: must be printable ASCII without spaces"
    assert "secret" not in repr(load_options({"SLUICE_API_KEY": "secret"}))
