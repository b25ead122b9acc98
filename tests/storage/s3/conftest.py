"""A bucket on each real server, and the bytes of a spool."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.storage.s3.address import AccessKey, BucketAddress
from app.storage.s3.bucket import Bucket
from tests.s3_servers import EACH_SERVER, S3Server, new_prefix


def bucket_on(server: S3Server, prefix: str) -> Bucket:
    """A client of the server's bucket. It gives up late, as the machine may be slow, and
    reads lists in pages of two entries."""
    access = server.access
    address = BucketAddress.of(
        f"s3://{access.bucket}/{prefix}", endpoint=access.endpoint, region=access.region
    )
    key = AccessKey(access.key, access.secret)
    return Bucket.at(address, key=lambda: key, page_entries=2).within(120)


@pytest.fixture(params=EACH_SERVER)
def bucket(request: pytest.FixtureRequest) -> Bucket:
    """An empty place in the bucket of each server."""
    return bucket_on(request.getfixturevalue(request.param), new_prefix())


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[int]:
    """An open file without bytes."""
    descriptor = os.open(tmp_path / "spool", os.O_RDWR | os.O_CREAT, 0o600)
    yield descriptor
    os.close(descriptor)
