"""Stores in folders and in a bucket, and helpers for them."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from app.core.ranges import ByteRange
from app.ingest.copy import BodyLimits
from app.storage.base import Durability, RangeWriter, Store
from app.storage.local import LocalStore
from app.storage.s3.address import AccessKey, BucketAddress
from app.storage.s3.bucket import Bucket
from app.storage.s3.catalog import BucketCatalog
from app.storage.s3.store import BucketStore
from tests.records.making import new_sqlite
from tests.s3_servers import Access
from tests.storage.sources import body

MEMORY_FOLDER = Path("/dev/shm")
KEY = "0123456789abcdef" * 2
OTHER_KEY = "fedcba9876543210" * 2
LIMITS = BodyLimits(idle_seconds=30.0, minimum_bytes_per_second=0.0)


def local_store(staging: Path, library: Path) -> LocalStore:
    """A store like that of a worker process."""
    return LocalStore(staging, library, Durability.CHUNK)


def bucket_at(access: Access, prefix: str) -> Bucket:
    """A folder in a server's bucket."""
    storage = f"s3://{access.bucket}/{prefix}"
    address = BucketAddress.of(storage, endpoint=access.endpoint, region=access.region)
    return Bucket.at(address, key=lambda: AccessKey(access.key, access.secret))


@contextmanager
def bucket_store(
    bucket: Bucket,
    folder: Path,
    *,
    staging: Path | None = None,
) -> Iterator[BucketStore]:
    """A store like that of a worker process; in one folder they are on one node."""
    with closing(new_sqlite(folder / "sluice.db")) as database:
        catalog, spools = BucketCatalog(database), staging or folder / "staging"
        yield BucketStore(bucket, catalog, spools)


def ignore(_span: ByteRange) -> None:
    """A checkpoint that does nothing."""


def fill(store: Store, key: str, start: int, end: int) -> int:
    """Write the test's bytes from `start` to `end`; the position after them."""
    span = ByteRange(start, end)
    with store.staging.writer(key, span, LIMITS) as writer:
        position = writer.write(span, body(start, end), lambda _span: record(store, writer))
        record(store, writer)
        return position


def record(store: Store, writer: RangeWriter) -> None:
    """Add the rows of what was written, as the record of an upload does."""
    with writer.recording() as rows:
        if rows is not None and isinstance(store, BucketStore):
            with store.pieces.catalog.database.write() as connection:
                rows(connection)


def staged(store: Store, key: str, length: int, *, room: int | None = None) -> None:
    """A complete staged file of `length` bytes; `room` reserves more space than that."""
    store.staging.reserve(key, length if room is None else room)
    fill(store, key, 0, length)


def content(store: Store, key: str, start: int = 0) -> bytes:
    """The bytes of a published file from `start` on."""
    with store.library.open(key, ByteRange(start, start)) as file:
        return file.read()


def names(folder: Path) -> set[str]:
    """Names of the files in a folder."""
    return {path.name for path in folder.iterdir()}
