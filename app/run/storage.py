"""Where the settings put the records and the bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.db.clock import Clock
from app.db.engine import Database
from app.settings import Settings
from app.storage.base import Durability, durability_in
from app.storage.local import LocalStore

if TYPE_CHECKING:
    from app.storage.s3.address import BucketAddress
    from app.storage.s3.bucket import Bucket
    from app.storage.s3.store import BucketStore


def database_of(settings: Settings) -> Database:
    """The database of the records."""
    # A finished file without a record is as good as lost.
    synced = Durability(settings.durability) is not Durability.NONE
    return Database(settings.records_url, synced=synced, connections=settings.threads)


def bucket_of(settings: Settings) -> Bucket | None:
    """The bucket of the bytes; None if they are in folders."""
    if not settings.storage:
        return None
    from app.storage.s3.bucket import Bucket  # noqa: PLC0415 - only with a bucket

    return Bucket.at(bucket_address(settings))


def bucket_address(settings: Settings) -> BucketAddress:
    """Where that bucket is."""
    from app.storage.s3.address import BucketAddress  # noqa: PLC0415 - only with a bucket

    endpoint, region = settings.s3_endpoint, settings.s3_region
    return BucketAddress.of(settings.storage, endpoint=endpoint, region=region)


def store_in(
    bucket: Bucket | None, settings: Settings, database: Database, clock: Clock
) -> LocalStore | BucketStore:
    """The store in a bucket, or else in the folders."""
    if bucket is None:
        return LocalStore(settings.staging_dir, settings.library_dir, durability_in(settings))
    from app.records.bucket import BucketCatalog  # noqa: PLC0415 - only with a bucket
    from app.storage.s3.store import BucketStore  # noqa: PLC0415 - only with a bucket

    catalog = BucketCatalog(database, clock)
    return BucketStore(bucket, catalog, settings.staging_dir, spool_bytes=settings.spool_bytes)
