"""The check of a bucket: what real servers do, and what must not go unnoticed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path

import pytest
import requests
from flask import Flask

from app.run.admin.storage_commands import storage
from app.run.build import build_services
from app.run.factory import create_app
from app.settings import from_env
from app.storage.s3 import check as check_module
from app.storage.s3.bucket import Bucket
from app.storage.s3.check import COPIED_BYTES, Grade, check
from app.storage.s3.contents import crc32c_of
from tests.s3_servers import S3Server, new_prefix
from tests.storage.s3.hostile_store import STORED, HostileStore, Step, error, reply

MakeApp = Callable[[dict[str, str]], Flask]

YES = Step(
    reply(
        200,
        b"<Result><UploadId>u</UploadId><ETag>e</ETag><IsTruncated>false</IsTruncated></Result>",
        'ETag: "e"',
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
OBJECTS = [STORED, READ, LISTED, DELETED, MISSING, DAMAGED]
"""What a good store answers about objects."""


def copied(crc32c: str) -> Step:
    """The answer about a copied part."""
    text = f"<R><ETag>e</ETag><ChecksumCRC32C>{crc32c}</ChecksumCRC32C></R>"
    return Step(reply(200, text.encode()))


def test_real_servers_are_fit_and_left_as_they_were(bucket: Bucket) -> None:
    assert check(bucket, "token").grade is Grade.FINE
    assert list(bucket.list_objects()) == []
    assert list(bucket.list_multiparts()) == []


def test_a_check_removes_what_a_killed_one_has_left(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.put_object("checks/killed/source", b"source")
    bucket.create_multipart("checks/killed/parts")
    assert check(bucket, "token").grade is Grade.FINE
    assert [found.name for found in bucket.list_objects()] == ["checks/killed/source"], "too young"
    monkeypatch.setattr(check_module, "KILLED_AFTER", timedelta(seconds=-60))
    assert check(bucket, "token").grade is Grade.FINE
    assert list(bucket.list_objects()) == []
    assert list(bucket.list_multiparts()) == []


def test_a_bucket_that_cannot_be_used_is_a_fault() -> None:
    with HostileStore([Step(error(403, "AccessDenied"))]) as store:
        found = check(store.bucket(60), "token")
    assert found.grade is Grade.FATAL
    assert "does not allow" in found.detail


def test_a_store_that_keeps_damaged_bytes_is_noticed() -> None:
    with HostileStore([*OBJECTS[:-1], Step(reply(200)), YES]) as store:
        found = check(store.bucket(60), "token")
        assert any(line.startswith("POST ") and "delete" in line for line in store.lines)
    assert found.grade is Grade.FATAL
    assert "damaged in transit" in found.detail


def test_copies_without_a_checksum_are_slow() -> None:
    listed = b"<R><IsTruncated>false</IsTruncated><Part><PartNumber>1</PartNumber><Size>1</Size>"
    parts = Step(reply(200, listed + b"<ETag>e</ETag></Part></R>"))
    with HostileStore([*OBJECTS, STORED, YES, YES, parts, DELETED, YES]) as store:
        found = check(store.bucket(60), "token")
    assert found.grade is Grade.DEGRADED
    assert "no checksum" in found.detail


def test_copies_with_other_bytes_are_noticed() -> None:
    with HostileStore([*OBJECTS, STORED, YES, copied("AAAAAA=="), DELETED, YES]) as store:
        found = check(store.bucket(60), "token")
    assert found.grade is Grade.FATAL
    assert "different bytes" in found.detail


def test_parts_that_are_not_there_once_completed_are_noticed() -> None:
    right = copied(crc32c_of(bytes(COPIED_BYTES)))
    refused = Step(error(400, "InvalidPart"))
    with HostileStore([*OBJECTS, STORED, YES, right, refused, DELETED, YES]) as store:
        found = check(store.bucket(60), "token")
    assert found.grade is Grade.FATAL
    assert "all their bytes" in found.detail


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


def test_the_command_prints_its_finding(versitygw: S3Server, app_with: MakeApp) -> None:
    app = app_with(versitygw.access.settings(new_prefix()))
    result = app.test_cli_runner().invoke(storage, ["check", "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["grade"] == "fine"


def test_a_command_lets_pages_send_to_the_bucket(versitygw: S3Server, app_with: MakeApp) -> None:
    app = app_with(versitygw.access.settings(new_prefix()))
    origins = "https://other.example", "https://films.example"
    result = app.test_cli_runner().invoke(storage, ["cors", *origins])
    assert result.exit_code == 0
    url, _ = app.extensions["sluice"].bucket.presign_put("direct/film", 1, "AAAAAA==", 60)
    asked = {
        "Origin": origins[1],
        "Access-Control-Request-Method": "PUT",
        "Access-Control-Request-Headers": "x-amz-checksum-crc32c",
    }
    answer = requests.options(url, headers=asked, timeout=60)
    assert answer.ok
    assert answer.headers["Access-Control-Allow-Origin"] == origins[1]


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
