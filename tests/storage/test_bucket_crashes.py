"""A process that ends, or is paused, at any point of the way into a bucket."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from sqlalchemy import select

from app.core.errors import ServerBusy, StorageFailed
from app.core.jobs import JobCancelled
from app.core.pieces import Checksums, StoredFile
from app.core.ranges import ByteRange, RangeSet
from app.db.tables import stored_files
from app.storage.base import BytesLost
from app.storage.s3 import assembly, inspection, lease, parts
from app.storage.s3 import bucket as bucket_module
from app.storage.s3.bucket import Bucket
from app.storage.s3.caller import S3Caller
from app.storage.s3.catalog import BucketCatalog
from app.storage.s3.inspection import Difference, Reconciliation
from app.storage.s3.lease import LEASE_SECONDS
from tests.storage.nodes import PIECE, Clock, Killed, Node, die, discard, interrupted
from tests.storage.sources import pattern
from tests.storage.stores import KEY, content
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("short_pieces")

LENGTH = 2 * PIECE + 1000
CHUNKS = [(0, PIECE), (PIECE, PIECE + 900), (PIECE + 900, 2 * PIECE), (2 * PIECE, LENGTH)]
"""The first becomes a part by a copy, the others are read and sent again."""

POINTS = [
    *("announce", "put_object", "add"),
    *("lease", "announce_multipart", "create_named_multipart", "begin_multipart"),
    *("copy_part", "open", "upload_part", "add_parts", "complete_multipart", "finish", "release"),
]
"""What a node calls on the way of a file, in the database and in the store."""


def send_all(node: Node, told: list[ByteRange]) -> None:
    node.store.staging.reserve(KEY, LENGTH)
    for chunk in CHUNKS:
        node.send(told, *chunk)


def finish_on(node: Node, told: list[ByteRange], length: int = LENGTH) -> None:
    """Send what was not acknowledged, and publish."""
    for gap in RangeSet.of(told).gaps(ByteRange(0, length)):
        node.send(told, gap.start, gap.end)
    node.store.library.publish(KEY, length)


def assert_right_and_alone(node: Node, bucket: Bucket, clock: Clock, length: int = LENGTH) -> None:
    """The published file is right, and after sweeps it is all that is left in the bucket."""
    assert content(node.store, KEY) == pattern(0, length)
    clock.end_leases()
    node.store.inspection.collect_garbage()
    assert [each.length for each in bucket.list_objects()] == [length]
    assert list(bucket.list_multiparts()) == []
    catalog = node.store.pieces.catalog
    assert catalog.pieces(KEY, ByteRange(0, length)) == ([], length)
    assert catalog.parts(KEY) == []
    comparison = Reconciliation(bucket, catalog, clock())
    assert list(comparison.differences()) == []


# ---- killed --------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("call", POINTS)
def test_nothing_acknowledged_is_lost_and_nothing_is_left(
    bucket: Bucket, catalog: BucketCatalog, clock: Clock, tmp_path: Path, call: str, is_after: bool
) -> None:
    first = Node(*interrupted(bucket, catalog, call, die, is_after=is_after), tmp_path / "first")
    second, told = Node(bucket, catalog, tmp_path / "second"), list[ByteRange]()

    def send_and_publish() -> None:
        send_all(first, told)
        first.store.library.publish(KEY, LENGTH)

    with pytest.raises(Killed):
        send_and_publish()
    clock.end_leases()
    finish_on(second, told)
    assert_right_and_alone(second, bucket, clock)


def test_bytes_whose_answer_was_lost_are_sent_again(
    bucket: Bucket, catalog: BucketCatalog, clock: Clock, tmp_path: Path
) -> None:
    """Their rows are committed, so the file has them twice."""
    node, told = Node(bucket, catalog, tmp_path), list[ByteRange]()
    send_all(node, [])
    finish_on(node, told)
    assert_right_and_alone(node, bucket, clock)


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("call", "turn"),
    [
        *(("lease", 1), ("begin_multipart", 1), ("copy_part", 1), ("add_parts", 1)),
        *(("copy_part", 3), ("add_parts", 2), ("complete_multipart", 1)),
    ],
)
def test_a_node_ends_while_it_makes_parts_of_a_file_that_still_arrives(
    bucket: Bucket,
    catalog: BucketCatalog,
    clock: Clock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    turn: int,
    is_after: bool,
) -> None:
    monkeypatch.setattr(assembly, "EARLY_BYTES", PIECE)
    monkeypatch.setattr(parts, "PARTS_AT_ONCE", 1)
    length, told = 3 * PIECE + 10, list[ByteRange]()
    killed = interrupted(bucket, catalog, call, die, is_after=is_after, turn=turn)
    first, second = Node(*killed, tmp_path / "first"), Node(bucket, catalog, tmp_path / "second")
    first.store.staging.reserve(KEY, length)

    def send_and_publish() -> None:
        for start in range(0, 3 * PIECE, PIECE):
            first.send(told, start, start + PIECE)
            await_early_parts(first)
        finish_on(first, told, length)

    with pytest.raises(Killed):
        send_and_publish()
    clock.end_leases()
    finish_on(second, told, length)
    assert_right_and_alone(second, bucket, clock, length)


def await_early_parts(node: Node) -> None:
    """Wait until the node has made the parts that it was to make early."""
    node.store.library.assembly._early.submit(int).result(60)


def test_another_node_goes_on_after_the_parts_of_a_dead_one(
    bucket: Bucket, catalog: BucketCatalog, clock: Clock, tmp_path: Path
) -> None:
    begun = interrupted(bucket, catalog, "complete_multipart", die, is_after=False)
    first, told = Node(*begun, tmp_path / "first"), list[ByteRange]()
    send_all(first, told)
    with pytest.raises(Killed):
        first.store.library.publish(KEY, LENGTH)
    parts, file = catalog.parts(KEY), catalog.require(KEY)
    assert parts[-1].end == LENGTH
    clock.now += timedelta(seconds=LEASE_SECONDS + 1)
    second = Node(NoMoreParts(bucket), catalog, tmp_path / "second")
    second.store.library.publish(KEY, LENGTH)
    assert file.multipart is not None
    assert catalog.require(KEY).name == file.multipart.name, "it is the same multipart upload"
    assert_right_and_alone(second, bucket, clock)


class NoMoreParts:
    """A bucket for a node that has no parts to make."""

    def __init__(self, real: Bucket) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        assert name not in {"copy_part", "upload_part", "create_named_multipart"}
        return getattr(self._real, name)

    def within(self, seconds: float) -> NoMoreParts:
        return NoMoreParts(self._real.within(seconds))


def test_the_lease_of_a_node_keeps_others_waiting_until_it_ends(
    bucket: Bucket,
    catalog: BucketCatalog,
    clock: Clock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = interrupted(bucket, catalog, "add_parts", die, is_after=True)
    first, second = Node(*ended, tmp_path / "first"), Node(bucket, catalog, tmp_path / "second")
    send_all(first, [])
    with pytest.raises(Killed):
        first.store.library.publish(KEY, LENGTH)
    monkeypatch.setattr(assembly, "WAIT_SECONDS", 0.3)
    clock.now += timedelta(seconds=LEASE_SECONDS - 1)
    with pytest.raises(ServerBusy):
        second.store.library.publish(KEY, LENGTH)
    clock.now += timedelta(seconds=2)
    second.store.library.publish(KEY, LENGTH)
    assert_right_and_alone(second, bucket, clock)


def test_a_lease_whose_answer_was_lost_is_used(
    bucket: Bucket,
    catalog: BucketCatalog,
    clock: Clock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lose_answer() -> None:
        raise ServerBusy("The database does not answer.")

    monkeypatch.setattr(assembly, "WAIT_SECONDS", 0.3)
    lost = interrupted(bucket, catalog, "lease", lose_answer, is_after=True)
    node = Node(*lost, tmp_path)
    send_all(node, [])
    node.store.library.publish(KEY, LENGTH)
    assert_right_and_alone(node, bucket, clock)


def test_a_node_that_lives_renews_its_lease(
    bucket: Bucket,
    catalog: BucketCatalog,
    clock: Clock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lease, "RENEWED_SECONDS", 0.01)
    has_waited = Event()

    def is_renewed() -> bool:
        return leased_until(catalog) == clock.now + timedelta(seconds=LEASE_SECONDS)

    def wait() -> None:
        """Until two thirds of a lease have gone by for the third time."""
        for _ in range(3):
            clock.now += timedelta(seconds=LEASE_SECONDS * 2 / 3)
            wait_until(is_renewed, "the lease is renewed")
        assert not catalog.lease(KEY, "another", 1)
        has_waited.set()

    node = Node(*interrupted(bucket, catalog, "complete_multipart", wait, is_after=False), tmp_path)
    send_all(node, [])
    node.store.library.publish(KEY, LENGTH)
    assert has_waited.is_set()


def leased_until(catalog: BucketCatalog) -> object:
    with catalog.database.read() as connection:
        return connection.scalar(select(stored_files.c.leased_until))


def test_a_file_that_was_completed_without_a_record_is_published_by_another_node(
    bucket: Bucket, catalog: BucketCatalog, clock: Clock, tmp_path: Path
) -> None:
    completed = interrupted(bucket, catalog, "complete_multipart", die, is_after=True)
    first, second = Node(*completed, tmp_path / "first"), Node(bucket, catalog, tmp_path / "second")
    send_all(first, [])
    with pytest.raises(Killed):
        first.store.library.publish(KEY, LENGTH)
    file = catalog.require(KEY)
    assert file.multipart is not None
    assert not file.is_published
    assert list(bucket.list_multiparts()) == []
    clock.end_leases()
    Node(NoMoreParts(bucket), catalog, tmp_path / "second").store.library.publish(KEY, LENGTH)
    assert catalog.require(KEY).name == file.multipart.name
    assert_right_and_alone(second, bucket, clock)


def test_a_completion_that_the_store_confirmed_and_lost_is_made_again(
    bucket: Bucket,
    catalog: BucketCatalog,
    clock: Clock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As versitygw 1.8 does after it was killed while it made the object."""
    monkeypatch.setattr(bucket_module, "APPEARS_SECONDS", 0)
    node = Node(bucket, catalog, tmp_path)
    confirmed = list[str]()
    call = S3Caller.call

    def confirm_once(caller: S3Caller, operation: str, *names: str, **parameters: Any) -> Any:
        if operation == "complete_multipart_upload" and not confirmed:
            confirmed.append(operation)
            return {"ETag": '"new"'}
        return call(caller, operation, *names, **parameters)

    monkeypatch.setattr(S3Caller, "call", confirm_once)
    send_all(node, [])
    node.store.library.publish(KEY, LENGTH)
    assert confirmed
    assert_right_and_alone(node, bucket, clock)


# ---- paused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call", ["lease", "begin_multipart", "copy_part", "add_parts", "complete_multipart", "finish"]
)
@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
def test_a_node_that_wakes_up_late_changes_nothing(
    bucket: Bucket,
    catalog: BucketCatalog,
    clock: Clock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    is_after: bool,
) -> None:
    # versitygw keeps the folder of a multipart upload if a part comes just as it is completed.
    monkeypatch.setattr(parts, "PARTS_AT_ONCE", 1)
    other, found = Node(bucket, catalog, tmp_path / "other"), list[StoredFile]()

    def let_another_publish() -> None:
        clock.end_leases()
        other.store.library.publish(KEY, LENGTH)
        found.append(catalog.require(KEY))

    paused = Node(
        *interrupted(bucket, catalog, call, let_another_publish, is_after=is_after),
        tmp_path / "paused",
    )
    send_all(paused, [])
    paused.store.library.publish(KEY, LENGTH)
    assert catalog.require(KEY) == found[0]
    assert_right_and_alone(other, bucket, clock)


def test_a_part_that_was_replaced_leads_to_another_multipart_upload(
    bucket: Bucket, catalog: BucketCatalog, clock: Clock, tmp_path: Path
) -> None:
    """A store keeps the last part of a number, as one that a paused node has sent."""
    other = Node(bucket, catalog, tmp_path / "other")
    node = Node(
        *interrupted(
            *(bucket, catalog, "complete_multipart", lambda: replace_part(other, 2)), is_after=False
        ),
        tmp_path / "node",
    )
    send_all(node, [])
    node.store.library.publish(KEY, LENGTH)
    assert_right_and_alone(node, bucket, clock)


def replace_part(node: Node, number: int) -> None:
    """Upload zeros as a part of the file."""
    multipart = node.store.pieces.catalog.require(KEY).multipart
    assert multipart is not None
    with node.store.pieces.spools.open(0) as spool:
        os.ftruncate(spool.descriptor, PIECE)
        zeros = spool.slice(ByteRange(0, PIECE))
        node.store.pieces.bucket.upload_part(multipart.name, multipart.id, number, zeros)


def test_parts_that_the_store_never_has_as_recorded_are_an_error(
    bucket: Bucket, catalog: BucketCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, begun = Node(bucket, catalog, tmp_path), list[str]()
    upload, begin = Bucket.upload_part, catalog.begin_multipart

    def with_wrong_checksums(*args: Any) -> Checksums:
        return replace(upload(*args), etag="0" * 32, crc32c="AAAAAA==")

    def note(*args: Any) -> None:
        begun.append(args[2].id)
        begin(*args)

    monkeypatch.setattr(Bucket, "upload_part", with_wrong_checksums)
    monkeypatch.setattr(catalog, "begin_multipart", note)
    send_all(node, [])
    with pytest.raises(StorageFailed):
        node.store.library.publish(KEY, LENGTH)
    assert len(set(begun)) == assembly.COMPLETION_TRIES
    monkeypatch.undo()


def test_a_node_that_was_paused_as_it_began_a_multipart_upload_begins_another(
    bucket: Bucket, catalog: BucketCatalog, clock: Clock, tmp_path: Path
) -> None:
    other = Node(bucket, catalog, tmp_path / "other")

    def sweep_late() -> None:
        clock.end_leases()
        other.store.inspection.collect_garbage()

    paused = Node(
        *interrupted(bucket, catalog, "create_named_multipart", sweep_late, is_after=True),
        tmp_path / "paused",
    )
    send_all(paused, [])
    paused.store.library.publish(KEY, LENGTH)
    assert_right_and_alone(paused, bucket, clock)


def test_a_piece_that_was_stored_so_late_that_it_may_be_swept_does_not_count(
    bucket: Bucket, catalog: BucketCatalog, clock: Clock, tmp_path: Path
) -> None:
    other, told = Node(bucket, catalog, tmp_path / "other"), list[ByteRange]()

    def sweep_late() -> None:
        clock.end_leases()
        other.store.inspection.collect_garbage()

    paused = Node(
        *interrupted(bucket, catalog, "put_object", sweep_late, is_after=True), tmp_path / "paused"
    )
    paused.store.staging.reserve(KEY, LENGTH)
    with pytest.raises(BytesLost):
        paused.send(told, 0, PIECE)
    assert told == []
    finish_on(other, told)
    assert_right_and_alone(other, bucket, clock)


# ---- uploads that end ----------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["announce", "put_object"])
def test_an_upload_that_ends_while_a_piece_is_stored_leaves_nothing(
    bucket: Bucket, catalog: BucketCatalog, clock: Clock, tmp_path: Path, call: str
) -> None:
    other, told = Node(bucket, catalog, tmp_path / "other"), list[ByteRange]()
    node = Node(
        *interrupted(
            *(bucket, catalog, call, lambda: other.store.library.delete(KEY)), is_after=True
        ),
        tmp_path / "node",
    )
    node.store.staging.reserve(KEY, LENGTH)
    with pytest.raises(BytesLost):
        node.send(told, 0, 10)
    assert told == []
    assert_empty_after_sweeps(other, bucket, clock)


def assert_empty_after_sweeps(node: Node, bucket: Bucket, clock: Clock) -> None:
    clock.end_leases()
    node.store.inspection.collect_garbage()
    assert [*bucket.list_objects(), *bucket.list_multiparts()] == []


@pytest.mark.parametrize(
    "call", ["create_named_multipart", "copy_part", "add_parts", "complete_multipart"]
)
@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("is_swept", [True, False], ids=["swept", "sweep unheard"])
def test_an_upload_that_ends_while_it_becomes_one_object_leaves_nothing(
    bucket: Bucket,
    catalog: BucketCatalog,
    clock: Clock,
    tmp_path: Path,
    call: str,
    is_after: bool,
    is_swept: bool,
) -> None:
    other = Node(bucket, catalog, tmp_path / "other")

    def remove() -> None:
        """At once from the bucket too, or only from the database."""
        if is_swept:
            other.store.library.delete(KEY)
        else:
            catalog.remove(KEY, also_published=False)

    node = Node(*interrupted(bucket, catalog, call, remove, is_after=is_after), tmp_path / "node")
    send_all(node, [])
    with pytest.raises((BytesLost, StorageFailed)):
        node.store.library.publish(KEY, LENGTH)
    assert_empty_after_sweeps(other, bucket, clock)


# ---- garbage -------------------------------------------------------------------------------------


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
        discard(catalog, name)
    for name in ("files/refused-parts", "files/removed-parts"):
        discard(catalog, name, bucket.create_multipart(name))
    node.store.inspection.collect_garbage()
    assert [each.name for each in bucket.list_objects()] == ["files/refused"]
    assert [each.name for each in bucket.list_multiparts()] == ["files/refused-parts"]
    assert catalog.inventory.garbage(10) == []
    clock.end_leases()
    assert {each.name for each in catalog.inventory.garbage(10)} == refused
    refused.clear()
    node.store.inspection.collect_garbage()
    assert [*bucket.list_objects(), *bucket.list_multiparts()] == []


def test_collecting_garbage_ends_with_the_claim_of_its_job(
    bucket: Bucket,
    catalog: BucketCatalog,
    clock: Clock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And a second node, or the same one later, goes on with the rest."""
    monkeypatch.setattr(inspection, "REMOVED_AT_ONCE", 2)
    node = Node(bucket, catalog, tmp_path / "node")
    for number in range(5):
        bucket.put_object(f"files/{number}", b"bytes")
        discard(catalog, f"files/{number}")

    def stop() -> None:
        raise JobCancelled

    with pytest.raises(JobCancelled):
        node.store.inspection.collect_garbage(stop)
    assert len(list(bucket.list_objects())) == 3
    assert len(catalog.inventory.garbage(2)) == 2, "and that node dies here"
    other = Node(bucket, catalog, tmp_path / "other")
    other.store.inspection.collect_garbage()
    assert list(bucket.list_objects()) == []
    assert catalog.inventory.garbage(10) == []


def test_what_only_the_bucket_or_only_the_database_has_is_named(
    bucket: Bucket, catalog: BucketCatalog, clock: Clock, tmp_path: Path
) -> None:
    node, told = Node(bucket, catalog, tmp_path / "node"), list[ByteRange]()
    node.store.staging.reserve(KEY, 10)
    node.send(told, 0, 10)
    node.store.library.publish(KEY, 10)
    [stored] = bucket.list_objects()
    bucket.put_object("files/stray", b"stray")
    bucket.put_object("checks/killed/object", b"of a check that was killed")
    bucket.create_multipart("files/begun")
    bucket.create_multipart("checks/killed/parts")
    clock.end_leases()
    young = Reconciliation(bucket, catalog, clock() - timedelta(days=1))
    assert list(young.differences()) == []
    old = Reconciliation(bucket, catalog, clock())
    strays = ["checks/killed/object", "files/stray"]
    assert list(old.differences()) == [Difference(name, is_orphan=True) for name in strays]
    begun = [each.name for each in old.orphaned_multiparts()]
    assert begun == ["checks/killed/parts", "files/begun"]
    bucket.delete(stored.name)
    assert Difference(stored.name, is_orphan=False) in list(old.differences())


# ---- answers that are lost -----------------------------------------------------------------------


def refuse() -> None:
    raise ServerBusy("The database cannot be reached.")


@pytest.mark.parametrize("is_after", [False, True], ids=["never arrived", "unheard"])
@pytest.mark.parametrize("call", [*POINTS[3:], "delete", "parts"])
def test_a_file_is_published_after_one_call_has_failed(
    bucket: Bucket,
    catalog: BucketCatalog,
    clock: Clock,
    tmp_path: Path,
    call: str,
    is_after: bool,
) -> None:
    """On the same node, at the latest when the lease has ended."""
    node = Node(*interrupted(bucket, catalog, call, refuse, is_after=is_after), tmp_path)
    send_all(node, [])
    for _ in range(2):
        try:
            node.store.library.publish(KEY, LENGTH)
            break
        except ServerBusy:
            clock.now += timedelta(seconds=LEASE_SECONDS + 1)
    assert_right_and_alone(Node(bucket, catalog, tmp_path / "other"), bucket, clock)
