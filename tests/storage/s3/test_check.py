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
from app.storage.s3.check import PROBES, Grade, Place, check_all, check_quickly, run_probe
from tests.s3_servers import S3Server, new_prefix
from tests.storage.s3.hostile_store import HostileStore, Step, error, reply

ORIGIN = "https://films.example"

MakeApp = Callable[[dict[str, str]], Flask]

YES = Step(
    reply(
        200,
        b"<Result><UploadId>u</UploadId><ETag>e</ETag></Result>",
        'ETag: "e"',
        f"Access-Control-Allow-Origin: {ORIGIN}",
    )
)
"""Agrees to everything."""

RULES = (
    "<LifecycleConfiguration><Rule>{}<AbortIncompleteMultipartUpload><DaysAfterInitiation>3"
    "</DaysAfterInitiation></AbortIncompleteMultipartUpload></Rule></LifecycleConfiguration>"
)


def test_real_servers_are_fit_and_left_as_they_were(bucket: Bucket) -> None:
    findings = {found.topic: found for found in check_all(bucket, "token", origin=ORIGIN)}
    assert findings.keys() == PROBES.keys()
    degraded = {topic for topic, found in findings.items() if found.grade is not Grade.FINE}
    assert degraded <= {"parts", "direct uploads"}, "Garage's copies have no checksum"
    assert not any(found.grade is Grade.FATAL for found in findings.values())
    assert check_quickly(bucket, "token").grade is Grade.FINE
    assert list(bucket.list_objects()) == []
    assert list(bucket.list_multiparts()) == []


def test_a_bucket_that_cannot_be_used_gets_one_finding() -> None:
    with HostileStore([Step(error(403, "AccessDenied"))]) as store:
        findings = list(check_all(store.bucket(5), "token", origin=ORIGIN))
    assert [(found.topic, found.grade) for found in findings] == [("objects", Grade.FATAL)]
    assert "does not allow" in findings[0].detail


def test_a_store_that_keeps_damaged_bytes_is_noticed() -> None:
    listed = (
        "<List><IsTruncated>false</IsTruncated><Contents><Key>prefix/checks/token/object</Key>"
        "<Size>10</Size><LastModified>1994-11-06T08:49:37Z</LastModified></Contents></List>"
    )
    stored, listing, deleted, missing = (
        Step(reply(200, b"", 'ETag: "e"')),
        Step(reply(200, listed.encode())),
        Step(reply(204)),
        Step(reply(404)),
    )
    read = Step(reply(206, b"23456", "Content-Range: bytes 2-6/10"))
    agrees, refuses = stored, Step(error(400, "BadDigest"))
    for last, grade in ((refuses, Grade.FINE), (agrees, Grade.FATAL)):
        script = [stored, read, listing, deleted, missing, last, listing, deleted]
        with HostileStore(script) as store:
            assert check_quickly(store.bucket(5), "token").grade is grade
            assert store.lines[-1].startswith("DELETE ")


def test_parts_that_are_not_there_once_completed_are_noticed() -> None:
    with HostileStore([YES]) as store:
        found = run_probe("parts", Place(store.bucket(5), "checks/token", ORIGIN))
    assert found.grade is Grade.FATAL
    assert "all their bytes" in found.detail


def test_a_bucket_that_lets_pages_send() -> None:
    with HostileStore([YES]) as store:
        found = run_probe("direct uploads", Place(store.bucket(5), "checks/token", ORIGIN))
    assert found.grade is Grade.FINE


@pytest.mark.parametrize(
    ("topic", "answer", "grade", "words"),
    [
        ("lifecycle", RULES.format(""), Grade.FINE, "No lifecycle rule"),
        ("lifecycle", RULES.format("<Expiration/>"), Grade.DEGRADED, "objects by age"),
        ("versions", "<V><Status>Enabled</Status></V>", Grade.DEGRADED, "old versions"),
    ],
)
def test_rules_of_the_bucket_are_read(topic: str, answer: str, grade: Grade, words: str) -> None:
    with HostileStore([Step(reply(200, answer.encode()))]) as store:
        found = run_probe(topic, Place(store.bucket(5), "checks/token", ORIGIN))
    assert found.grade is grade
    assert words in found.detail


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
    assert [found["topic"] for found in json.loads(result.stdout)] == list(PROBES)


def test_a_command_lets_pages_send_to_the_bucket(versitygw: S3Server, app_with: MakeApp) -> None:
    app = app_with(versitygw.access.settings(new_prefix()))
    result = app.test_cli_runner().invoke(storage, ["cors", "https://other.example", ORIGIN])
    assert result.exit_code == 0
    place = Place(app.extensions["sluice"].bucket, "checks/token", ORIGIN)
    assert run_probe("direct uploads", place).grade is Grade.FINE


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
