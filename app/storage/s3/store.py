"""A store in a bucket that any number of nodes can share.

files/<key>.<token>    a whole file, also while it is a multipart upload
pieces/<key>.<token>   less than a cell, until the rest of its cell is there
<staging>/locks/<key>  locks of this node's writers; spooled bytes are in unnamed files

Start with `range_writer.py`, then `cells.py`: the path of a chunk.
"""

from __future__ import annotations

from pathlib import Path

from app.core.cells import SMALLEST_CELL_BYTES
from app.storage.local.folder import Folder
from app.storage.s3.assembly import Assembly
from app.storage.s3.bucket import Bucket
from app.storage.s3.catalog import Catalog
from app.storage.s3.cells import MOST_PIECES, CellStore
from app.storage.s3.inspection import BucketInspection
from app.storage.s3.library import BucketLibrary
from app.storage.s3.range_writer import CHECKPOINT_SECONDS
from app.storage.s3.spool import Spools
from app.storage.s3.staging import BucketStaging


class BucketStore:
    """A `Store` in a bucket; `staging` is a folder of this node for at most `spool_bytes`."""

    def __init__(  # noqa: PLR0913 - called by the composition root alone, with names
        self,
        bucket: Bucket,
        catalog: Catalog,
        staging: Path,
        *,
        spool_bytes: int,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
        smallest_cell_bytes: int = SMALLEST_CELL_BYTES,
        most_pieces: int = MOST_PIECES,
    ) -> None:
        folder, locks = Folder(staging), Folder(staging / "locks")
        self.cells = CellStore(
            *(bucket, catalog, Spools(folder, spool_bytes)), most_pieces=most_pieces
        )
        assembly = Assembly(self.cells)
        self.staging = BucketStaging(
            *(self.cells, assembly, locks),
            checkpoint_seconds=checkpoint_seconds,
            smallest_cell_bytes=smallest_cell_bytes,
        )
        self.library = BucketLibrary(self.staging, assembly, catalog, bucket)
        self.inspection = BucketInspection(assembly, catalog, bucket, spools=folder, locks=locks)
