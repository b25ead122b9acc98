"""Compares the database with the bucket: objects without a row, and rows without an object.

Both are read once, sorted by name, so that millions of objects need little memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import merge
from itertools import chain, groupby
from operator import itemgetter

from app.storage.s3.bucket import Bucket
from app.storage.s3.catalog import Catalog
from app.storage.s3.contents import ListedMultipart, ListedObject

FOLDERS = ("files/", "pieces/")
"""Folders with the store's objects, in name order."""

ORPHAN_AGE = timedelta(days=1)
"""Newer objects may belong to a row that is still being written; allows for wrong clocks."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A name that only one side has: orphaned in the bucket or missing from it."""

    name: str
    is_orphan: bool


class Reconciliation:
    """Compares the two sides; checks each difference again before it reports it."""

    def __init__(
        self, bucket: Bucket, catalog: Catalog, now: datetime, *, orphan_age: timedelta = ORPHAN_AGE
    ) -> None:
        self._bucket = bucket
        self._inventory = catalog.inventory
        self._born_before = now - orphan_age

    def differences(self) -> Iterator[Difference]:
        """Yields old objects without a row, and missing objects, sorted by name."""
        objects = chain.from_iterable(self._bucket.list_objects(folder) for folder in FOLDERS)
        listed = ((found.name, found) for found in objects)
        both = merge(listed, self._inventory.objects(), key=itemgetter(0))
        for name, sides in groupby(both, key=itemgetter(0)):
            found, rows = None, list[bool]()
            for _, side in sides:
                if isinstance(side, ListedObject):
                    found = side
                else:
                    rows.append(bool(side))
            if found is None and any(rows) and self._is_missing(name):
                yield Difference(name, is_orphan=False)
            if found is not None and not rows and self._is_orphan(found):
                yield Difference(name, is_orphan=True)

    def orphaned_multiparts(self) -> Iterator[ListedMultipart]:
        """Yields old multipart uploads without a row."""
        for begun in self._bucket.list_multiparts(FOLDERS[0]):
            if begun.started_at < self._born_before and not self._inventory.is_known(begun.name):
                yield begun

    def _is_orphan(self, found: ListedObject) -> bool:
        return found.changed_at < self._born_before and not self._inventory.is_known(found.name)

    def _is_missing(self, name: str) -> bool:
        return self._bucket.head(name) is None and self._inventory.is_needed(name)
