"""The check of a bucket: what real servers do, and what must not go unnoticed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from flask import Flask

from app.run.admin.storage_commands import storage
from app.run.build import build_services
from app.run.factory import create_app
from app.settings import from_env
from app.storage.s3.bucket import Bucket
from app.storage.s3.check import Grade, check_all, check_quickly
from tests.s3_servers import S3Server, new_prefix
from tests.storage.s3.hostile_store import STORED, HostileStore, Step, error, reply

ORIGIN = "https://films.example"

MakeApp = Callable[[dict[str, str]], Flask]

YES = Step(
    reply(
        200,
        b"<Result><UploadId>u</UploadId><ETag>e</ETag><IsTruncated>false</IsTruncated></Result>",
        'ETag: "e"',
        f"Access-Control-Allow-Origin: {ORIGIN}",
    )
)
"""Agrees to everything."""

LISTED = Step(
    reply(
        200,
        b"<List><IsTruncated>false</IsTruncated><Contents><Key>prefix/checks/token/object</Key>"
        b"<Size>10</Size><LastModified>1994-11-06T08:49:37Z</LastModified></Contents></List>",
    )
)
READ = Step(reply(206, b"23456", "Content-Range: bytes 2-6/10"))
DELETED, MISSING = Step(reply(204)), Step(reply(404))
DAMAGED = Step(error(400, "BadDigest"))
USABLE = [STORED, READ, LISTED, DELETED, MISSING, DAMAGED, LISTED, DELETED]
"""What a good store answers to the first probe, and to removing its objects."""

TOPICS = ["objects", "parts", "direct uploads"]


def test_real_servers_are_fit_and_left_as_they_were(bucket: Bucket) -> None:
    findings = {found.topic: found for found in check_all(bucket, "token", origin=ORIGIN)}
    assert list(findings) == TOPICS
    degraded = {topic for topic, found in findings.items() if found.grade is not Grade.FINE}
    assert degraded <= {"direct uploads"}
    assert not any(found.grade is Grade.FATAL for found in findings.values())
    assert check_quickly(bucket, "token").grade is Grade.FINE
    assert list(bucket.list_objects()) == []
    assert list(bucket.list_multiparts()) == []


def test_a_bucket_that_cannot_be_used_gets_one_finding() -> None:
    with HostileStore([Step(error(403, "AccessDenied"))]) as store:
        findings = list(check_all(store.bucket(5), "token", origin=ORIGIN))
    assert [(found.topic, found.grade) for found in findings] == [("objects", Grade.FATAL)]
    assert "does not allow" in findings[0].detail


@pytest.mark.parametrize(
    ("answer", "grade"), [(error(400, "BadDigest"), Grade.FINE), (reply(200), Grade.FATAL)]
)
def test_a_store_that_keeps_damaged_bytes_is_noticed(answer: bytes, grade: Grade) -> None:
    with HostileStore([*USABLE[:5], Step(answer), *USABLE[6:]]) as store:
        assert check_quickly(store.bucket(5), "token").grade is grade
        assert store.lines[-1].startswith("DELETE ")


def test_parts_that_are_not_there_once_completed_are_noticed() -> None:
    with HostileStore([*USABLE, YES]) as store:
        parts, direct = list(check_all(store.bucket(5), "token", origin=ORIGIN))[1:]
    assert (parts.topic, parts.grade) == ("parts", Grade.FATAL)
    assert "all their bytes" in parts.detail
    assert (direct.topic, direct.grade) == ("direct uploads", Grade.FINE)


def test_a_bucket_without_rules_for_pages_sends_through_the_server() -> None:
    no_rules = Step(YES.answer.replace(b"Access-Control", b"X"))
    with HostileStore([*USABLE, no_rules]) as store:
        direct = list(check_all(store.bucket(5), "token", origin=ORIGIN))[2]
    assert direct.grade is Grade.DEGRADED
    assert "storage cors" in direct.detail


@pytest.fixture
def app_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeApp]:
    """Makes an app with these settings, and closes its database at the end."""
    with ExitStack() as stack:

        def make(environ: dict[str, str]) -> Flask:
            for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
                monkeypatch.setenv(name, environ.get(name, ""))
            folders = {"STAGING_DIR": f"{tmp_path}/staging", "DATA_DIR": f"{tmp_path}/data"}
            settings = {f"SLUICE_{name}": folder for name, folder in folders.items()}
            services = build_services(from_env({**environ, **settings}))
            stack.enter_context(closing(services.database))
            services.prepare()
            return create_app(services)

        yield make


def test_the_command_prints_its_findings(versitygw: S3Server, app_with: MakeApp) -> None:
    app = app_with(versitygw.access.settings(new_prefix()))
    result = app.test_cli_runner().invoke(storage, ["check", "--json", "--origin", ORIGIN])
    assert result.exit_code == 0
    assert [found["topic"] for found in json.loads(result.stdout)] == TOPICS


def test_a_command_lets_pages_send_to_the_bucket(versitygw: S3Server, app_with: MakeApp) -> None:
    app = app_with(versitygw.access.settings(new_prefix()))
    result = app.test_cli_runner().invoke(storage, ["cors", "https://other.example", ORIGIN])
    assert result.exit_code == 0
    bucket = app.extensions["sluice"].bucket
    direct = list(check_all(bucket, "token", origin=ORIGIN))[2]
    assert direct.grade is Grade.FINE


def test_the_command_fails_where_the_bucket_is_missing(
    versitygw: S3Server, app_with: MakeApp
) -> None:
    settings = {**versitygw.access.settings(), "SLUICE_STORAGE": "s3://missing"}
    app = app_with(settings)
    result = app.test_cli_runner().invoke(storage, ["check"])
    assert result.exit_code == 1
    assert "does not exist (NoSuchBucket)" in result.stdout


def test_the_command_needs_a_bucket(app_with: MakeApp) -> None:
    result = app_with({}).test_cli_runner().invoke(storage, ["check"])
    assert result.exit_code == 1
    assert "SLUICE_STORAGE" in result.output
