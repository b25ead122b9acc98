"""Settings from the environment: the contract's defaults, and all bad values reported at once."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from app.core.access import Role
from app.core.ranges import RangeSet
from app.run.build import build_services
from app.run.server.start_checks import (
    StartRefused,
    require_free_address,
    require_usable_folders,
)
from app.settings import Settings, SettingsError, from_env, staging
from app.settings.environment import variables, without_effect
from app.settings.removed import REMOVED
from app.settings.staging import choose_staging, remember_staging
from scripts.fleet.programs import free_port

GOOD = {
    "SLUICE_HOST": "::1",
    "SLUICE_PORT": "9000",
    "SLUICE_STAGING_DIR": "/var/tmp/staging",
    "SLUICE_DATA_DIR": "/srv/videos",
    "SLUICE_CHUNK_BYTES": "1048576",
    "SLUICE_MAX_UPLOAD_BYTES": "5",
    "SLUICE_ALLOWED_EXTENSIONS": " MP4, .mov,,webm ",
    "SLUICE_WORKERS": "3",
    "SLUICE_THREADS": "7",
    "SLUICE_DURABILITY": "file",
    "SLUICE_EXPIRY_SECONDS": "0.5",
    "SLUICE_GRACEFUL_SECONDS": "3",
    "SLUICE_ACCEL_REDIRECT": "/protected/",
    "SLUICE_RENDITIONS": "eager",
    "SLUICE_MEDIA_CACHE_BYTES": "0",
    "SLUICE_LOG_LEVEL": "debug",
}

BAD = [
    ("SLUICE_PORT", "0"),
    ("SLUICE_PORT", "65536"),
    ("SLUICE_PORT", "http"),
    ("SLUICE_PORT", ""),
    ("SLUICE_STAGING_DIR", ""),
    ("SLUICE_DATA_DIR", ""),
    ("SLUICE_CHUNK_BYTES", "0"),
    ("SLUICE_CHUNK_BYTES", "1.5"),
    ("SLUICE_MAX_UPLOAD_BYTES", "-1"),
    ("SLUICE_MAX_UPLOAD_BYTES", "9223372036854775808"),
    ("SLUICE_WORKERS", "0"),
    ("SLUICE_THREADS", "many"),
    ("SLUICE_DURABILITY", ""),
    ("SLUICE_EXPIRY_SECONDS", "0"),
    ("SLUICE_EXPIRY_SECONDS", "nan"),
    ("SLUICE_EXPIRY_SECONDS", "inf"),
    ("SLUICE_RENDITIONS", "on"),
    ("SLUICE_OIDC_ISSUER", "http://login.example"),
    ("SLUICE_OIDC_ISSUER", "login.example"),
    ("SLUICE_OIDC_ISSUER", "https://login.example?a"),
    ("SLUICE_OIDC_JOIN", "@.example.org"),
    ("SLUICE_OIDC_JOIN", "@"),
    ("SLUICE_OIDC_JOIN", "films=guest"),
    ("SLUICE_OIDC_JOIN", "=viewer"),
    ("SLUICE_MEDIA_CACHE_BYTES", "-1"),
    ("SLUICE_STORAGE", "/srv/videos"),
    ("SLUICE_STORAGE", "s3://Videos"),
    ("SLUICE_STORAGE", "s3://videos/../other"),
    ("SLUICE_S3_REGION", "eu central"),
    ("SLUICE_SPOOL_BYTES", "0"),
    ("SLUICE_ACCEL_REDIRECT", "/"),
    ("SLUICE_ACCEL_REDIRECT", "protected/"),
    ("SLUICE_ACCEL_REDIRECT", "/protected"),
    ("SLUICE_ACCEL_REDIRECT", "/a/../b/"),
    ("SLUICE_ACCEL_REDIRECT", "/a b/"),
    ("SLUICE_LOG_LEVEL", "loud"),
    ("SLUICE_WORKERS", "99999999999999999999"),
    ("SLUICE_WORKERS", "1_0"),
    ("SLUICE_THREADS", "4097"),
    ("SLUICE_CHUNK_BYTES", "20 furlongs"),
    ("SLUICE_EXPIRY_SECONDS", "a week"),
    ("SLUICE_DRAIN_SECONDS", "1e20"),
    ("SLUICE_AUDIT_SECONDS", "1e-9"),
    ("SLUICE_PROJECT_QUOTA_BYTES", "100000000000000000000"),
    ("SLUICE_MAX_RESERVED_BYTES_PER_LINK", "100000000000000000000"),
    ("SLUICE_REQUESTS_PER_MINUTE", "1e3"),
    ("SLUICE_SIGN_IN", "perhaps"),
    ("SLUICE_HOST", ""),
    ("SLUICE_HOST", "["),
    ("SLUICE_HOST", "8000"),
    ("SLUICE_HOST", "http://localhost"),
    ("SLUICE_STAGING_DIR", " "),
    ("SLUICE_DATA_DIR", "~nosuch/videos"),
    ("SLUICE_DATA_DIR", "http://"),
    ("SLUICE_DATA_DIR", "*"),
    ("SLUICE_DATA_DIR", '"/srv/videos"'),
    ("SLUICE_ALLOWED_EXTENSIONS", "*"),
    ("SLUICE_ALLOWED_EXTENSIONS", "*.mp4"),
    ("SLUICE_ALLOWED_EXTENSIONS", "mp4;mov"),
    ("SLUICE_ALLOWED_EXTENSIONS", "mp4 mov"),
    ("SLUICE_ALLOWED_EXTENSIONS", ","),
    ("SLUICE_MAIL_FROM", ""),
    ("SLUICE_MAIL_FROM", "yes"),
    ("SLUICE_MAIL_FROM", "a@example.org\nBcc: b@example.org"),
    ("SLUICE_MAIL_FROM", '"'),
    ("SLUICE_MAIL_FROM", "a@example.org, b@example.org"),
    ("SLUICE_MAIL_FROM", " .@"),
    ("SLUICE_MAIL_FROM", ".e::'0=?utf-8?q?"),
    ("SLUICE_MAIL_FROM", "Sluice <films@example.org"),
    ("SLUICE_CORS_ORIGINS", "http://["),
    ("SLUICE_TRUSTED_PROXIES", "10.0.0.1/8"),
    ("SLUICE_TRUSTED_PROXIES", "proxy"),
    ("SLUICE_PUBLIC_URL", "videos.example"),
]

BAD_SECRETS = [
    ("SLUICE_OIDC_CLIENT_SECRET", "ü"),
    ("SLUICE_DATABASE_URL", "postgresql://sluice:geheim@db.example"),
    ("SLUICE_DATABASE_URL", "mysql://sluice:geheim@db.example/sluice"),
    ("SLUICE_DATABASE_URL", "sqlite:////srv/sluice.db"),
    ("SLUICE_DATABASE_URL", "geheim"),
    ("SLUICE_DATABASE_URL", "postgresql://sluice@db.example:geheim/sluice"),
    ("SLUICE_DATABASE_URL", "postgresql://sluice:geheim@db.example:/sluice"),
    ("SLUICE_DATABASE_URL", "postgresql://sluice:geheim\u2100@db.example/sluice"),
    ("SLUICE_DATABASE_URL", "postgresql://sluice:[geheim]@db.example/sluice"),
    ("SLUICE_S3_ENDPOINT", "geheim.example:9000"),
    ("SLUICE_S3_ENDPOINT", "https://s3.example/minio"),
    ("SLUICE_S3_ENDPOINT", "https://name:geheim@s3.example"),
    ("SLUICE_S3_ENDPOINT", "https://name:geheim#geheim@s3.example"),
    ("SLUICE_SMTP_URL", "smtps://name:geheim/geheim@mail.example"),
    ("SLUICE_SMTP_URL", "smtps://name:geheim\u2100@mail.example"),
]


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_a_database_is_reached_by_the_driver_that_is_there(scheme: str) -> None:
    settings = from_env({"SLUICE_DATABASE_URL": f"{scheme}://sluice@db.example/sluice"})
    assert settings.records_url == "postgresql+psycopg://sluice@db.example/sluice"


def test_defaults_match_the_contract() -> None:
    settings = from_env({})
    assert (settings.host, settings.port) == ("127.0.0.1", 8000)
    assert settings.staging_dir == choose_staging().path
    assert settings.data_dir == Path.cwd() / "data"
    assert settings.chunk_bytes == 20 * 1024 * 1024
    assert settings.max_upload_bytes == 1024**4
    assert settings.threads == 64
    assert settings.workers >= 2
    assert settings.durability == "chunk"
    assert settings.expiry_seconds == 7 * 24 * 3600
    assert settings == Settings()


def test_every_variable_is_read() -> None:
    settings = from_env(GOOD)
    assert (settings.host, settings.port) == ("::1", 9000)
    assert settings.staging_dir == Path("/var/tmp/staging")
    assert settings.library_dir == Path("/srv/videos/library")
    assert settings.records_url == "sqlite:////srv/videos/sluice.db"
    assert settings.allowed_extensions == {"mp4", "mov", "webm"}
    assert (settings.workers, settings.threads) == (3, 7)
    assert (settings.durability, settings.log_level) == ("file", "debug")
    assert settings.expiry_seconds == 0.5
    assert settings.graceful_seconds == 3.0
    assert settings.accel_redirect == "/protected/"


def test_the_policy_has_the_operators_limits() -> None:
    policy = from_env(GOOD).policy
    assert policy.max_length == 5
    assert policy.allowed_extensions == {"mp4", "mov", "webm"}


def test_an_upload_may_be_as_large_as_a_file_can_be() -> None:
    most = (1 << 63) - 1
    settings = from_env({"SLUICE_MAX_UPLOAD_BYTES": str(most)})
    assert RangeSet().missing(settings.max_upload_bytes).total == most
    with pytest.raises(SettingsError, match=f"SLUICE_MAX_UPLOAD_BYTES.*must be .* 1 to {most} "):
        from_env({"SLUICE_MAX_UPLOAD_BYTES": str(most + 1)})


@pytest.mark.parametrize(("variable", "text"), BAD)
def test_an_invalid_value_is_named_with_its_variable(variable: str, text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        from_env({**GOOD, variable: text})
    assert f"{variable}={text!r}: " in str(caught.value)


@pytest.mark.parametrize(("variable", "text"), BAD_SECRETS)
def test_an_invalid_secret_is_named_and_not_shown(variable: str, text: str) -> None:
    """What a server writes as it starts is kept in logs."""
    with pytest.raises(SettingsError) as caught:
        from_env({**GOOD, variable: text})
    assert f"{variable}: " in str(caught.value)
    assert text not in str(caught.value)
    assert "geheim" not in str(caught.value)


def test_secrets_are_not_shown_with_the_settings() -> None:
    secrets = {
        "SLUICE_DATABASE_URL": "postgresql://sluice:geheim-1@db.example/sluice",
        "SLUICE_OIDC_CLIENT_SECRET": "geheim-2",
        "SLUICE_SMTP_URL": "smtps://sluice:geheim-3@mail.example",
        "SLUICE_PUBLIC_URL": "https://videos.example",
        "SLUICE_SECURE_LINK_SECRET": "geheim4isLongEnoughForTheNginxInFront",
    }
    provider = {"SLUICE_OIDC_ISSUER": "https://login.example", "SLUICE_OIDC_CLIENT_ID": "sluice"}
    shown = repr(from_env({**GOOD, **provider, **secrets}))
    assert "port=9000" in shown
    assert "geheim" not in shown


def test_a_time_beyond_any_calendar_is_refused() -> None:
    with pytest.raises(SettingsError, match="SLUICE_EXPIRY_SECONDS"):
        from_env({"SLUICE_EXPIRY_SECONDS": "1e300"})


def test_all_bad_values_are_reported_at_once() -> None:
    bad = dict([*BAD, *BAD_SECRETS])
    with pytest.raises(SettingsError) as caught:
        from_env(bad)
    lines = str(caught.value).splitlines()
    assert len(lines) == 1 + len(bad)
    assert {re.split("[=:]", line.strip())[0] for line in lines[1:]} == set(bad)


def test_other_variables_are_ignored() -> None:
    assert from_env({"PORT": "x", "HOME": "/", "sluice_port": "y"}) == Settings()


def test_folders_are_absolute_whatever_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = from_env({"SLUICE_DATA_DIR": "videos", "SLUICE_STAGING_DIR": "~/staging"})
    assert settings.data_dir == tmp_path / "videos"
    assert settings.staging_dir == Path.home() / "staging"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine with a /tmp and a /var/tmp of its own."""
    return Machine(tmp_path, monkeypatch)


class Machine:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tmp, self.var_tmp, self.data = folder / "tmp", folder / "var_tmp", folder / "data"
        for path in (self.tmp, self.var_tmp, self.data):
            path.mkdir()
        self._in_memory: set[Path] = set()
        monkeypatch.setattr(staging, "is_in_memory", lambda path: path in self._in_memory)

    def keep_in_memory(self, *paths: Path) -> None:
        self._in_memory.update(paths)

    def choose(self, data: Path | None = None) -> staging.StagingChoice:
        return choose_staging(data, temporary=self.tmp, lasting=self.var_tmp)


def test_staging_is_in_tmp_where_that_is_on_a_disk(machine: Machine) -> None:
    choice = machine.choose(machine.data)
    assert choice.path == machine.tmp / "sluice"
    assert choice.reason == f"{machine.tmp} is on a disk"


def test_staging_is_in_var_tmp_where_tmp_is_in_memory(machine: Machine) -> None:
    machine.keep_in_memory(machine.tmp)
    choice = machine.choose(machine.data)
    assert choice.path == machine.var_tmp / "sluice"
    assert choice.reason == f"{machine.tmp} is in memory"
    machine.keep_in_memory(machine.var_tmp)
    assert machine.choose().path == machine.tmp / "sluice", "there is nothing better"


@pytest.mark.parametrize("is_in_memory", [False, True])
def test_the_staging_folder_is_per_user_if_the_usual_one_is_another_users(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, is_in_memory: bool
) -> None:
    parent = machine.var_tmp if is_in_memory else machine.tmp
    machine.keep_in_memory(*([machine.tmp] if is_in_memory else []))
    (parent / "sluice").mkdir()
    assert machine.choose().path == parent / "sluice", "it is ours"
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    choice = machine.choose()
    assert choice.path == parent / "sluice-4711"
    assert choice.reason.endswith(f"{parent / 'sluice'} belongs to another user")


def test_the_staging_folder_in_use_stays_while_it_holds_uploads(machine: Machine) -> None:
    used = machine.tmp / "sluice"
    used.mkdir()
    remember_staging(machine.data, used)
    upload = used / ("0" * 32)
    upload.touch()
    machine.keep_in_memory(machine.tmp)
    choice = machine.choose(machine.data)
    assert (choice.path, choice.reason) == (
        used,
        "it holds unfinished uploads of this library",
    )
    upload.unlink()
    assert machine.choose(machine.data).path == machine.var_tmp / "sluice"


def test_a_library_that_remembers_no_folder_has_its_uploads_in_tmp(machine: Machine) -> None:
    used = machine.tmp / "sluice"
    used.mkdir()
    (used / ("0" * 32)).touch()
    machine.keep_in_memory(machine.tmp)
    assert machine.choose(machine.data).path == machine.var_tmp / "sluice", "no library yet"
    (machine.data / "sluice.db").touch()
    assert machine.choose(machine.data).path == used


@pytest.mark.parametrize("name", ["staging", "staging-folder"])
def test_a_note_that_names_no_folder_is_ignored(machine: Machine, name: str) -> None:
    for text in (b"", b"\0", b"relative", b"/\0", b"\xff"):
        (machine.data / name).write_bytes(text)
        assert machine.choose(machine.data).path == machine.tmp / "sluice"


def test_a_staging_folder_in_the_data_folder_is_remembered(machine: Machine) -> None:
    used = machine.data / "staging"
    used.mkdir()
    remember_staging(machine.data, used)
    assert staging.remembered_staging(machine.data) == used
    assert sorted(path.name for path in machine.data.iterdir()) == ["staging", "staging-folder"]


def test_a_note_of_an_older_version_is_the_later_one(machine: Machine) -> None:
    remember_staging(machine.data, machine.tmp / "before")
    (machine.data / "staging").write_text("/later")
    assert staging.remembered_staging(machine.data) == Path("/later")
    staging.rename_former_note(machine.data)
    assert staging.remembered_staging(machine.data) == Path("/later")
    assert [path.name for path in machine.data.iterdir()] == ["staging-folder"]


def test_a_note_that_cannot_be_written_leaves_nothing(machine: Machine) -> None:
    (machine.data / "staging-folder" / "of somebody").mkdir(parents=True)
    remember_staging(machine.data, machine.tmp)
    assert [path.name for path in machine.data.iterdir()] == ["staging-folder"]


def test_a_note_survives_any_name_of_a_folder(machine: Machine) -> None:
    odd = machine.tmp / os.fsdecode(b"\xff\n folder")
    remember_staging(machine.data, odd)
    assert staging.remembered_staging(machine.data) == odd
    assert [path.name for path in machine.data.iterdir()] == ["staging-folder"]


def test_there_are_as_many_workers_as_cores_and_two_at_least() -> None:
    assert Settings().workers == max(2, len(os.sched_getaffinity(0)))


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Settings().port = 1  # type: ignore[misc]


def test_mail_needs_the_url_that_its_links_begin_with() -> None:
    environ = {"SLUICE_SMTP_URL": "smtps://mail.example"}
    with pytest.raises(SettingsError, match=r"SLUICE_SMTP_URL.*SLUICE_PUBLIC_URL"):
        from_env(environ)
    settings = from_env({**environ, "SLUICE_PUBLIC_URL": "https://films.example/videos/"})
    assert settings.link_url == "https://films.example/videos"
    assert from_env({}).link_url == "http://127.0.0.1:8000"


def test_a_provider_needs_a_client_id() -> None:
    environ = {"SLUICE_OIDC_ISSUER": "https://login.example"}
    with pytest.raises(SettingsError, match="SLUICE_OIDC_CLIENT_ID"):
        from_env(environ)
    settings = from_env({**environ, "SLUICE_OIDC_CLIENT_ID": "sluice"})
    assert (settings.oidc_issuer, settings.oidc_client_id) == ("https://login.example", "sluice")


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        ("SLUICE_CHUNK_BYTES", "20M", 20_000_000),
        ("SLUICE_CHUNK_BYTES", "20 MB", 20_000_000),
        ("SLUICE_CHUNK_BYTES", "20MiB", 20 * 1024 * 1024),
        ("SLUICE_MAX_UPLOAD_BYTES", "1.5TB", 1_500_000_000_000),
        ("SLUICE_MEDIA_CACHE_BYTES", " 10gb ", 10_000_000_000),
        ("SLUICE_BYTES_PER_SECOND", "1.5MB", 1_500_000.0),
        ("SLUICE_EXPIRY_SECONDS", "7d", 604_800.0),
        ("SLUICE_EXPIRY_SECONDS", "7 days", 604_800.0),
        ("SLUICE_EXPIRY_SECONDS", "2H", 7200.0),
        ("SLUICE_EXPIRY_SECONDS", "10min", 600.0),
        ("SLUICE_EXPIRY_SECONDS", "1.5h", 5400.0),
        ("SLUICE_EXPIRY_SECONDS", "1e3", 1000.0),
        ("SLUICE_DRAIN_SECONDS", "0", 0.0),
        ("SLUICE_WORKERS", " 3 ", 3),
        ("SLUICE_SIGN_IN", " Passkeys", frozenset({"passkeys"})),
        ("SLUICE_SIGN_IN", "", frozenset()),
        ("SLUICE_DIRECT_UPLOADS", "off", False),
        ("SLUICE_WEBHOOK_PRIVATE", "TRUE", True),
        ("SLUICE_WEBHOOK_PRIVATE", "Yes", True),
        ("SLUICE_LOG_LEVEL", "INFO", "info"),
        ("SLUICE_DURABILITY", "Chunk", "chunk"),
        ("SLUICE_HOST", "[::1]", "[::1]"),
        ("SLUICE_HOST", "films.example", "films.example"),
        ("SLUICE_MAIL_FROM", "Sluice <films@example.org>", "Sluice <films@example.org>"),
        ("SLUICE_MAIL_FROM", "Films Inc. <films@example.org>", "Films Inc. <films@example.org>"),
    ],
)
def test_a_value_is_understood_as_people_write_it(variable: str, text: str, value: object) -> None:
    name = variable.removeprefix("SLUICE_").lower()
    assert getattr(from_env({variable: text}), name) == value


def test_a_refusal_says_what_is_understood() -> None:
    with pytest.raises(SettingsError) as caught:
        from_env({"SLUICE_EXPIRY_SECONDS": "soon"})
    assert str(caught.value) == (
        "This setting cannot be used: SLUICE_EXPIRY_SECONDS='soon': must be a time from 0.1 to "
        "3153600000 seconds, as in 90, 10min, 2h or 7d"
    )


@pytest.mark.parametrize(
    ("environ", "missing"),
    [
        ({"SLUICE_OIDC_CLIENT_ID": "sluice"}, "SLUICE_OIDC_ISSUER"),
        ({"SLUICE_OIDC_CLIENT_SECRET": "geheim"}, "SLUICE_OIDC_ISSUER"),
        ({"SLUICE_OIDC_JOIN": "@example.org"}, "SLUICE_OIDC_ISSUER"),
        ({"SLUICE_DIRECT_UPLOADS": "1"}, "SLUICE_STORAGE"),
        ({"SLUICE_DIRECT_DOWNLOADS": "1"}, "SLUICE_STORAGE"),
        ({"SLUICE_S3_ENDPOINT": "https://s3.example"}, "SLUICE_STORAGE"),
    ],
)
def test_half_of_a_set_of_settings_is_refused(environ: dict[str, str], missing: str) -> None:
    (variable,) = environ
    with pytest.raises(SettingsError) as caught:
        from_env(environ)
    assert f"{variable}: must be set together with {missing}" in str(caught.value)
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("host", [{"SLUICE_ACCESS": "accounts"}, {"SLUICE_HOST": "0.0.0.0"}])
def test_accounts_without_a_way_to_sign_in_are_refused(host: dict[str, str]) -> None:
    off = {"SLUICE_SIGN_IN": ""}
    with pytest.raises(SettingsError, match="no one could sign in"):
        from_env({**host, **off})
    provider = {
        "SLUICE_OIDC_ISSUER": "https://login.example",
        "SLUICE_OIDC_CLIENT_ID": "sluice",
    }
    assert from_env({**host, **off, **provider}).oidc_client_id == "sluice"
    assert from_env(off).is_open, "no one signs in there"


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("SLUICE_DATADIR", "SLUICE_DATA_DIR"),
        ("SLUICE_PROT", "SLUICE_PORT"),
        ("SLUICE_MAX_UPLOAD_SIZE", "SLUICE_MAX_UPLOAD_BYTES"),
        ("sluice_port", "SLUICE_PORT"),
        ("SLUICEPORT", "SLUICE_PORT"),
    ],
)
def test_a_misspelt_variable_is_reported_with_the_nearest_name(variable: str, meant: str) -> None:
    (line,) = without_effect({"PATH": "/bin", variable: "x", "SLUICE_PORT": "8000"})
    assert line == f"{variable} is not a setting and has no effect: did you mean {meant}?"


# ---- settings of earlier versions ----------------------------------------------------------------


@pytest.mark.parametrize("variable", REMOVED)
def test_a_removed_setting_is_reported_with_what_replaces_it(variable: str) -> None:
    (line,) = without_effect({variable: "1", "SLUICE_PORT": "8000"})
    assert line.startswith(f"{variable} is no longer a setting and has no effect: ")
    assert line.endswith(REMOVED[variable].instead)


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("SLUICE_BODY_IDLE_SECONDS", "30"),
        ("SLUICE_BODY_IDLE_SECONDS", ""),
        ("SLUICE_MIN_BYTES_PER_SECOND", "0"),
        ("SLUICE_RESERVATION_SECONDS", "1h"),
        ("SLUICE_NEW_UPLOADS_PER_MINUTE", ""),
        ("SLUICE_CONNECTIONS_PER_ADDRESS", "512"),
        ("SLUICE_LOG_FORMAT", "text"),
        ("SLUICE_MAX_RESERVED_BYTES_OF_LINKS", "536870912000"),
        ("SLUICE_MAX_RESERVED_BYTES_PER_SENDER", "0"),
        ("SLUICE_NEW_UPLOADS_PER_MINUTE", "1200"),
        ("SLUICE_NEW_UPLOADS_PER_MINUTE", "0"),
        ("SLUICE_PASSKEYS", "yes"),
        ("SLUICE_SESSION_SECONDS", "91d"),
        ("SLUICE_SWEEP_SECONDS", "1"),
    ],
)
def test_a_server_starts_with_a_removed_setting_that_limited_no_more(
    variable: str, text: str
) -> None:
    accounts = {"SLUICE_ACCESS": "accounts"}
    assert from_env({**accounts, variable: text}) == from_env(accounts)


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("SLUICE_BODY_IDLE_SECONDS", "5"),
        ("SLUICE_BODY_IDLE_SECONDS", "soon"),
        ("SLUICE_MIN_BYTES_PER_SECOND", "1MB"),
        ("SLUICE_RESERVATION_SECONDS", "1min"),
        ("SLUICE_CONNECTIONS_PER_ADDRESS", "100"),
        ("SLUICE_MAX_RESERVED_BYTES_OF_LINKS", "50GB"),
        ("SLUICE_MAX_RESERVED_BYTES_PER_SENDER", "50GB"),
        ("SLUICE_NEW_UPLOADS_PER_MINUTE", "100"),
        ("SLUICE_PASSKEYS", "0"),
        ("SLUICE_PASSWORDS", "off"),
        ("SLUICE_SESSION_SECONDS", "8h"),
        ("SLUICE_SESSION_SECONDS", "later"),
    ],
)
def test_a_removed_limit_that_would_be_lost_stops_the_start(variable: str, text: str) -> None:
    with pytest.raises(SettingsError) as refused:
        from_env({"SLUICE_ACCESS": "accounts", variable: text})
    assert f"{variable}={text!r}: is no longer a setting" in str(refused.value)
    assert REMOVED[variable].instead in str(refused.value)


def test_ways_to_sign_in_limit_nothing_on_an_open_server() -> None:
    assert from_env({"SLUICE_ACCESS": "open", "SLUICE_PASSKEYS": "0"}).is_open


def test_limits_that_follow_from_others_have_bounds_of_their_own() -> None:
    accounts = {"SLUICE_ACCESS": "accounts"}
    day = 24 * 3600
    for idle, longest in (("1d", 3), ("30d", 90), ("60d", 90), ("100d", 100)):
        settings = from_env({**accounts, "SLUICE_SESSION_IDLE_SECONDS": idle})
        assert settings.session_seconds == longest * day
    unlimited = {"SLUICE_REQUESTS_PER_MINUTE": "0", "SLUICE_MAX_RESERVED_BYTES_PER_LINK": "0"}
    settings = from_env({**accounts, **unlimited})
    assert (settings.request_limit, settings.new_upload_limit) == (0, 1200)
    assert settings.max_reserved_bytes_of_links == 500 * 1024**3
    assert from_env({"SLUICE_ACCESS": "open", **unlimited}).new_upload_limit == 0


def test_a_removed_limit_that_its_replacement_keeps_does_not_stop_the_start() -> None:
    old = {"SLUICE_PASSKEYS": "0", "SLUICE_SESSION_SECONDS": "3d"}
    new = {"SLUICE_SIGN_IN": "passwords", "SLUICE_SESSION_IDLE_SECONDS": "1d"}
    assert from_env({**old, **new}) == from_env(new)


def test_who_may_join_is_read_with_roles() -> None:
    provider = {"SLUICE_OIDC_ISSUER": "https://login.example", "SLUICE_OIDC_CLIENT_ID": "sluice"}
    text = " @Example.org, films=Editor,cn=Staff = viewer ,"
    settings = from_env({**provider, "SLUICE_OIDC_JOIN": text})
    assert dict(settings.oidc_join) == {
        "@example.org": Role.UPLOADER,
        "films": Role.EDITOR,
        "cn=Staff": Role.VIEWER,
    }


def test_only_tests_choose_other_constants() -> None:
    assert from_env({"SLUICE_SWEEP_SECONDS": "1"}).sweep_seconds == 60.0
    changed = from_env({"SLUICE_TEST_CONSTANTS": "sweep_seconds=0.2 connections_per_address=3"})
    assert (changed.sweep_seconds, changed.connections_per_address) == (0.2, 3)
    assert "SLUICE_SWEEP_SECONDS" not in variables()
    with pytest.raises(SettingsError, match="access is not a constant"):
        from_env({"SLUICE_TEST_CONSTANTS": "access=open"})


def test_variables_of_the_client_and_of_tools_are_known() -> None:
    of_client = (Path(__file__).parent.parent / "client").rglob("*.py")
    texts = [path.read_text() for path in of_client]
    found = {name for text in texts for name in re.findall("SLUICE_[A-Z_]*[A-Z](?!_)\\b", text)}
    assert {"SLUICE_URL", "SLUICE_API_KEY"} <= found
    others = {"SLUICE_SUPERVISOR_PID": "1", "SLUICE_NODE": "x", **dict.fromkeys(found, "x")}
    assert without_effect(others) == []


def test_a_variable_that_is_like_no_setting_is_reported_too() -> None:
    (line,) = without_effect({"SLUICE_\n": "x"})
    assert line == (
        "SLUICE_\\n is not a setting and has no effect: docs/settings.md lists the settings"
    )


NONSENSE = [
    *("", " ", "0", "-1", "1e20", "1e-9", "99999999999999999999", "nan", "inf", "0x10", "1_000"),
    *("\u0663", "20M", "7d", "true", "INFO", "none", "~nosuch/x", "http://", "*", "mp4;mov"),
    *('"20"', "[", "a\nb", "\udcff", "../../etc", "x" * 5000, "@", "s3://x", "\0"),
]


@pytest.mark.parametrize("variable", list(variables()))
@pytest.mark.parametrize("text", NONSENSE, ids=lambda text: ascii(text)[:12])
def test_nonsense_is_refused_in_one_line_that_names_the_variable_or_works(
    variable: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    environ = {"SLUICE_STAGING_DIR": "staging", "SLUICE_DATA_DIR": "data", variable: text}
    settings, refusal = start_with(environ)
    if settings is None:
        assert variable in refusal
        assert refusal.isprintable()
        assert not re.search("invalid literal|could not convert|appear", refusal)
    else:
        value = getattr(settings, variables()[variable].name)
        assert not isinstance(value, int | float) or 0 <= value < 1 << 63
        assert not isinstance(value, str) or value.isprintable()


def start_with(environ: dict[str, str]) -> tuple[Settings | None, str]:
    """What a server does before it opens anything; its settings, or else its refusal."""
    try:
        settings = from_env(environ)
        require_usable_folders(settings)
        require_free_address(settings.host, free_port(), release_seconds=0)
        build_services(settings)
    except (SettingsError, StartRefused) as error:
        return None, str(error)
    return settings, ""
