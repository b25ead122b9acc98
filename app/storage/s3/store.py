"""A store in a bucket that any number of nodes can share.

pieces/<key>.<token>                   bytes of a file that is being received
direct/<key>.<bytes>.<crc32c>.<token>  the same, put by the client itself
files/<key>.<token>                    a whole file, also while it is a multipart upload
checks/<token>/...                     objects of a check, for a moment
<staging>/locks/<key>                  locks of this node's writers; spools are unnamed files

A chunk passes through `range_writer.py` and `pieces.py`; its row is added by `catalog.py`, in the
transaction that records its bytes. `assembly.py` makes one object of the pieces.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from io import RawIOBase
from pathlib import Path
from typing import ClassVar

from app.core.ranges import ByteRange
from app.storage.local.folder import Folder
from app.storage.s3.assembly import Assembly
from app.storage.s3.bucket import Bucket
from app.storage.s3.catalog import BucketCatalog
from app.storage.s3.concatenation import concatenate
from app.storage.s3.direct import BucketCells
from app.storage.s3.inspection import BucketInspection
from app.storage.s3.pieces import PieceStore
from app.storage.s3.spool import Spools
from app.storage.s3.staging import BucketStaging


class BucketStore:
    """A `Store` in a bucket; `staging` is a folder of this node for bytes on their way."""

    def __init__(self, bucket: Bucket, catalog: BucketCatalog, staging: Path) -> None:
        folder, locks = Folder(staging), Folder(staging / "locks")
        self.pieces = PieceStore(bucket, catalog, Spools(folder))
        assembly = Assembly(self.pieces)
        self.direct = BucketCells(self.pieces, assembly)
        self.staging = BucketStaging(self.pieces, assembly, locks)
        self.library = BucketLibrary(self.pieces, self.staging, assembly)
        self.inspection = BucketInspection(catalog, bucket, spools=folder, locks=locks)


# ---- library -------------------------------------------------------------------------------------


@dataclass
class BucketLibrary:
    """Implements `Library` in a bucket."""

    let_group_read: ClassVar[None] = None
    pieces: PieceStore
    staging: BucketStaging
    assembly: Assembly

    def concatenate(self, key: str, parts: Sequence[tuple[str, int]]) -> None:
        """Give the file the pieces of the parts."""
        concatenate(self.pieces, key, parts)

    def publish(self, key: str, length: int) -> None:
        """Make the file one object and mark its row as published."""
        self.assembly.publish(key, length)
        self.staging.let_go(key)

    def publish_all(self, files: Sequence[tuple[str, int]]) -> None:
        """Publish files, in one statement for all that are one object already."""
        keys = [key for key, _ in files]
        if self.pieces.catalog.publish(keys) < len(keys):
            for key, length in files:
                self.assembly.publish(key, length)
        for key in keys:
            self.staging.let_go(key)

    def being_published(self, keys: Sequence[str]) -> Set[str]:
        """Those whose lease another thread or node holds."""
        return self.pieces.catalog.leased(keys)

    def open(self, key: str, span: ByteRange) -> RawIOBase:
        """Open a published file, positioned at `span.start`."""
        name, length = self._published(key)
        return self.pieces.bucket.open(name, span, length)

    def sign_url(self, key: str, seconds: int, /, *, content_type: str, disposition: str) -> str:
        """Returns the store's URL of a published file; may raise `FileNotFoundError`."""
        name, _ = self._published(key)
        return self.pieces.bucket.presign_get(
            name, seconds, content_type=content_type, disposition=disposition
        )

    def delete(self, key: str) -> None:
        """Remove the file from the catalog, then from the bucket."""
        self.staging.delete(key, also_published=True)

    def _published(self, key: str) -> tuple[str, int]:
        """Returns the name and length of a published file's object."""
        file = self.pieces.catalog.file(key)
        if file is None or not file.is_published or file.name is None or file.length is None:
            raise FileNotFoundError(key)
        return file.name, file.length
