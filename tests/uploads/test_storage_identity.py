"""Records and files that belong together are told from those that do not."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from secrets import token_hex

import pytest

from app.db.context import Context
from app.db.engine import Database
from app.db.nodes import SharedValues, utc_now
from app.db.transfer import copy_records
from app.records.uploads import UploadRecords
from app.settings import Settings
from app.storage.s3.bucket import MARK, Bucket, BucketMark
from app.storage.s3.catalog import BucketCatalog
from app.uploads.storage_identity import PLACE, StorageIdentity, WrongStorage
from tests.records.making import new_upload
from tests.s3_servers import S3Server, new_prefix
from tests.storage.s3.hostile_store import HostileStore, Step, error
from tests.storage.stores import bucket_at

FOLDERS = ""


@pytest.fixture
def bucket(versitygw: S3Server) -> Bucket:
    return bucket_at(versitygw.access, new_prefix())


def identity(database: Database, place: str, bucket: Bucket | None = None) -> StorageIdentity:
    """As a process has it whose settings name this place."""
    return with_mark(database, place, None if bucket is None else BucketMark(bucket))


def with_mark(database: Database, place: str, mark: BucketMark | None) -> StorageIdentity:
    ctx = Context(
        database=database,
        clock=utc_now,
        new_id=lambda: token_hex(16),
        settings=Settings(storage=place),
    )
    is_in_bucket = BucketCatalog(database).inventory.has_files
    return StorageIdentity(ctx, UploadRecords(database), mark=mark, is_in_bucket=is_in_bucket)


def add_upload(database: Database, *, in_bucket: bool) -> None:
    upload, _ = UploadRecords(database).add(new_upload())
    if in_bucket:
        BucketCatalog(database).reserve(upload.id, upload.length)


def test_a_library_in_a_bucket_is_served_from_nowhere_else(
    database: Database, bucket: Bucket
) -> None:
    add_upload(database, in_bucket=True)
    for _ in range(2):  # It was made before there was a mark, and the next time there is one.
        identity(database, "s3://a/films", bucket).require()
    with pytest.raises(WrongStorage, match=r"are in s3://a/films, but SLUICE_STORAGE is s3://b"):
        identity(database, "s3://b", bucket).require()
    with pytest.raises(WrongStorage, match="SLUICE_STORAGE is empty"):
        identity(database, FOLDERS).require()
    identity(database, "s3://a/films", bucket).require()


def test_a_library_in_folders_is_not_looked_for_in_a_bucket_once_it_has_an_upload(
    in_file: Database, bucket: Bucket
) -> None:
    identity(in_file, FOLDERS).require()
    identity(in_file, "s3://a", bucket).require()
    identity(in_file, FOLDERS).require()
    add_upload(in_file, in_bucket=False)
    with pytest.raises(WrongStorage, match="are in folders"):
        identity(in_file, "s3://a", bucket).require()


def test_an_emptied_bucket_is_noticed_until_the_operator_adopts_it(
    database: Database, bucket: Bucket
) -> None:
    add_upload(database, in_bucket=True)
    identity(database, "s3://a", bucket).require()
    bucket.delete(MARK)
    with pytest.raises(WrongStorage, match="does not have the mark"):
        identity(database, "s3://a", bucket).require()
    identity(database, "s3://b", bucket).adopt()
    identity(database, "s3://b", bucket).require()


def test_no_library_takes_the_files_of_another(
    in_file: Database, on_server: Database, bucket: Bucket
) -> None:
    identity(in_file, "s3://a", bucket).require()
    with pytest.raises(WrongStorage, match="another library"):
        identity(on_server, "s3://a", bucket).require()
    with pytest.raises(WrongStorage, match="another library"):
        identity(on_server, "s3://a", bucket).adopt()
    identity(on_server, "s3://a", bucket).adopt(replaces_mark=True)
    identity(on_server, "s3://a", bucket).require()
    with pytest.raises(WrongStorage, match="another library"):
        identity(in_file, "s3://a", bucket).require()


def test_records_that_move_to_another_database_stay_tied_to_their_files(
    in_file: Database, on_server: Database, bucket: Bucket
) -> None:
    add_upload(in_file, in_bucket=True)
    identity(in_file, "s3://a", bucket).require()
    copy_records(in_file, on_server)
    identity(on_server, "s3://a", bucket).require()
    with pytest.raises(WrongStorage, match="are in s3://a"):
        identity(on_server, FOLDERS).require()


def test_records_that_were_moved_away_are_used_no_more_until_they_are_adopted(
    in_file: Database, bucket: Bucket
) -> None:
    identity(in_file, "s3://a", bucket).require()
    identity(in_file, "s3://a", bucket).leave()
    for place, files in (("s3://a", bucket), (FOLDERS, None)):
        with pytest.raises(WrongStorage, match="moved to another database"):
            identity(in_file, place, files).require()
    with pytest.raises(WrongStorage, match="set SLUICE_DATABASE_URL"):
        identity(in_file, "s3://a", bucket).require_records()
    identity(in_file, "s3://a", bucket).adopt()
    identity(in_file, "s3://a", bucket).require_records()
    identity(in_file, "s3://a", bucket).require()


@pytest.mark.parametrize(("in_bucket", "where"), [(True, "a bucket"), (False, "folders")])
def test_a_library_of_an_older_version_is_tied_to_the_kind_of_storage_that_has_its_files(
    in_file: Database, bucket: Bucket, *, in_bucket: bool, where: str
) -> None:
    add_upload(in_file, in_bucket=in_bucket)
    right, wrong = identity(in_file, "s3://a", bucket), identity(in_file, FOLDERS)
    if not in_bucket:
        right, wrong = wrong, right
    for refused in (wrong.require, wrong.adopt):
        with pytest.raises(WrongStorage, match=f"are in {where}, but") as error:
            refused()
        assert "adopt" not in str(error.value), "nothing could be read there"
    right.require()


class OvertakenMark(BucketMark):
    """Another library writes its mark between this one's reading and writing."""

    def write(self, text: str) -> None:
        super().write(text)
        super().write("another library")


def test_of_two_new_libraries_that_start_in_one_prefix_at_once_one_is_refused(
    in_file: Database, bucket: Bucket
) -> None:
    started = with_mark(in_file, "s3://a", OvertakenMark(bucket))
    with pytest.raises(WrongStorage, match="another library"):
        started.require()


@pytest.mark.parametrize("length", [0, 1, 1000])
def test_an_object_of_that_name_which_is_no_mark_belongs_to_another(
    in_file: Database, bucket: Bucket, length: int
) -> None:
    bucket.put_object(MARK, b"\xff" * length)
    with pytest.raises(WrongStorage, match="another library"):
        identity(in_file, "s3://a", bucket).require()


def test_of_nodes_that_start_at_once_with_other_settings_only_those_with_one_of_them_start(
    on_server: Database, versitygw: S3Server
) -> None:
    prefixes = [new_prefix(), new_prefix()]

    def start(number: int) -> str | None:
        prefix = prefixes[number % 2]
        try:
            identity(on_server, prefix, bucket_at(versitygw.access, prefix)).require()
        except WrongStorage:
            return None
        return prefix

    with ThreadPoolExecutor(8) as nodes:
        started = list(nodes.map(start, range(8)))
    [chosen] = set(started) - {None}
    assert chosen is not None
    assert started == [
        chosen if number % 2 == prefixes.index(chosen) else None for number in range(8)
    ]


def test_a_bucket_that_cannot_be_asked_is_not_refused(in_file: Database) -> None:
    with HostileStore([Step(error(403, "AccessDenied"))]) as store:
        identity(in_file, "s3://a", store.bucket(5)).require()
    recorded = SharedValues(in_file).get(PLACE)
    assert recorded is None, "nothing is recorded until the bucket has answered"
