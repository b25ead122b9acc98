"""Each call of the client, against Garage and versitygw."""

from __future__ import annotations

import io
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import replace
from secrets import token_bytes

import pytest

from app.core.errors import StorageFailed
from app.core.ranges import ByteRange
from app.storage.s3.bucket import Bucket
from app.storage.s3.caller import MultipartGone, PartsDiffer
from app.storage.s3.contents import SpoolSlice, crc32c_of
from tests.s3_servers import EACH_SERVER, S3Server, new_prefix
from tests.storage.s3.conftest import bucket_on

MIB = 1024 * 1024
PART_BYTES = 5 * MIB
"""The least that a part has, unless it is the last one."""


def test_an_object_has_the_bytes_of_the_slice(bucket: Bucket, spool: int) -> None:
    sent = token_bytes(MIB + 17)
    os.pwrite(spool, b"before" + sent + b"after", 0)
    stored = bucket.put_object("films/a", SpoolSlice(spool, 6, len(sent)))
    facts = bucket.head("films/a")
    assert facts is not None
    assert (facts.length, facts.etag) == (len(sent), stored.etag)
    with bucket.open("films/a", ByteRange(0, len(sent)), len(sent)) as file:
        assert file.readall() == sent


def test_an_object_of_no_bytes(bucket: Bucket, spool: int) -> None:
    bucket.put_object("a", SpoolSlice(spool, 0, 0))
    bucket.put_object("b", b"")
    assert [(found.name, found.length) for found in bucket.list_objects()] == [("a", 0), ("b", 0)]
    assert bucket.open("a", ByteRange(0, 0), 0).read(5) == b""


def test_an_object_is_read_from_any_place(bucket: Bucket) -> None:
    sent = token_bytes(3 * MIB)
    bucket.put_object("a", sent)
    with bucket.open("a", ByteRange(100, 200), len(sent)) as file:
        assert file.read(50) == sent[100:150]
        assert read_exactly(file, MIB) == sent[150 : 150 + MIB], "beyond the span"
        for position in (150 + MIB + 1000, 5, 5, 2 * MIB, len(sent) - 3):
            file.seek(position)
            assert read_exactly(file, 3) == sent[position : position + 3]
        assert file.read(1) == b""
        assert file.seek(-10, io.SEEK_END) == len(sent) - 10
        assert read_exactly(file, 10) == sent[-10:]
        file.seek(len(sent) + 5)
        assert file.read(1) == b""


def test_an_object_that_does_not_exist(bucket: Bucket) -> None:
    assert bucket.head("a") is None
    with pytest.raises(FileNotFoundError):
        bucket.open("a", ByteRange(0, 1), 1)


@pytest.mark.parametrize("name", EACH_SERVER)
def test_a_bucket_that_does_not_exist_is_noticed(name: str, request: pytest.FixtureRequest) -> None:
    server: S3Server = request.getfixturevalue(name)
    bucket_on(server, new_prefix()).probe()
    missing = replace(server, access=replace(server.access, bucket="missing"))
    with pytest.raises(StorageFailed, match="NoSuchBucket"):
        bucket_on(missing, new_prefix()).probe()


@pytest.mark.parametrize("count", [1, 3])
def test_objects_are_deleted(bucket: Bucket, count: int) -> None:
    names = [f"a&{number}" for number in range(count)]
    for name in names:
        bucket.put_object(name, b"x")
    bucket.delete(*names, *(f"{name}-missing" for name in names))
    bucket.delete(*names)
    bucket.delete()
    assert list(bucket.list_objects()) == []


def test_parts_become_an_object_in_the_order_of_their_numbers(bucket: Bucket, spool: int) -> None:
    sent = token_bytes(2 * PART_BYTES + 5)
    os.pwrite(spool, sent, 0)
    upload = bucket.create_multipart("a")
    last = bucket.upload_part("a", upload, 9, SpoolSlice(spool, 2 * PART_BYTES, 5))
    bucket.upload_part("a", upload, 3, SpoolSlice(spool, 0, PART_BYTES))
    middle = bucket.upload_part("a", upload, 3, SpoolSlice(spool, PART_BYTES, PART_BYTES))
    first = bucket.upload_part("a", upload, 2, SpoolSlice(spool, 0, PART_BYTES))
    assert [(found.name, found.id) for found in bucket.list_multiparts()] == [("a", upload)]
    assert bucket.head("a") is None
    parts = [(9, last), (2, first), (3, middle)]
    bucket.complete_multipart("a", upload, parts, length=len(sent))
    facts = bucket.head("a")
    assert facts is not None
    assert facts.length == len(sent)
    with bucket.open("a", ByteRange(0, len(sent)), len(sent)) as file:
        assert file.readall() == sent
    assert list(bucket.list_multiparts()) == []
    with pytest.raises(MultipartGone):
        bucket.upload_part("a", upload, 4, SpoolSlice(spool, 0, 5))


def test_a_part_that_the_store_does_not_have(bucket: Bucket, spool: int) -> None:
    os.pwrite(spool, b"hello", 0)
    upload = bucket.create_multipart("a")
    stored = bucket.upload_part("a", upload, 1, SpoolSlice(spool, 0, 5))
    with pytest.raises(PartsDiffer):
        bucket.complete_multipart("a", upload, [(2, stored)], length=5)


def test_a_multipart_upload_is_aborted_once_or_twice(bucket: Bucket) -> None:
    upload = bucket.create_multipart("a")
    bucket.abort_multipart("a", upload)
    bucket.abort_multipart("a", upload)
    assert list(bucket.list_multiparts()) == []


def test_a_part_is_copied_from_another_object(bucket: Bucket) -> None:
    """Even one of the shortest."""
    sent = token_bytes(PART_BYTES)
    bucket.put_object("source", sent)
    upload = bucket.create_multipart("a")
    parts = [(number, bucket.copy_part("a", upload, number, "source")) for number in (1, 2)]
    bucket.complete_multipart("a", upload, parts, length=2 * PART_BYTES)
    with bucket.open("a", ByteRange(0, 2 * PART_BYTES), 2 * PART_BYTES) as file:
        assert file.readall() == sent + sent


def test_lists_of_more_than_one_page(bucket: Bucket) -> None:
    names = [f"a/{number}" for number in range(5)]
    for name in (*names, "b"):
        bucket.put_object(name, b"")
    uploads = [(f"m/{number}", bucket.create_multipart(f"m/{number}")) for number in range(5)]
    assert [found.name for found in bucket.list_objects("a/")] == names
    assert sorted((found.name, found.id) for found in bucket.list_multiparts("m/")) == uploads


def test_a_presigned_url_reads_with_another_type(bucket: Bucket) -> None:
    bucket.put_object("a", b"hello")
    url = bucket.presign_get(
        "a", 60, content_type="video/mp4", disposition='attachment; filename="a b.mp4"'
    )
    with urllib.request.urlopen(url) as answer:
        assert answer.read() == b"hello"
        assert answer.headers["content-type"] == "video/mp4"
        assert answer.headers["content-disposition"] == 'attachment; filename="a b.mp4"'


def test_a_presigned_url_stores_the_promised_bytes_and_no_others(bucket: Bucket) -> None:
    url, headers = bucket.presign_put("b", 5, crc32c_of(b"hello"), 60)
    for wrong in (b"hella", b"hello there"):
        assert put(url, wrong, headers) in {400, 403}
        assert put(url, wrong, {"x-amz-checksum-crc32c": crc32c_of(wrong)}) in {400, 403}
    assert bucket.head("b") is None
    assert put(url, b"hello", headers) == 200
    with bucket.open("b", ByteRange(0, 5), 5) as file:
        assert file.read(5) == b"hello"
    assert put(url, b"hello", headers) == 200, "it can be repeated"


def put(url: str, body: bytes, headers: Mapping[str, str]) -> int:
    """The status that a client without a key gets."""
    request = urllib.request.Request(url, body, dict(headers), method="PUT")
    try:
        with urllib.request.urlopen(request) as answer:
            status: int = answer.status
            return status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def read_exactly(file: io.RawIOBase, count: int) -> bytes:
    """The next `count` bytes, however many reads they take."""
    found = b""
    while len(found) < count:
        block = file.read(count - len(found))
        assert block
        found += block
    return found
