"""What the catalog of a bucket promises, on both databases."""

from datetime import datetime, timedelta

import pytest

from app.core.cells import (
    Grid,
    Multipart,
    Part,
    PieceTotals,
    Stamp,
    direct_part_number,
    part_number,
)
from app.core.ranges import ByteRange
from app.db.engine import Database
from app.storage.s3.catalog import PIECE_LEASE, BucketCatalog
from tests.records.making import NOW

KEY = "0" * 31 + "a"
OTHER = "0" * 31 + "b"
GRID = Grid.of(100 * 1024 * 1024)
LEASE = timedelta(seconds=60)
STAMP = Stamp("etag", "AAAAAA==")


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def catalog(database: Database, clock: Clock) -> BucketCatalog:
    found = BucketCatalog(database, clock)
    found.reserve(KEY, GRID, 100)
    return found


def piece(catalog: BucketCatalog, start: int, end: int, name: str, *, cell: int = 0) -> int:
    """A stored piece; its id."""
    number = catalog.intend(KEY, cell, ByteRange(start, end), name)
    assert number is not None
    assert catalog.commit(number, KEY, cell, STAMP) is not None
    return number


def begin(catalog: BucketCatalog, key: str, multipart: Multipart) -> Multipart | None:
    """Note a multipart upload, as is announced before."""
    catalog.intend_multipart(multipart.name)
    return catalog.begin_multipart(key, multipart)


def test_a_file_is_there_once_it_is_reserved(catalog: BucketCatalog) -> None:
    assert catalog.file(OTHER) is None
    found = catalog.file(KEY)
    assert found is not None
    assert (found.grid, found.length, found.name, found.multipart) == (GRID, 100, None, None)


def test_reserving_again_keeps_the_grid_and_may_ask_for_more(catalog: BucketCatalog) -> None:
    catalog.reserve(KEY, Grid(5), 200)
    catalog.reserve(KEY, Grid(5), 150)
    found = catalog.file(KEY)
    assert found is not None
    assert (found.grid, found.length) == (GRID, 200)


def test_the_first_multipart_upload_stays(catalog: BucketCatalog) -> None:
    first, second = Multipart("a", "1"), Multipart("b", "2")
    assert begin(catalog, KEY, first) == first
    assert begin(catalog, KEY, second) == first
    assert begin(catalog, OTHER, second) is None


def test_a_multipart_upload_that_a_sweep_may_have_aborted_is_not_noted(
    catalog: BucketCatalog, clock: Clock
) -> None:
    late = Multipart("files/late", "1")
    catalog.intend_multipart(late.name)
    clock.now += PIECE_LEASE
    assert [each.name for each in catalog.garbage(10)] == ["files/late"]
    assert catalog.begin_multipart(KEY, late) is None
    in_time = Multipart("files/in-time", "2")
    assert begin(catalog, KEY, in_time) == in_time


def test_a_piece_counts_once_it_is_stored(catalog: BucketCatalog) -> None:
    number = catalog.intend(KEY, 0, ByteRange(0, 10), "one")
    assert number is not None
    assert catalog.pieces(KEY, 0) == []
    assert catalog.commit(number, KEY, 0, STAMP) == PieceTotals(1, 10)
    assert catalog.commit(number, KEY, 0, STAMP) is None, "only once"
    second = catalog.intend(KEY, 0, ByteRange(10, 30), "two")
    assert second is not None
    assert catalog.commit(second, KEY, 0, STAMP) == PieceTotals(2, 30)
    assert [each.name for each in catalog.pieces(KEY, 0)] == ["one", "two"]
    assert catalog.pieces(KEY, 1) == []


def test_nothing_can_be_added_to_a_missing_or_finished_file(catalog: BucketCatalog) -> None:
    assert catalog.intend(OTHER, 0, ByteRange(0, 1), "one") is None
    assert catalog.claim(OTHER, 0, "token", LEASE) is None
    assert catalog.finish(KEY, "whole", 100, is_published=False)
    assert catalog.intend(KEY, 0, ByteRange(0, 1), "one") is None
    assert catalog.claim(KEY, 0, "token", LEASE) is None
    assert begin(catalog, KEY, Multipart("a", "1")) is None


def test_a_piece_that_was_stored_after_its_file_became_one_object_is_late(
    catalog: BucketCatalog,
) -> None:
    number = catalog.intend(KEY, 0, ByteRange(0, 10), "late")
    assert number is not None
    catalog.add_whole([(KEY, "whole", 10)])
    assert catalog.commit(number, KEY, 0, STAMP) is None
    assert not catalog.inventory.is_needed("late")


def test_a_cell_has_one_claim_until_its_lease_ends(catalog: BucketCatalog, clock: Clock) -> None:
    first = catalog.claim(KEY, 3, "first", LEASE)
    assert first is not None
    assert catalog.claim(KEY, 3, "second", LEASE) is None
    assert catalog.claim(KEY, 4, "second", LEASE) is not None, "another cell is free"
    clock.now += LEASE + timedelta(seconds=1)
    second = catalog.claim(KEY, 3, "third", LEASE)
    assert second is not None
    assert second.number != first.number
    assert not catalog.seal(first, 10, STAMP), "it woke too late"
    assert catalog.seal(second, 10, STAMP)
    [part] = catalog.parts(KEY)
    assert (part.cell, part.number, part.length, part.stamp) == (3, second.number, 10, STAMP)


def test_a_released_claim_frees_its_cell(catalog: BucketCatalog) -> None:
    first = catalog.claim(KEY, 0, "first", LEASE)
    assert first is not None
    catalog.release(first)
    assert catalog.claim(KEY, 0, "second", LEASE) is not None
    assert not catalog.seal(first, 10, STAMP)


def test_a_part_holds_the_pieces_before_its_claim(catalog: BucketCatalog) -> None:
    last = piece(catalog, 0, 10, "before")
    claim = catalog.claim(KEY, 0, "token", LEASE)
    assert claim is not None
    assert claim.through == last
    assert [each.name for each in catalog.loose(KEY)] == ["before"]
    catalog.seal(claim, 100, STAMP)
    piece(catalog, 0, 10, "after")
    piece(catalog, 100, 110, "elsewhere", cell=1)
    assert [each.name for each in catalog.loose(KEY)] == ["after", "elsewhere"]


def test_a_finished_file_leaves_its_pieces_as_garbage(catalog: BucketCatalog, clock: Clock) -> None:
    piece(catalog, 0, 50, "half")
    piece(catalog, 0, 100, "whole")
    begin(catalog, KEY, Multipart("parts", "1"))
    on_its_way = catalog.intend(KEY, 0, ByteRange(0, 1), "late")
    assert catalog.finish(KEY, "whole", 100, is_published=True)
    assert not catalog.finish(KEY, "other", 100, is_published=True), "only once"
    found = catalog.garbage(10)
    assert {(each.name, each.multipart_id) for each in found} == {("half", None), ("parts", "1")}
    assert on_its_way is not None
    assert catalog.commit(on_its_way, KEY, 0, STAMP) is None
    catalog.collected(found)
    clock.now += PIECE_LEASE + timedelta(seconds=1)
    assert [each.name for each in catalog.garbage(10)] == ["late"]


def test_published_files_are_listed_apart(catalog: BucketCatalog, clock: Clock) -> None:
    catalog.add_whole([(OTHER, "other", 5)])
    clock.now += timedelta(seconds=10)
    assert dict(catalog.inventory.staged()) == {KEY: 10.0, OTHER: 10.0}
    assert catalog.publish([OTHER, KEY]) == 1
    assert catalog.publish([OTHER]) == 1, "repeatable"
    assert dict(catalog.inventory.staged()) == {KEY: 10.0}
    assert list(catalog.inventory.published()) == [OTHER]


def test_a_file_that_is_one_object_keeps_it_when_it_is_added_again(catalog: BucketCatalog) -> None:
    catalog.add_whole([(KEY, "reserved", 5), (OTHER, "new", 5)])
    catalog.publish([OTHER])
    catalog.add_whole([(KEY, "again", 6), (OTHER, "again", 6)])
    kept = [(found.name, found.length) for key in (KEY, OTHER) if (found := catalog.file(key))]
    assert kept == [("reserved", 5), ("new", 5)]


def test_an_object_that_may_be_on_its_way_is_removed_again_a_lease_later(
    catalog: BucketCatalog, clock: Clock
) -> None:
    name = f"files/{OTHER}.1"
    catalog.add_whole([(OTHER, name, 5)])
    found = catalog.remove(OTHER, also_published=True)
    assert [each.name for each in found] == [name]
    catalog.collected(found)
    assert catalog.garbage(10) == []
    assert catalog.inventory.is_known(name)
    clock.now += PIECE_LEASE
    assert [each.name for each in catalog.garbage(10)] == [name]


def test_activity_is_moved_but_not_beyond_now(catalog: BucketCatalog, clock: Clock) -> None:
    clock.now += timedelta(seconds=10)
    catalog.inventory.shift_activity(timedelta(seconds=4))
    assert dict(catalog.inventory.staged()) == {KEY: 6.0}
    catalog.inventory.shift_activity(timedelta(seconds=20))
    assert dict(catalog.inventory.staged()) == {KEY: 0.0}


def test_removing_names_what_is_to_go_from_the_bucket(catalog: BucketCatalog) -> None:
    piece(catalog, 0, 50, f"pieces/{KEY}.1")
    catalog.claim(KEY, 0, "token", LEASE)
    begin(catalog, KEY, Multipart(f"files/{KEY}.2", "id"))
    found = catalog.remove(KEY, also_published=False)
    assert {(each.name, each.multipart_id) for each in found} == {
        (f"pieces/{KEY}.1", None),
        (f"files/{KEY}.2", "id"),
    }
    assert list(catalog.inventory.objects()) == [
        (f"files/{KEY}.2", False),
        (f"pieces/{KEY}.1", False),
    ]
    catalog.collected(found)
    assert catalog.file(KEY) is None
    assert list(catalog.inventory.objects()) == []
    assert catalog.remove(KEY, also_published=True) == []


def test_a_published_file_may_be_kept(catalog: BucketCatalog) -> None:
    catalog.finish(KEY, f"files/{KEY}.1", 100, is_published=True)
    assert catalog.remove(KEY, also_published=False) == []
    assert [each.name for each in catalog.remove(KEY, also_published=True)] == [f"files/{KEY}.1"]


@pytest.mark.parametrize("is_used", [False, True])
def test_only_an_unused_file_is_given_back(catalog: BucketCatalog, is_used: bool) -> None:
    if is_used:
        catalog.intend(KEY, 0, ByteRange(0, 1), "one")
    catalog.remove_unused(KEY)
    assert (catalog.file(KEY) is not None) == is_used


def test_an_object_that_was_never_stored_becomes_garbage(
    catalog: BucketCatalog, clock: Clock
) -> None:
    number = catalog.intend(KEY, 0, ByteRange(0, 1), "one")
    assert catalog.garbage(10) == []
    clock.now += PIECE_LEASE + timedelta(seconds=1)
    assert [each.name for each in catalog.garbage(10)] == ["one"]
    assert number is not None
    assert catalog.commit(number, KEY, 0, STAMP) is None


def test_a_part_without_a_claim_has_the_bytes_of_all_pieces_so_far(catalog: BucketCatalog) -> None:
    piece(catalog, 0, 50, "early")
    assert catalog.place(KEY, [Part(0, 3, 100, STAMP, through=0)])
    (part,) = catalog.parts(KEY)
    assert (part.number, part.length, catalog.loose(KEY)) == (3, 100, [])
    piece(catalog, 0, 50, "late")
    assert [each.name for each in catalog.loose(KEY)] == ["late"]


def test_a_claim_outlives_a_part_that_came_without_one(catalog: BucketCatalog) -> None:
    claim = catalog.claim(KEY, 0, "token", LEASE)
    assert claim is not None
    assert catalog.place(KEY, [Part(0, 3, 100, STAMP, through=0)])
    assert catalog.claim(KEY, 0, "other", LEASE) is None
    assert catalog.seal(claim, 100, STAMP)
    assert [part.number for part in catalog.parts(KEY)] == [claim.number]


def test_no_part_is_added_to_a_file_that_is_one_object_or_gone(catalog: BucketCatalog) -> None:
    assert not catalog.place(OTHER, [Part(0, 3, 100, STAMP, through=0)])
    catalog.finish(KEY, "files/a", 100, is_published=False)
    assert not catalog.place(KEY, [Part(0, 3, 100, STAMP, through=0)])


def test_no_claim_has_the_number_under_which_clients_upload() -> None:
    numbers = {part_number(cell, epoch) for cell in range(9) for epoch in range(9)}
    direct = {direct_part_number(cell) for cell in range(9)}
    assert numbers | direct == set(range(1, 28))
    assert not numbers & direct


def test_a_file_to_which_clients_may_be_sending_is_not_unused(catalog: BucketCatalog) -> None:
    begin(catalog, KEY, Multipart("files/a", "upload"))
    catalog.remove_unused(KEY)
    assert catalog.file(KEY) is not None


def stored(catalog: BucketCatalog) -> list[tuple[int, ByteRange, str]]:
    return [(each.id, each.span, each.name) for each in catalog.pieces(KEY, 0)]


def test_a_piece_takes_the_place_of_those_it_was_joined_from(
    catalog: BucketCatalog, clock: Clock
) -> None:
    piece(catalog, 0, 10, "one")
    newest = piece(catalog, 10, 20, "two")
    joined, later = catalog.pieces(KEY, 0), piece(catalog, 5, 15, "later")
    number = catalog.intend(KEY, 0, ByteRange(0, 20), "joined")
    assert number is not None
    assert catalog.join(number, joined, KEY, STAMP)
    in_order = [(newest, ByteRange(0, 20), "joined"), (later, ByteRange(5, 15), "later")]
    assert stored(catalog) == in_order, "what came later still wins"
    assert catalog.garbage(10) == [], "somebody may be reading them"
    clock.now += PIECE_LEASE
    assert {each.name for each in catalog.garbage(10)} == {"one", "two"}


def test_pieces_are_joined_once(catalog: BucketCatalog) -> None:
    piece(catalog, 0, 10, "one")
    piece(catalog, 10, 20, "two")
    joined = catalog.pieces(KEY, 0)
    first, second = (catalog.intend(KEY, 0, ByteRange(0, 20), name) for name in ("a", "b"))
    assert first is not None
    assert second is not None
    assert catalog.join(first, joined, KEY, STAMP)
    after = stored(catalog)
    assert not catalog.join(second, joined, KEY, STAMP)
    assert stored(catalog) == after


def test_pieces_are_not_joined_around_bytes_that_came_between_them(catalog: BucketCatalog) -> None:
    piece(catalog, 0, 10, "one")
    on_its_way = catalog.intend(KEY, 0, ByteRange(5, 8), "between")
    piece(catalog, 10, 20, "two")
    before, joined = stored(catalog), catalog.pieces(KEY, 0)
    assert not catalog.is_joinable(KEY, joined)
    number = catalog.intend(KEY, 0, ByteRange(0, 20), "joined")
    assert number is not None
    assert not catalog.join(number, joined, KEY, STAMP)
    assert stored(catalog) == before
    assert on_its_way is not None
    assert catalog.commit(on_its_way, KEY, 0, STAMP) == PieceTotals(3, 23)


def test_pieces_are_joined_around_bytes_that_were_withdrawn(
    catalog: BucketCatalog, clock: Clock
) -> None:
    piece(catalog, 0, 10, "one")
    refused = catalog.intend(KEY, 0, ByteRange(5, 8), "refused")
    piece(catalog, 10, 20, "two")
    joined = catalog.pieces(KEY, 0)
    assert refused is not None
    catalog.withdraw(refused, "refused")
    assert catalog.is_joinable(KEY, joined)
    number = catalog.intend(KEY, 0, ByteRange(0, 20), "joined")
    assert number is not None
    assert catalog.join(number, joined, KEY, STAMP)
    assert catalog.garbage(10) == [], "a request may still store it"
    clock.now += PIECE_LEASE
    assert {each.name for each in catalog.garbage(10)} == {"one", "two", "refused"}


def test_pieces_of_a_finished_file_are_not_joined(catalog: BucketCatalog, clock: Clock) -> None:
    piece(catalog, 0, 10, "one")
    piece(catalog, 10, 20, "two")
    joined = catalog.pieces(KEY, 0)
    late = catalog.intend(KEY, 0, ByteRange(0, 20), "late")
    assert late is not None
    clock.now += PIECE_LEASE + timedelta(seconds=1)
    catalog.garbage(10)
    assert not catalog.join(late, joined, KEY, STAMP), "its object may have been removed"
    number = catalog.intend(KEY, 0, ByteRange(0, 20), "joined")
    assert number is not None
    assert catalog.finish(KEY, "files/whole", 100, is_published=True)
    assert not catalog.join(number, joined, KEY, STAMP)


def test_a_claim_is_renewed_until_somebody_else_has_the_cell(
    catalog: BucketCatalog, clock: Clock
) -> None:
    claim = catalog.claim(KEY, 0, "mine", LEASE)
    assert claim is not None
    clock.now += LEASE * 0.9
    assert catalog.renew(claim, LEASE)
    clock.now += LEASE * 0.9
    assert catalog.claim(KEY, 0, "yours", LEASE) is None
    clock.now += LEASE
    assert catalog.claim(KEY, 0, "yours", LEASE) is not None
    assert not catalog.renew(claim, LEASE)
