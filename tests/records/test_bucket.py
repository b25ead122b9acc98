"""What the catalog of a bucket promises, on both databases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Event
from typing import Any

import pytest
import sqlalchemy as sa

from app.core.lifecycle import UploadState
from app.core.pieces import (
    MIB,
    MOST_PIECE_BYTES,
    PIECE_BYTES,
    UNKNOWN_ID,
    Checksums,
    Garbage,
    Multipart,
    Part,
    Piece,
    overlay,
    piece_bytes,
)
from app.core.ranges import ByteRange
from app.core.upload import Upload
from app.db.engine import Database
from app.records.uploads import UploadRecords
from app.storage.base import BytesLost
from app.storage.s3 import catalog as catalog_module
from app.storage.s3.catalog import (
    _PIECES,
    ANNOUNCED_FOR,
    READ_FOR,
    SURE,
    BucketCatalog,
    LeaseLost,
)
from tests.records.making import NOW, add_projects, new_upload
from tests.storage.nodes import discard

KEY = "0" * 31 + "a"
OTHER = "0" * 31 + "b"
THIRD = "0" * 31 + "c"
WHOLE = ByteRange(0, 270)
CHECKSUMS = Checksums("etag", "AAAAAA==")
TOKEN = "token"
OTHER_TOKEN = "other"
SECONDS = 60.0
MOMENT = timedelta(seconds=1)


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
    found.reserve(KEY, 100)
    return found


def piece(start: int, end: int, name: str) -> Piece:
    return Piece(0, ByteRange(start, end), name, CHECKSUMS.crc32c)


def add(catalog: BucketCatalog, *pieces: Piece, key: str = KEY) -> None:
    """Announce and record objects, as if they were put."""
    for each in pieces:
        catalog.announce(key, each.name)
    catalog.add_alone(key, pieces)


def names(catalog: BucketCatalog, key: str = KEY) -> list[str]:
    found, _ = catalog.pieces(key, ByteRange(0, 1000))
    return [each.name for each in found]


def begin(catalog: BucketCatalog, multipart: Multipart, *, token: str = TOKEN) -> None:
    catalog.announce_multipart(multipart.name)
    catalog.begin_multipart(KEY, token, multipart)


def due(catalog: BucketCatalog) -> set[tuple[str, str | None]]:
    return {(each.name, each.multipart_id) for each in catalog.inventory.garbage(100)}


# ---- files ---------------------------------------------------------------------------------------


def test_a_file_is_there_once_it_is_reserved(catalog: BucketCatalog) -> None:
    assert catalog.file(OTHER) is None
    found = catalog.file(KEY)
    assert found is not None
    assert (found.length, found.name, found.multipart) == (100, None, None)


def test_reserving_again_changes_nothing(catalog: BucketCatalog) -> None:
    catalog.reserve(KEY, 200)
    assert catalog.require(KEY).length == 100


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


def test_an_object_that_may_be_on_its_way_is_removed_again_later(
    catalog: BucketCatalog, clock: Clock
) -> None:
    name = f"files/{OTHER}.1"
    catalog.add_whole([(OTHER, name, 5)])
    found = catalog.remove(OTHER, also_published=True)
    assert [each.name for each in found] == [name]
    catalog.inventory.collected(found)
    assert due(catalog) == set()
    assert catalog.inventory.is_needed(name) is False
    clock.now += ANNOUNCED_FOR
    assert due(catalog) == {(name, None)}


def test_activity_is_moved_but_not_beyond_now(catalog: BucketCatalog, clock: Clock) -> None:
    clock.now += timedelta(seconds=10)
    catalog.inventory.shift_activity(timedelta(seconds=4))
    assert dict(catalog.inventory.staged()) == {KEY: 6.0}
    catalog.inventory.shift_activity(timedelta(seconds=20))
    assert dict(catalog.inventory.staged()) == {KEY: 0.0}


def test_a_file_that_is_touched_does_not_get_idle_sooner(
    catalog: BucketCatalog, clock: Clock
) -> None:
    catalog.touch(KEY, seconds=900)
    clock.now += timedelta(seconds=10)
    catalog.touch(KEY)
    assert dict(catalog.inventory.staged()) == {KEY: -890.0}
    clock.now += timedelta(seconds=1000)
    catalog.touch(KEY)
    assert dict(catalog.inventory.staged()) == {KEY: 0.0}


# ---- pieces --------------------------------------------------------------------------------------


def test_a_piece_counts_once_it_is_recorded(catalog: BucketCatalog, clock: Clock) -> None:
    catalog.announce(KEY, "one")
    assert names(catalog) == []
    catalog.add_alone(KEY, [piece(0, 10, "one")])
    assert names(catalog) == ["one"]
    clock.now += ANNOUNCED_FOR
    assert due(catalog) == set()
    assert catalog.inventory.is_needed("one")


def test_a_piece_is_recorded_once(catalog: BucketCatalog) -> None:
    add(catalog, piece(0, 10, "one"))
    with pytest.raises(BytesLost):
        catalog.add_alone(KEY, [piece(0, 10, "one")])
    assert names(catalog) == ["one"]


def test_a_piece_whose_announcement_is_nearly_due_is_not_recorded(
    catalog: BucketCatalog, clock: Clock
) -> None:
    """A sweep on a node whose clock is ahead may be removing its object."""
    for name in ("in time", "late"):
        catalog.announce(KEY, name)
    clock.now += ANNOUNCED_FOR - SURE - MOMENT
    catalog.add_alone(KEY, [piece(0, 10, "in time")])
    clock.now += MOMENT
    with pytest.raises(BytesLost):
        catalog.add_alone(KEY, [piece(0, 10, "late")])
    assert names(catalog) == ["in time"]
    clock.now += SURE
    assert due(catalog) == {("late", None)}


def test_a_piece_is_not_recorded_after_a_failed_attempt_to_delete_it(
    catalog: BucketCatalog, clock: Clock
) -> None:
    """The store may have deleted it, and only its answer was lost."""
    catalog.announce(KEY, "late")
    clock.now += ANNOUNCED_FOR + SURE
    catalog.inventory.collected([], catalog.inventory.garbage(10))
    assert due(catalog) == set()
    with pytest.raises(BytesLost):
        catalog.add_alone(KEY, [piece(0, 10, "late")])


def test_no_row_is_added_if_one_of_them_is_late(catalog: BucketCatalog) -> None:
    catalog.announce(KEY, "one")
    with pytest.raises(BytesLost):
        catalog.add_alone(KEY, [piece(0, 10, "one"), piece(10, 20, "never announced")])
    assert names(catalog) == []
    catalog.add_alone(KEY, [piece(0, 10, "one")])


def test_announcements_last_longer_for_clients(catalog: BucketCatalog, clock: Clock) -> None:
    catalog.announce(KEY, "direct/a.1", seconds=900)
    catalog.announce(KEY, "direct/b.1", seconds=900)
    clock.now += ANNOUNCED_FOR
    assert catalog.announced("direct/a.") == ["direct/a.1"]
    clock.now += timedelta(seconds=900)
    assert catalog.announced("direct/a.") == []
    assert due(catalog) == {("direct/a.1", None), ("direct/b.1", None)}


def test_announcements_are_found_by_an_index(catalog: BucketCatalog, database: Database) -> None:
    """In a table of any length: each chunk in progress has a row there."""
    with noted("stored_garbage") as found:
        catalog.announced("direct/a_%.")
    [(text, values)] = found
    steps = plan(database, text, values)
    assert any("name>" in step or "name)::text ~>=~" in step for step in steps)


def test_the_announcement_of_a_chunk_is_found_by_an_index(
    catalog: BucketCatalog, database: Database
) -> None:
    catalog.announce(KEY, "one")
    with noted("stored_garbage") as found:
        catalog.add_alone(KEY, [piece(0, 10, "one")])
    [(text, values)] = found
    steps = plan(database, text, values)
    assert any("name=?" in step or "(name)::text =" in step for step in steps), steps
    assert not any("Filter: ((name" in step for step in steps), steps


@contextmanager
def noted(table: str) -> Iterator[list[tuple[str, Any]]]:
    """Collects the statements about a table, with their values."""
    found = list[tuple[str, Any]]()

    def note(_connection: object, _cursor: object, text: str, values: Any, *_: object) -> None:
        if table in text:
            found.append((text, values))

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)


def plan(database: Database, text: str, values: Any) -> list[str]:
    """How a database executes a statement, if the tables are large."""
    with database.write() as connection:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
            return list(connection.exec_driver_sql(f"EXPLAIN {text}", values).scalars())
        rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", values)
        return [row.detail for row in rows]


def test_a_prefix_is_taken_by_its_letters(catalog: BucketCatalog) -> None:
    """Neither the collation of the database nor the wildcards of LIKE matter."""
    for name in ("direct/a_b.1", "direct/a-b.1", "direct/A_b.1", "direct/ab.1", "direct/a_b"):
        catalog.announce(KEY, name)
    assert catalog.announced("direct/a_b.") == ["direct/a_b.1"]


@pytest.mark.parametrize("end", ["missing", "one object", "removed"])
def test_nothing_is_added_to_a_file_that_is_gone_or_one_object(
    catalog: BucketCatalog, end: str
) -> None:
    key = OTHER if end == "missing" else KEY
    catalog.reserve(OTHER, 1)
    catalog.announce(key, "one")
    if end == "one object":
        catalog.announce(KEY, "whole")
        assert catalog.finish(KEY, "whole", 100)
    else:
        catalog.remove(key, also_published=False)
    with pytest.raises(BytesLost):
        catalog.add_alone(key, [piece(0, 1, "one")])
    with pytest.raises(BytesLost):
        catalog.announce(key, "two")
    assert not catalog.lease(key, TOKEN, SECONDS)


def test_pieces_of_a_range_are_listed_page_by_page(
    catalog: BucketCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.storage.s3.catalog.PAGE", 3)
    monkeypatch.setattr("app.storage.s3.catalog._PIECES", _PIECES.limit(3))
    add(catalog, *(piece(start, start + 10, f"p{start}") for start in range(0, 100, 10)))
    found, end = catalog.pieces(KEY, ByteRange(15, 62))
    assert ([each.name for each in found], end) == (["p10", "p20", "p30"], 30)
    found, end = catalog.pieces(KEY, ByteRange(80, 100))
    assert ([each.name for each in found], end) == (["p80", "p90"], 100)


@pytest.mark.parametrize(
    ("declared", "start", "length"),
    [
        (None, 0, PIECE_BYTES),
        (None, 1 << 40, MOST_PIECE_BYTES),
        (None, 100_000 * MIB, 100 * MIB),
        (1 << 40, 0, piece_bytes(1 << 40)),
        (5 << 40, 1 << 42, piece_bytes(5 << 40)),
        (100, 5 * PIECE_BYTES, PIECE_BYTES),
    ],
)
def test_the_longest_piece_is_found_by_its_last_byte(
    catalog: BucketCatalog, declared: int | None, start: int, length: int
) -> None:
    catalog.reserve(OTHER, declared)
    add(catalog, piece(start, start + length, "long"), key=OTHER)
    last = start + length - 1
    found, _ = catalog.pieces(OTHER, ByteRange(last, last + 1))
    assert [each.name for each in found] == ["long"]


def test_pieces_far_before_a_range_are_not_read(catalog: BucketCatalog, database: Database) -> None:
    with noted("stored_pieces") as found:
        catalog.pieces(KEY, ByteRange(1 << 40, 1 << 41))
    [(text, values)] = found
    steps = plan(database, text, values)
    assert any("start>? AND start<?" in step or "(start > " in step for step in steps)


def test_the_oldest_of_more_pieces_than_a_page_is_among_them(
    catalog: BucketCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.storage.s3.catalog.PAGE", 3)
    monkeypatch.setattr("app.storage.s3.catalog._PIECES", _PIECES.limit(3))
    add(catalog, *(piece(0, 10 + number, f"p{number}") for number in range(9)))
    found, end = catalog.pieces(KEY, ByteRange(0, 100))
    assert end == 1
    assert overlay(found, ByteRange(0, end))[0][0].name == "p0"


@dataclass
class TwoRequests:
    """Two requests with the same bytes; the first stays in its transaction until it may go on."""

    catalog: BucketCatalog
    upload: Upload
    is_in: Event = field(default_factory=Event)
    may_go_on: Event = field(default_factory=Event)
    has_second_begun: Event = field(default_factory=Event)

    def add_first(self, connection: sa.Connection) -> None:
        self.is_in.set()
        assert self.may_go_on.wait(30)
        self.catalog.add(connection, self.upload.id, [piece(0, 50, "first")])

    def add_second(self, connection: sa.Connection) -> None:
        self.has_second_begun.set()
        self.catalog.add(connection, self.upload.id, [piece(0, 50, "second")])

    def winner(self) -> str:
        """The object that has the bytes."""
        found, _ = self.catalog.pieces(self.upload.id, ByteRange(0, 50))
        [(taken, _)] = overlay(found, ByteRange(0, 50))
        return taken.name


@pytest.fixture
def upload(database: Database, catalog: BucketCatalog) -> Upload:
    """An upload with a file in the catalog."""
    add_projects(database, "default")
    found = new_upload(length=100)
    UploadRecords(database).add(found)
    catalog.reserve(found.id, 100)
    return found


def test_an_acknowledged_byte_never_changes(
    database: Database, catalog: BucketCatalog, upload: Upload
) -> None:
    records, span, two = UploadRecords(database), ByteRange(0, 50), TwoRequests(catalog, upload)
    for name in ("first", "second"):
        catalog.announce(upload.id, name)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(records.add_received, upload, span, NOW, rows=two.add_first)
        assert two.is_in.wait(30)
        second = pool.submit(records.add_received, upload, span, NOW, rows=two.add_second)
        try:
            assert not two.has_second_begun.wait(0.3), "its rows are added once it has the lock"
        finally:
            two.may_go_on.set()
        assert first.result().received.covers(span)
        assert two.winner() == "first"
        assert second.result().received.covers(span)
    assert two.winner() == "first"
    assert set(names(catalog, upload.id)) == {"first", "second"}


def test_a_record_is_undone_if_a_row_cannot_be_added(
    database: Database, catalog: BucketCatalog, upload: Upload
) -> None:
    records = UploadRecords(database)
    late = piece(0, 100, "never announced")
    with pytest.raises(BytesLost):
        records.add_received(
            *(upload, late.span, NOW),
            rows=lambda connection: catalog.add(connection, upload.id, [late]),
        )
    found = records.get(upload.id)
    assert (found.received.total, found.state) == (0, UploadState.RECEIVING)


# ---- one object ----------------------------------------------------------------------------------


def test_a_file_has_one_holder_of_its_lease_until_it_ends(
    catalog: BucketCatalog, clock: Clock
) -> None:
    assert catalog.lease(KEY, TOKEN, SECONDS)
    assert not catalog.lease(KEY, OTHER_TOKEN, SECONDS)
    clock.now += timedelta(seconds=SECONDS)
    assert catalog.lease(KEY, TOKEN, SECONDS), "the first answer may have been lost"
    assert catalog.renew(KEY, TOKEN, SECONDS)
    clock.now += timedelta(seconds=SECONDS)
    assert not catalog.lease(KEY, OTHER_TOKEN, SECONDS)
    clock.now += MOMENT
    assert catalog.lease(KEY, OTHER_TOKEN, SECONDS)
    assert not catalog.lease(KEY, TOKEN, SECONDS)
    assert not catalog.renew(KEY, TOKEN, SECONDS)
    catalog.release(KEY, OTHER_TOKEN)
    assert not catalog.renew(KEY, TOKEN, SECONDS), "another holder has had it"


def test_only_its_holder_releases_a_lease(catalog: BucketCatalog) -> None:
    assert catalog.lease(KEY, TOKEN, SECONDS)
    catalog.release(KEY, OTHER_TOKEN)
    assert not catalog.lease(KEY, OTHER_TOKEN, SECONDS)
    catalog.release(KEY, TOKEN)
    assert catalog.lease(KEY, OTHER_TOKEN, SECONDS)


def test_a_late_holder_records_neither_parts_nor_a_multipart_upload(
    catalog: BucketCatalog, clock: Clock
) -> None:
    assert catalog.lease(KEY, TOKEN, SECONDS)
    clock.now += timedelta(seconds=SECONDS) + MOMENT
    assert catalog.lease(KEY, OTHER_TOKEN, SECONDS)
    begin(catalog, Multipart("files/ours", "1"), token=OTHER_TOKEN)
    catalog.add_parts(KEY, OTHER_TOKEN, [Part(1, 10, CHECKSUMS)])
    with pytest.raises(LeaseLost):
        begin(catalog, Multipart("files/late", "2"))
    with pytest.raises(LeaseLost):
        catalog.add_parts(KEY, TOKEN, [Part(2, 20, CHECKSUMS)])
    catalog.forget_multipart(KEY, TOKEN)
    assert catalog.require(KEY).multipart == Multipart("files/ours", "1")
    assert catalog.parts(KEY) == [Part(1, 10, CHECKSUMS)]
    clock.now += ANNOUNCED_FOR
    assert due(catalog) == {("files/late", UNKNOWN_ID)}


def test_a_part_is_recorded_once(catalog: BucketCatalog) -> None:
    assert catalog.lease(KEY, TOKEN, SECONDS)
    catalog.add_parts(KEY, TOKEN, [Part(1, 10, CHECKSUMS), Part(2, 20, CHECKSUMS)])
    with pytest.raises(LeaseLost):
        catalog.add_parts(KEY, TOKEN, [Part(3, 30, CHECKSUMS), Part(2, 25, CHECKSUMS)])
    assert catalog.parts(KEY) == [Part(1, 10, CHECKSUMS), Part(2, 20, CHECKSUMS)], "all or none"


@pytest.mark.parametrize("database", ["on_server"], indirect=True)
def test_a_lease_that_is_taken_between_two_parts_leaves_none(
    catalog: BucketCatalog, clock: Clock
) -> None:
    assert catalog.lease(KEY, TOKEN, SECONDS)
    clock.now += timedelta(seconds=SECONDS) + MOMENT

    def take(*call: Any) -> None:
        if call[2].startswith("INSERT INTO stored_parts"):
            with ThreadPoolExecutor(1) as other:
                other.submit(catalog.lease, KEY, OTHER_TOKEN, SECONDS).result()

    sa.event.listen(sa.Engine, "after_cursor_execute", take)
    try:
        with pytest.raises(LeaseLost):
            catalog.add_parts(KEY, TOKEN, [Part(1, 10, CHECKSUMS), Part(2, 20, CHECKSUMS)])
    finally:
        sa.event.remove(sa.Engine, "after_cursor_execute", take)
    assert catalog.parts(KEY) == []


def test_a_multipart_upload_that_a_sweep_may_have_aborted_is_not_recorded(
    catalog: BucketCatalog, clock: Clock
) -> None:
    late, in_time = Multipart("files/late", "1"), Multipart("files/in-time", "2")
    catalog.announce_multipart(late.name)
    clock.now += ANNOUNCED_FOR
    assert due(catalog) == {(late.name, UNKNOWN_ID)}
    assert catalog.lease(KEY, TOKEN, SECONDS)
    with pytest.raises(LeaseLost):
        catalog.begin_multipart(KEY, TOKEN, late)
    begin(catalog, in_time)
    assert catalog.require(KEY).multipart == in_time


def test_a_forgotten_multipart_upload_is_garbage_with_its_parts(
    catalog: BucketCatalog, clock: Clock
) -> None:
    assert catalog.lease(KEY, TOKEN, SECONDS)
    begin(catalog, Multipart("files/a", "1"))
    catalog.add_parts(KEY, TOKEN, [Part(1, 10, CHECKSUMS)])
    add(catalog, piece(0, 10, "kept"))
    catalog.forget_multipart(KEY, TOKEN)
    assert (catalog.require(KEY).multipart, catalog.parts(KEY)) == (None, [])
    assert due(catalog) == set(), "another node may be about to complete it"
    clock.now += ANNOUNCED_FOR
    assert due(catalog) == {("files/a", "1")}
    assert names(catalog) == ["kept"]


def test_a_finished_file_leaves_its_pieces_as_garbage(catalog: BucketCatalog, clock: Clock) -> None:
    add(catalog, piece(0, 50, "half"), piece(0, 100, "whole"))
    assert catalog.lease(KEY, TOKEN, SECONDS)
    begin(catalog, Multipart("files/parts", "1"))
    catalog.announce(KEY, "late")
    catalog.announce(KEY, "whole")
    assert catalog.finish(KEY, "whole", 100)
    assert not catalog.finish(KEY, "half", 100), "only once"
    assert due(catalog) == {("files/parts", "1")}, "its pieces may still be read"
    clock.now += READ_FOR
    assert due(catalog) == {("files/parts", "1"), ("half", None)}
    clock.now += ANNOUNCED_FOR
    assert due(catalog) == {("files/parts", "1"), ("half", None), ("late", None)}
    found = catalog.require(KEY)
    assert (found.name, found.length, found.is_published) == ("whole", 100, True)


def test_the_object_of_its_multipart_upload_stays(catalog: BucketCatalog, clock: Clock) -> None:
    add(catalog, piece(0, 100, "piece"))
    assert catalog.lease(KEY, TOKEN, SECONDS)
    begin(catalog, Multipart("files/a", "1"))
    catalog.announce(KEY, "files/a")
    assert catalog.finish(KEY, "files/a", 100)
    clock.now += ANNOUNCED_FOR
    assert due(catalog) == {("piece", None)}
    assert catalog.inventory.is_needed("files/a")


# ---- removing ------------------------------------------------------------------------------------


def test_removing_names_what_is_to_go_from_the_bucket(catalog: BucketCatalog, clock: Clock) -> None:
    own, multipart = f"pieces/{KEY}.1", Multipart(f"files/{KEY}.2", "id")
    add(catalog, piece(0, 50, own))
    assert catalog.lease(KEY, TOKEN, SECONDS)
    begin(catalog, multipart)
    found = catalog.remove(KEY, also_published=False)
    assert {(each.name, each.multipart_id) for each in found} == {
        (own, None),
        (multipart.name, multipart.id),
    }
    catalog.inventory.collected(found)
    assert catalog.file(KEY) is None
    assert catalog.remove(KEY, also_published=True) == []
    clock.now += ANNOUNCED_FOR
    assert due(catalog) == {(multipart.name, multipart.id)}, "a part may have come since"


def test_a_published_file_may_be_kept(catalog: BucketCatalog) -> None:
    catalog.announce(KEY, f"files/{KEY}.1")
    catalog.finish(KEY, f"files/{KEY}.1", 100)
    assert catalog.remove(KEY, also_published=False) == []
    assert [each.name for each in catalog.remove(KEY, also_published=True)] == [f"files/{KEY}.1"]


def test_garbage_that_could_not_be_removed_is_due_again_later(
    catalog: BucketCatalog, clock: Clock
) -> None:
    for name in ("one", "two"):
        discard(catalog, name)
    one, two = catalog.inventory.garbage(10)
    catalog.inventory.collected([one], [two])
    assert catalog.inventory.garbage(10) == []
    clock.now += timedelta(hours=1)
    assert catalog.inventory.garbage(10) == [Garbage(two.id, "two", None)]


# ---- shared objects ------------------------------------------------------------------------------


def share(catalog: BucketCatalog) -> None:
    catalog.reserve(OTHER, 100)
    catalog.share(OTHER, [(KEY, 0)])


@pytest.mark.parametrize("first", [KEY, OTHER])
@pytest.mark.parametrize("is_finished", [False, True], ids=["arriving", "published"])
def test_a_shared_object_goes_with_its_last_file(
    catalog: BucketCatalog, clock: Clock, first: str, *, is_finished: bool
) -> None:
    add(catalog, piece(0, 100, "shared"))
    share(catalog)
    last = OTHER if first == KEY else KEY
    if is_finished:
        assert catalog.finish(last, "shared", 100)
    catalog.remove(first, also_published=True)
    clock.now += ANNOUNCED_FOR
    assert due(catalog) == set()
    assert catalog.inventory.is_needed("shared")
    catalog.remove(last, also_published=True)
    assert due(catalog) == {("shared", None)}
    assert not catalog.inventory.is_needed("shared")


def test_two_files_that_share_an_object_end_at_once(catalog: BucketCatalog, clock: Clock) -> None:
    add(catalog, *(piece(number, number + 1, f"piece-{number}") for number in range(100)))
    found, _ = catalog.pieces(KEY, ByteRange(0, 100))
    catalog.reserve(OTHER, 100)
    catalog.share(OTHER, [(KEY, 0)])
    catalog.announce(OTHER, "whole")
    with ThreadPoolExecutor() as pool:
        removal = pool.submit(catalog.remove, KEY, also_published=True)
        assert pool.submit(catalog.finish, OTHER, "whole", 100).result()
        removal.result()
    clock.now += ANNOUNCED_FOR
    assert due(catalog) == {(each.name, None) for each in found}


@pytest.mark.parametrize("end", ["removed", "one object", "never"])
def test_objects_are_shared_only_while_their_file_has_them(
    catalog: BucketCatalog, end: str
) -> None:
    add(catalog, piece(0, 100, "shared"))
    if end == "removed":
        catalog.remove(KEY, also_published=False)
    if end == "one object":
        catalog.announce(KEY, "whole")
        catalog.finish(KEY, "whole", 100)
    if end == "never":
        share(catalog)
        assert names(catalog, OTHER) == ["shared"]
        return
    with pytest.raises(BytesLost):
        share(catalog)
    assert names(catalog, OTHER) == []


def test_of_shared_pieces_the_same_ones_win(catalog: BucketCatalog) -> None:
    """Wherever they are moved to, and however far the file before reaches."""
    add(catalog, piece(0, 60, "a"), piece(0, 100, "b"), piece(40, 70, "hidden"))
    for key in (OTHER, THIRD):
        catalog.reserve(key, 300)
    add(catalog, piece(20, 50, "d"), piece(0, 80, "e"), key=OTHER)
    sources = [(KEY, 0), (OTHER, 90), (KEY, 170)]
    for _ in range(2):
        catalog.share(THIRD, sources)
        found, _ = catalog.pieces(THIRD, WHOLE)
        taken = [(each.name, span.start, span.end) for each, span in overlay(found, WHOLE)]
        assert taken == [
            *(("a", 0, 60), ("b", 60, 90)),
            *(("e", 90, 110), ("d", 110, 140), ("e", 140, 170)),
            *(("a", 170, 230), ("b", 230, 270)),
        ]


def test_nothing_is_shared_of_a_file_that_is_becoming_one_object(
    catalog: BucketCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pieces are garbage then."""
    add(catalog, piece(0, 100, "piece"))
    catalog.reserve(OTHER, 100)
    catalog.announce(KEY, "whole")
    discard_rest, sharing = catalog_module._discard_rest, list[Future[None]]()

    def discard_late(connection: sa.Connection, values: Mapping[str, object]) -> None:
        sharing.append(pool.submit(catalog.share, OTHER, [(KEY, 0)]))
        wait(sharing, timeout=0.3)
        discard_rest(connection, values)

    monkeypatch.setattr(catalog_module, "_discard_rest", discard_late)
    with ThreadPoolExecutor() as pool:
        assert catalog.finish(KEY, "whole", 100)
        with pytest.raises(BytesLost):
            sharing[0].result()
    assert names(catalog, OTHER) == []
