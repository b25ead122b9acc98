"""A process that ends, or is paused, at any point of the way into a bucket."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import ServerBusy, StorageFailed
from app.core.ranges import ByteRange, RangeSet
from app.storage.base import BytesLost
from app.storage.s3.bucket import Bucket
from app.storage.s3.catalog import BucketCatalog
from app.storage.s3.inspection import Difference, Reconciliation
from tests.storage.nodes import CELL, Clock, Killed, Node, die, interrupted
from tests.storage.sources import pattern
from tests.storage.stores import KEY, content

LENGTH = 2 * CELL + 1000
CHUNKS = [(0, CELL), (CELL, CELL + 900), (CELL + 900, 2 * CELL), (2 * CELL, LENGTH)]

POINTS = [
    *("intend_multipart", "create_named_multipart", "begin_multipart"),
    *("claim", "upload_part", "seal"),
    *("intend", "put_object", "commit", "complete_multipart", "finish"),
]
"""What a node calls on the way of a file, in the database and in the store."""


def send_and_publish(node: Node, told: list[ByteRange]) -> None:
    for chunk in CHUNKS:
        node.send(told, *chunk)
    node.store.library.publish(KEY, LENGTH)


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("call", POINTS)
def test_nothing_acknowledged_is_lost_and_nothing_is_left(
    bucket: Bucket, catalog: BucketCatalog, clock: Clock, tmp_path: Path, call: str, is_after: bool
) -> None:
    first = Node(*interrupted(bucket, catalog, call, die, is_after=is_after), tmp_path / "first")
    second, told = Node(bucket, catalog, tmp_path / "second"), list[ByteRange]()
    first.store.staging.reserve(KEY, LENGTH)
    with pytest.raises(Killed):
        send_and_publish(first, told)
    clock.end_leases()
    for gap in RangeSet.of(told).gaps(ByteRange(0, LENGTH)):
        second.send(told, gap.start, gap.end)
    second.store.library.publish(KEY, LENGTH)
    assert content(second.store, KEY) == pattern(0, LENGTH)
    clock.end_leases()
    second.store.inspection.sweep()
    assert [each.length for each in bucket.list_objects()] == [LENGTH]
    assert list(bucket.list_multiparts()) == []
    comparison = Reconciliation(bucket, catalog, clock(), orphan_age=timedelta(0))
    assert list(comparison.differences()) == []


def test_a_chunk_that_is_repeated_after_the_last_part_does_not_lose_the_file(
    bucket: Bucket, catalog: BucketCatalog, tmp_path: Path
) -> None:
    other, told = Node(bucket, catalog, tmp_path / "other"), list[ByteRange]()

    def repeat_and_die() -> None:
        other.send(told, *CHUNKS[1])
        raise Killed

    node = Node(
        *interrupted(bucket, catalog, "complete_multipart", repeat_and_die, is_after=True),
        tmp_path / "node",
    )
    node.store.staging.reserve(KEY, LENGTH)
    for chunk in CHUNKS:
        node.send(told, *chunk)
    with pytest.raises(Killed):
        node.store.library.publish(KEY, LENGTH)
    assert [piece.span for piece in catalog.loose(KEY)] == [ByteRange(*CHUNKS[1])]
    claim = catalog.claim(KEY, 1, "token", timedelta(minutes=1))
    assert claim is not None, "whoever found no multipart upload has released the cell"
    catalog.release(claim)
    other.store.library.publish(KEY, LENGTH)
    assert content(other.store, KEY) == pattern(0, LENGTH)


def test_a_node_that_was_paused_as_it_began_a_multipart_upload_begins_another(
    bucket: Bucket, catalog: BucketCatalog, clock: Clock, tmp_path: Path
) -> None:
    other, told = Node(bucket, catalog, tmp_path / "other"), list[ByteRange]()

    def sweep_late() -> None:
        clock.end_leases()
        other.store.inspection.sweep()

    paused = Node(
        *interrupted(bucket, catalog, "create_named_multipart", sweep_late, is_after=True),
        tmp_path / "paused",
    )
    paused.store.staging.reserve(KEY, LENGTH)
    paused.send(told, 0, CELL)
    other.store.inspection.sweep()
    assert [part.cell for part in catalog.parts(KEY)] == [0]
    for start, end in ((CELL, 2 * CELL), (2 * CELL, LENGTH)):
        paused.send(told, start, end)
    paused.store.library.publish(KEY, LENGTH)
    assert content(paused.store, KEY) == pattern(0, LENGTH)
    assert list(bucket.list_multiparts()) == []


def require_that_the_first_cell_becomes_a_piece(node: Node, told: list[ByteRange]) -> None:
    """Send the file while another node has stored that cell as a part."""
    node.store.staging.reserve(KEY, LENGTH)
    for chunk in CHUNKS:
        node.send(told, *chunk)
    assert [piece.span for piece in node.store.cells.catalog.pieces(KEY, 0)] == [ByteRange(0, CELL)]
    node.store.library.publish(KEY, LENGTH)
    assert content(node.store, KEY) == pattern(0, LENGTH)


@pytest.mark.parametrize("call", ["claim", "upload_part"])
def test_a_node_that_was_paused_around_a_part_stores_its_bytes_elsewhere(
    bucket: Bucket, catalog: BucketCatalog, clock: Clock, tmp_path: Path, call: str
) -> None:
    other, told = Node(bucket, catalog, tmp_path / "other"), list[ByteRange]()

    def let_another_write() -> None:
        clock.end_leases()
        other.send(told, 0, CELL)

    paused = Node(
        *interrupted(bucket, catalog, call, let_another_write, is_after=True), tmp_path / "paused"
    )
    require_that_the_first_cell_becomes_a_piece(paused, told)


def test_two_nodes_that_write_one_cell_at_once_both_keep_their_bytes(
    bucket: Bucket, catalog: BucketCatalog, tmp_path: Path
) -> None:
    other, told = Node(bucket, catalog, tmp_path / "other"), list[ByteRange]()
    busy = Node(
        *interrupted(
            bucket, catalog, "upload_part", lambda: other.send(told, 0, CELL), is_after=False
        ),
        tmp_path / "busy",
    )
    require_that_the_first_cell_becomes_a_piece(busy, told)


def test_an_upload_that_ends_while_a_part_is_stored_leaves_nothing(
    bucket: Bucket, catalog: BucketCatalog, clock: Clock, tmp_path: Path
) -> None:
    other, told = Node(bucket, catalog, tmp_path / "other"), list[ByteRange]()
    node = Node(
        *interrupted(
            *(bucket, catalog, "put_object", lambda: other.store.library.delete(KEY)),
            is_after=True,
        ),
        tmp_path / "node",
    )
    node.store.staging.reserve(KEY, LENGTH)
    with pytest.raises(BytesLost):
        node.send(told, 0, 10)
    clock.end_leases()
    other.store.inspection.sweep()
    assert list(bucket.list_objects()) == []
    assert told == []


def test_an_upload_that_ends_after_it_was_completed_leaves_no_object(
    bucket: Bucket, catalog: BucketCatalog, clock: Clock, tmp_path: Path
) -> None:
    other, told = Node(bucket, catalog, tmp_path / "other"), list[ByteRange]()
    node = Node(
        *interrupted(bucket, catalog, "complete_multipart", die, is_after=True), tmp_path / "node"
    )
    node.store.staging.reserve(KEY, LENGTH)
    for chunk in CHUNKS:
        node.send(told, *chunk)
    with pytest.raises(Killed):
        node.store.library.publish(KEY, LENGTH)
    other.store.library.delete(KEY)
    clock.end_leases()
    other.store.inspection.sweep()
    assert list(bucket.list_objects()) == []


def test_an_upload_that_ends_while_the_store_completes_it_leaves_no_object(
    bucket: Bucket, catalog: BucketCatalog, clock: Clock, tmp_path: Path
) -> None:
    told = list[ByteRange]()

    def remove_unheard() -> None:
        """The store goes on with the completion, whatever the sweep has asked it to remove."""
        catalog.collected(catalog.remove(KEY, also_published=False))

    node = Node(
        *interrupted(bucket, catalog, "complete_multipart", remove_unheard, is_after=False),
        tmp_path / "node",
    )
    node.store.staging.reserve(KEY, LENGTH)
    for start in (0, CELL):
        node.send(told, start, start + CELL)
    node.send(told, 2 * CELL, LENGTH)
    with pytest.raises(BytesLost):
        node.store.library.publish(KEY, LENGTH)
    clock.end_leases()
    node.store.inspection.sweep()
    assert list(bucket.list_objects()) == []


class Refusing:
    """A bucket that does not remove certain objects and multipart uploads."""

    def __init__(self, real: Bucket, refused: set[str]) -> None:
        self._real = real
        self._refused = refused

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def delete(self, *names: str) -> None:
        self._real.delete(*(name for name in names if name not in self._refused))
        if self._refused & {*names}:
            raise StorageFailed("The object store refused a request (AccessDenied).")

    def abort_multipart(self, name: str, multipart_id: str) -> None:
        self.delete(name)
        self._real.abort_multipart(name, multipart_id)


def test_what_cannot_be_removed_is_tried_later_and_the_rest_is_removed(
    bucket: Bucket, catalog: BucketCatalog, clock: Clock, tmp_path: Path
) -> None:
    refused = {"files/refused", "files/refused-parts"}
    node = Node(Refusing(bucket, refused), catalog, tmp_path / "node")
    for name in ("files/refused", "files/removed"):
        bucket.put_object(name, b"bytes")
        catalog.discard(name)
    for name in ("files/refused-parts", "files/removed-parts"):
        catalog.discard(name, bucket.create_multipart(name))
    node.store.inspection.sweep()
    assert [each.name for each in bucket.list_objects()] == ["files/refused"]
    assert [each.name for each in bucket.list_multiparts()] == ["files/refused-parts"]
    assert catalog.garbage(10) == []
    clock.end_leases()
    assert {each.name for each in catalog.garbage(10)} == refused
    refused.clear()
    node.store.inspection.sweep()
    assert [*bucket.list_objects(), *bucket.list_multiparts()] == []


def test_a_part_that_was_replaced_behind_our_back_is_made_again_of_its_pieces(
    bucket: Bucket, catalog: BucketCatalog, tmp_path: Path
) -> None:
    node, told = Node(bucket, catalog, tmp_path / "node"), list[ByteRange]()
    node.store.staging.reserve(KEY, LENGTH)
    for chunk in CHUNKS:
        node.send(told, *chunk)
    [part] = [part for part in catalog.parts(KEY) if part.cell == 1]
    file = catalog.file(KEY)
    assert file is not None
    assert file.multipart is not None
    spool = node.store.cells.spools.open(ByteRange(0, CELL))
    with spool:
        os.ftruncate(spool.descriptor, CELL)
        bucket.upload_part(
            file.multipart.name, file.multipart.id, part.number, spool.slice(ByteRange(0, CELL))
        )
    node.store.library.publish(KEY, LENGTH)
    assert content(node.store, KEY) == pattern(0, LENGTH)


def test_what_only_the_bucket_or_only_the_database_has_is_named(
    bucket: Bucket, catalog: BucketCatalog, clock: Clock, tmp_path: Path
) -> None:
    node, told = Node(bucket, catalog, tmp_path / "node"), list[ByteRange]()
    node.store.staging.reserve(KEY, 10)
    node.send(told, 0, 10)
    node.store.library.publish(KEY, 10)
    [stored] = bucket.list_objects()
    bucket.put_object("files/stray", b"stray")
    bucket.create_multipart("files/begun")
    clock.end_leases()
    young = Reconciliation(bucket, catalog, clock(), orphan_age=timedelta(days=1))
    assert list(young.differences()) == []
    old = Reconciliation(bucket, catalog, clock(), orphan_age=timedelta(0))
    assert list(old.differences()) == [Difference("files/stray", is_orphan=True)]
    assert [begun.name for begun in old.orphaned_multiparts()] == ["files/begun"]
    bucket.delete(stored.name)
    assert Difference(stored.name, is_orphan=False) in list(old.differences())


def refuse() -> None:
    raise ServerBusy("The database cannot be reached.")


@pytest.mark.parametrize(
    ("call", "is_after"),
    [("claim", True), ("seal", False), ("seal", True)],
    ids=["claim unheard", "seal never arrived", "seal unheard"],
)
def test_a_cell_can_be_claimed_at_once_after_an_answer_was_lost(
    bucket: Bucket, catalog: BucketCatalog, tmp_path: Path, call: str, is_after: bool
) -> None:
    """The clock by which leases end stands still."""
    node = Node(bucket, catalog, tmp_path)
    unheard = Node(*interrupted(bucket, catalog, call, refuse, is_after=is_after), tmp_path)
    node.store.staging.reserve(KEY, CELL + 50)
    with pytest.raises(ServerBusy):
        unheard.send([], 0, CELL)
    assert catalog.claim(KEY, 0, "next", timedelta(seconds=100)) is not None
