"""Settings from the environment: the contract's defaults, and all bad values reported at once."""

import os
import re
from pathlib import Path

import pytest

from app.domain.ranges import RangeSet
from app.settings import Settings, SettingsError, from_env
from app.settings.values import default_staging

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
    "SLUICE_SWEEP_SECONDS": "1",
    "SLUICE_BODY_IDLE_SECONDS": "2",
    "SLUICE_MIN_BYTES_PER_SECOND": "0",
    "SLUICE_GRACEFUL_SECONDS": "3",
    "SLUICE_ACCEL_REDIRECT": "/protected/",
    "SLUICE_RENDITIONS": "eager",
    "SLUICE_MEDIA_CACHE_BYTES": "0",
    "SLUICE_LOG_LEVEL": "debug",
    "SLUICE_LOG_FORMAT": "text",
}

BAD = [
    ("SLUICE_PORT", "0"),
    ("SLUICE_PORT", "65536"),
    ("SLUICE_PORT", "http"),
    ("SLUICE_PORT", ""),
    ("SLUICE_STAGING_DIR", ""),
    ("SLUICE_DATA_DIR", ""),
    ("SLUICE_CHUNK_BYTES", "0"),
    ("SLUICE_CHUNK_BYTES", "20 MB"),
    ("SLUICE_CHUNK_BYTES", "1.5"),
    ("SLUICE_MAX_UPLOAD_BYTES", "-1"),
    ("SLUICE_MAX_UPLOAD_BYTES", "9223372036854775808"),
    ("SLUICE_WORKERS", "0"),
    ("SLUICE_THREADS", "many"),
    ("SLUICE_DURABILITY", "Chunk"),
    ("SLUICE_DURABILITY", ""),
    ("SLUICE_EXPIRY_SECONDS", "0"),
    ("SLUICE_EXPIRY_SECONDS", "nan"),
    ("SLUICE_EXPIRY_SECONDS", "inf"),
    ("SLUICE_EXPIRY_SECONDS", "7 days"),
    ("SLUICE_SWEEP_SECONDS", "-1"),
    ("SLUICE_BODY_IDLE_SECONDS", "0"),
    ("SLUICE_MIN_BYTES_PER_SECOND", "-1"),
    ("SLUICE_MIN_BYTES_PER_SECOND", "nan"),
    ("SLUICE_RENDITIONS", "on"),
    ("SLUICE_PASSKEYS", "yes"),
    ("SLUICE_OIDC_ISSUER", "http://login.example"),
    ("SLUICE_OIDC_ISSUER", "login.example"),
    ("SLUICE_OIDC_ISSUER", "https://login.example?a"),
    ("SLUICE_OIDC_DOMAINS", "@example.org"),
    ("SLUICE_OIDC_DOMAINS", ".example.org"),
    ("SLUICE_OIDC_ROLE", "guest"),
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
    ("SLUICE_LOG_FORMAT", "xml"),
    ("SLUICE_PUBLIC_URL", "videos.example"),
]

BAD_SECRETS = [
    ("SLUICE_OIDC_CLIENT_SECRET", "ü"),
    ("SLUICE_DATABASE_URL", "postgresql://sluice:geheim@db.example"),
    ("SLUICE_DATABASE_URL", "mysql://sluice:geheim@db.example/sluice"),
    ("SLUICE_DATABASE_URL", "sqlite:////srv/sluice.db"),
    ("SLUICE_DATABASE_URL", "geheim"),
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
    assert settings.staging_dir in {Path("/tmp/sluice"), Path(f"/tmp/sluice-{os.geteuid()}")}
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
    assert (settings.expiry_seconds, settings.sweep_seconds) == (0.5, 1.0)
    assert (settings.body_idle_seconds, settings.min_bytes_per_second) == (2.0, 0.0)
    assert settings.graceful_seconds == 3.0
    assert settings.accel_redirect == "/protected/"
    assert settings.log_format == "text"


def test_the_policy_has_the_operators_limits() -> None:
    policy = from_env(GOOD).policy
    assert policy.max_length == 5
    assert policy.allowed_extensions == {"mp4", "mov", "webm"}


def test_an_upload_may_be_as_large_as_a_file_can_be() -> None:
    most = (1 << 63) - 1
    settings = from_env({"SLUICE_MAX_UPLOAD_BYTES": str(most)})
    assert RangeSet().missing(settings.max_upload_bytes).total == most
    with pytest.raises(SettingsError, match=f"SLUICE_MAX_UPLOAD_BYTES.*must be 1 to {most}"):
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
    shown = repr(from_env({**GOOD, **secrets}))
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


def test_the_staging_folder_is_per_user_if_the_usual_one_is_another_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = tmp_path / "sluice"
    assert default_staging(usual) == usual, "nobody has it"
    usual.mkdir()
    assert default_staging(usual) == usual, "it is ours"
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert default_staging(usual) == tmp_path / "sluice-4711"


def test_there_are_as_many_workers_as_cores_and_two_at_least() -> None:
    assert Settings().workers == max(2, len(os.sched_getaffinity(0)))


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Settings().port = 1  # type: ignore[misc]


def test_mail_needs_the_url_that_its_links_begin_with() -> None:
    environ = {"SLUICE_SMTP_URL": "smtps://mail.example"}
    with pytest.raises(SettingsError, match=r"SLUICE_PUBLIC_URL.*SLUICE_SMTP_URL"):
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
