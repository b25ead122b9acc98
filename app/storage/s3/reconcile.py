"""Compares the database with the bucket: objects without a row, and rows without an object.

Both are read once, sorted by name, so millions of them need little memory.
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
"""Where the store has its objects, in the order of their names."""

ORPHAN_AGE = timedelta(days=1)
"""Younger objects may belong to a row that is still being written; allows for wrong clocks."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A name that only one side has: orphaned in the bucket, or missing from it."""

    name: str
    is_orphan: bool


class Reconciliation:
    """The comparison; a difference is checked again before it is reported."""

    def __init__(
        self, bucket: Bucket, catalog: Catalog, now: datetime, *, orphan_age: timedelta = ORPHAN_AGE
    ) -> None:
        self._bucket = bucket
        self._inventory = catalog.inventory
        self._born_before = now - orphan_age

    def differences(self) -> Iterator[Difference]:
        """Old objects that nothing refers to, and missing ones, sorted by name."""
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
        """Old multipart uploads that nothing refers to."""
        for begun in self._bucket.list_multiparts(FOLDERS[0]):
            if begun.started_at < self._born_before and not self._inventory.is_known(begun.name):
                yield begun

    def _is_orphan(self, found: ListedObject) -> bool:
        return found.changed_at < self._born_before and not self._inventory.is_known(found.name)

    def _is_missing(self, name: str) -> bool:
        return self._bucket.head(name) is None and self._inventory.is_needed(name)
