"""A client that sends few bytes at a time: the pieces of its cells stay few, and none is lost."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app.core.cells import Stamp
from app.core.errors import ServerBusy, StorageFailed
from app.core.ranges import ByteRange, RangeSet
from app.storage.s3.bucket import Bucket
from app.storage.s3.catalog import BucketCatalog
from app.storage.s3.cells import SHORTEST_COPY_BYTES, ClaimLost, Lease
from tests.storage.nodes import CELL, MOST_PIECES, Clock, Killed, Node, die, interrupted
from tests.storage.sources import pattern
from tests.storage.stores import KEY, content

STEP = 100
TOP = 10 * STEP
"""Sent in steps; the rest of the file comes at once."""

CLAIM_ENDS = timedelta(minutes=5)
"""Longer than a claim, and shorter than somebody may read pieces that were joined."""

LENGTHS = {"one object": TOP + 50, "two parts": CELL + 50}

POINTS = ["claim", "pieces", "open", "intend", "put_object", "join", "release"]
"""What a node calls to join pieces, in the database and in the store."""


def steps(start: int = 0, end: int = TOP) -> list[tuple[int, int]]:
    return [(at, at + STEP) for at in range(start, end, STEP)]


def send_rest(node: Node, told: list[ByteRange], length: int) -> None:
    for gap in RangeSet.of(told).gaps(ByteRange(0, length)):
        node.send(told, gap.start, gap.end)


def send_from_both(paused: Node, other: Node, told: list[ByteRange], length: int) -> None:
    """Begin a file at the one, whose pause lets the other send too; the other completes it."""
    paused.store.staging.reserve(KEY, length)
    for start, end in steps(0, MOST_PIECES * STEP):
        paused.send(told, start, end)
    assert max(span.end for span in told) > MOST_PIECES * STEP, "the other node has sent nothing"
    send_rest(other, told, length)
    other.store.library.publish(KEY, length)


def require_whole_and_nothing_else(node: Node, bucket: Bucket, clock: Clock, length: int) -> None:
    """The published file is right, and after the sweep it is all there is."""
    assert content(node.store, KEY) == pattern(0, length)
    clock.end_leases()
    node.store.inspection.sweep()
    assert [each.length for each in bucket.list_objects()] == [length]
    assert list(bucket.list_multiparts()) == []


@pytest.mark.parametrize("length", LENGTHS.values(), ids=LENGTHS.keys())
def test_however_few_bytes_a_client_sends_at_once_a_cell_has_few_pieces(
    bucket: Bucket, catalog: BucketCatalog, clock: Clock, tmp_path: Path, length: int
) -> None:
    node, told = Node(bucket, catalog, tmp_path), list[ByteRange]()
    node.store.staging.reserve(KEY, length)
    for start, end in steps():
        node.send(told, start, end)
        assert len(catalog.pieces(KEY, 0)) <= MOST_PIECES + 1
    send_rest(node, told, length)
    node.store.library.publish(KEY, length)
    require_whole_and_nothing_else(node, bucket, clock, length)


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("call", POINTS)
def test_whoever_joins_pieces_may_end_at_any_point(
    bucket: Bucket, catalog: BucketCatalog, clock: Clock, tmp_path: Path, call: str, is_after: bool
) -> None:
    length, told = CELL + 50, list[ByteRange]()
    first, second = Node(bucket, catalog, tmp_path / "first"), Node(bucket, catalog, tmp_path / "2")
    first.store.staging.reserve(KEY, length)
    *before, last = steps(0, MOST_PIECES * STEP)
    for start, end in before:
        first.send(told, start, end)
    calls = 2 if call in {"intend", "put_object"} else 1  # Its own piece comes first.
    ends = Node(*interrupted(bucket, catalog, call, die, is_after=is_after, turn=calls), tmp_path)
    with pytest.raises(Killed):
        ends.send(told, *last)
    first.send(told, *last)
    clock.end_leases()
    second.store.inspection.sweep()
    for start, end in steps(MOST_PIECES * STEP):
        second.send(told, start, end)
    send_rest(second, told, length)
    second.store.library.publish(KEY, length)
    require_whole_and_nothing_else(second, bucket, clock, length)


@pytest.mark.parametrize("call", ["pieces", "open", "join"])
def test_two_nodes_that_join_the_same_pieces_lose_none(
    bucket: Bucket, catalog: BucketCatalog, clock: Clock, tmp_path: Path, call: str
) -> None:
    length, told = CELL + 50, list[ByteRange]()
    other = Node(bucket, catalog, tmp_path / "other")

    def join_too() -> None:
        clock.now += CLAIM_ENDS
        for start, end in steps(MOST_PIECES * STEP):
            other.send(told, start, end)

    paused = Node(*interrupted(bucket, catalog, call, join_too, is_after=True), tmp_path / "paused")
    send_from_both(paused, other, told, length)
    require_whole_and_nothing_else(other, bucket, clock, length)


@pytest.mark.parametrize("call", ["pieces", "open", "join"])
def test_a_cell_may_be_sealed_while_another_node_joins_its_pieces(
    bucket: Bucket, catalog: BucketCatalog, clock: Clock, tmp_path: Path, call: str
) -> None:
    length, told = CELL + 50, list[ByteRange]()
    other = Node(bucket, catalog, tmp_path / "other")

    def seal() -> None:
        clock.now += CLAIM_ENDS
        other.send(told, MOST_PIECES * STEP, CELL)
        assert [part.cell for part in catalog.parts(KEY)] == [0]

    paused = Node(*interrupted(bucket, catalog, call, seal, is_after=False), tmp_path / "paused")
    send_from_both(paused, other, told, length)
    require_whole_and_nothing_else(other, bucket, clock, length)


@pytest.mark.parametrize("turn", [1, 2], ids=["one that was sent", "a joined one"])
def test_pieces_are_joined_after_the_store_has_refused_one(
    bucket: Bucket, catalog: BucketCatalog, clock: Clock, tmp_path: Path, turn: int
) -> None:
    def refuse() -> None:
        raise ServerBusy("The object store does not answer in time.")

    told, put = list[ByteRange](), "put_object"
    node = Node(bucket, catalog, tmp_path / "node")
    refused = Node(
        *interrupted(bucket, catalog, put, refuse, is_after=False, turn=turn), tmp_path / "refused"
    )
    node.store.staging.reserve(KEY, TOP + 50)
    *before, last = steps(0, MOST_PIECES * STEP)
    for start, end in before:
        node.send(told, start, end)
    with nullcontext() if turn == 2 else pytest.raises(ServerBusy):
        refused.send(told, *last)
    if turn == 1:
        node.send(told, *last)
    for start, end in steps(MOST_PIECES * STEP):
        node.send(told, start, end)
    assert len(catalog.pieces(KEY, 0)) <= MOST_PIECES
    send_rest(node, told, TOP + 50)
    node.store.library.publish(KEY, TOP + 50)
    require_whole_and_nothing_else(node, bucket, clock, TOP + 50)


@pytest.mark.parametrize("is_overlapped", [False, True], ids=["whole", "overlapped"])
def test_a_piece_that_is_not_what_was_stored_is_neither_joined_nor_sealed(
    bucket: Bucket, catalog: BucketCatalog, tmp_path: Path, is_overlapped: bool
) -> None:
    length, told = CELL + 50, list[ByteRange]()
    node = Node(bucket, catalog, tmp_path)
    node.store.staging.reserve(KEY, length)
    node.send(told, 0, STEP)
    [damaged] = catalog.pieces(KEY, 0)
    bucket.put_object(damaged.name, pattern(1, STEP + 1))
    for start, end in steps(STEP // 2 if is_overlapped else STEP, TOP):
        node.send(told, start, end)
    assert damaged in catalog.pieces(KEY, 0)
    send_rest(node, told, length)
    assert catalog.part(KEY, 0) is None
    with pytest.raises(StorageFailed):
        node.store.library.publish(KEY, length)
    bucket.put_object(damaged.name, pattern(0, STEP))
    node.store.library.publish(KEY, length)
    assert content(node.store, KEY) == pattern(0, length)


@pytest.mark.parametrize("has_checksum", [True, False], ids=["checksum", "no checksum"])
def test_a_piece_that_is_not_what_was_stored_is_not_copied_as_a_whole_cell(
    bucket: Bucket,
    catalog: BucketCatalog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    has_checksum: bool,
) -> None:
    cell, told = SHORTEST_COPY_BYTES + STEP, list[ByteRange]()
    copy_part = Bucket.copy_part

    def copy_without_checksum(*args: Any) -> Stamp:
        return replace(copy_part(*args), crc32c="")

    if not has_checksum:
        monkeypatch.setattr(Bucket, "copy_part", copy_without_checksum)
    node = Node(bucket, catalog, tmp_path, cell_bytes=cell)
    node.store.staging.reserve(KEY, cell + 50)
    claim = catalog.claim(KEY, 0, "theirs", timedelta(seconds=100))
    assert claim is not None
    node.send(told, 0, cell)
    catalog.release(claim)
    node.send(told, cell, cell + 50)
    [damaged] = catalog.pieces(KEY, 0)
    bucket.put_object(damaged.name, pattern(1, cell + 1))
    with pytest.raises(StorageFailed):
        node.store.library.publish(KEY, cell + 50)
    assert catalog.part(KEY, 0) is None
    bucket.put_object(damaged.name, pattern(0, cell))
    node.store.library.publish(KEY, cell + 50)
    assert content(node.store, KEY) == pattern(0, cell + 50)


def test_whoever_reads_pieces_may_go_on_after_they_were_joined(
    bucket: Bucket, catalog: BucketCatalog, tmp_path: Path
) -> None:
    node, told = Node(bucket, catalog, tmp_path), list[ByteRange]()
    node.store.staging.reserve(KEY, TOP)
    *before, last = steps(0, MOST_PIECES * STEP)
    for start, end in before:
        node.send(told, start, end)
    with node.store.staging.open(KEY) as file:
        assert file.read(10) == pattern(0, 10)
        node.send(told, *last)
        node.store.inspection.sweep()
        assert len(catalog.pieces(KEY, 0)) == 1
        assert file.read(STEP - 10) + file.read(STEP) == pattern(10, 2 * STEP)


def test_whoever_takes_longer_than_a_claim_renews_it_or_gives_up(
    bucket: Bucket, catalog: BucketCatalog, clock: Clock, tmp_path: Path
) -> None:
    Node(bucket, catalog, tmp_path).store.staging.reserve(KEY, CELL)
    claim = catalog.claim(KEY, 0, "mine", timedelta(seconds=100))
    assert claim is not None
    clock.now += timedelta(seconds=99)
    ending = Lease(catalog, claim, time.monotonic())
    ending.cover(CELL)
    clock.now += timedelta(seconds=2)
    assert catalog.claim(KEY, 0, "theirs", timedelta(seconds=100)) is None
    clock.now += CLAIM_ENDS
    assert catalog.claim(KEY, 0, "theirs", timedelta(seconds=100)) is not None
    with pytest.raises(ClaimLost):
        Lease(catalog, claim, time.monotonic()).cover(CELL)
