"""Derived files in a bucket: every machine has what it asks for, and keeps copies."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import FileIO, RawIOBase
from pathlib import Path
from threading import Barrier, Event

import pytest

from app.core.errors import NoRoom
from app.core.playback import Made
from app.core.ranges import ByteRange
from app.core.upload import UploadId
from app.db.engine import Database
from app.ingest.slots import Slots, holding
from app.storage.s3.address import AccessKey, BucketAddress
from app.storage.s3.bucket import Bucket
from app.storage.s3.caller import S3Caller
from app.video.serve.bucket_objects import (
    COPIES,
    MOST_COPIED_BYTES,
    OBJECTS,
    BucketObjects,
    Copies,
    bucket_name,
)
from app.video.serve.derived_files import ORPHAN_AGE, DerivedFiles
from app.video.serve.scratch import ScratchSpace
from tests.records.making import NOW, new_sqlite
from tests.s3_servers import S3Server, new_prefix

VIDEO = UploadId("ab" * 16)
COPIED_BYTES = 1000


@dataclass
class Fleet:
    """Machines that share a bucket and a database."""

    folder: Path
    database: Database
    address: BucketAddress
    bucket: Bucket
    now: datetime = NOW
    nodes: list[DerivedFiles] = field(default_factory=list)

    def node(self) -> DerivedFiles:
        """A machine with an empty disk."""
        root = self.folder / f"node-{len(self.nodes)}"
        copies = Copies(root / COPIES, COPIED_BYTES)
        scratch = ScratchSpace(root, make_room=copies.remove_all)
        node = DerivedFiles(
            database=self.database,
            objects=BucketObjects(self.bucket, copies, scratch),
            scratch=scratch,
            clock=lambda: self.now,
        )
        self.nodes.append(node)
        return node

    def with_key(self, key: AccessKey) -> Bucket:
        """The bucket as somebody with that key sees it."""
        return Bucket.at(self.address, key=lambda: key)

    def objects(self) -> set[str]:
        """The names of the objects without their versions."""
        return {each.name.rpartition(".")[0] for each in self.bucket.list_objects(OBJECTS)}


class PatientBucket(Bucket):
    """Reads one object, and only once it is told to."""

    def __init__(self, caller: S3Caller) -> None:
        super().__init__(caller)
        self.is_asked, self.may_answer = Event(), Event()

    def open(self, name: str, span: ByteRange, length: int) -> RawIOBase:
        """As the bucket does, but later."""
        assert not self.is_asked.is_set(), "asked a second time"
        self.is_asked.set()
        self.may_answer.wait()
        return super().open(name, span, length)


@pytest.fixture
def fleet(tmp_path: Path, versitygw: S3Server) -> Iterator[Fleet]:
    access = versitygw.access
    address = BucketAddress.of(
        f"s3://{access.bucket}/{new_prefix()}", endpoint=access.endpoint, region=access.region
    )
    bucket = Bucket.at(address, key=lambda: AccessKey(access.key, access.secret))
    with closing(new_sqlite(tmp_path / "records.db")) as database:
        yield Fleet(tmp_path, database, address, bucket)


def keep(node: DerivedFiles, name: str, content: bytes) -> None:
    with node.writing(VIDEO, name) as file:
        file.write(content)


def copies(node: DerivedFiles) -> list[Path]:
    return list((node.scratch.root / COPIES).glob("*"))


def test_what_one_machine_makes_another_reads(fleet: Fleet) -> None:
    maker, other = fleet.node(), fleet.node()
    assert other.find(VIDEO, "poster.jpg") is None
    keep(maker, "poster.jpg", b"first")
    keep(maker, "empty.vtt", b"")
    assert other.read(VIDEO, "poster.jpg") == b"first"
    assert other.read(VIDEO, "empty.vtt") == b""
    assert maker.find(VIDEO, "poster.jpg") == other.find(VIDEO, "poster.jpg")
    assert other.top_names([VIDEO]) == {VIDEO: {"poster.jpg", "empty.vtt"}}


def test_a_copy_of_what_was_replaced_or_discarded_is_never_read(fleet: Fleet) -> None:
    maker, other = fleet.node(), fleet.node()
    keep(maker, "poster.jpg", b"first")
    assert other.read(VIDEO, "poster.jpg") == b"first"
    keep(maker, "poster.jpg", b"second")
    assert other.read(VIDEO, "poster.jpg") == b"second"
    assert maker.discard(VIDEO, "poster.jpg")
    with pytest.raises(FileNotFoundError):
        other.open(VIDEO, "poster.jpg")
    assert len(copies(other)) == 2
    other.remove_abandoned()
    assert copies(other) == []


def test_objects_that_nobody_needs_are_deleted_once_nobody_reads_them(fleet: Fleet) -> None:
    node = fleet.node()
    keep(node, "rungs/720/1.m4s", b"one")
    keep(node, "rungs/720/2.m4s", b"two")
    keep(node, "poster.jpg", b"poster")
    assert node.discard(VIDEO, "rungs/720")
    node.remove_abandoned()
    assert len(fleet.objects()) == 3
    fleet.now += BucketObjects.read_for
    node.remove_abandoned()
    assert fleet.objects() == {f"{OBJECTS}{VIDEO}/poster.jpg"}
    node.remove([VIDEO])
    assert (fleet.objects(), node.videos(), copies(node)) == (set(), [], [])


def test_copies_make_room_for_each_other(fleet: Fleet) -> None:
    node = fleet.node()
    for number in range(8):
        keep(node, f"rungs/720/{number}.m4s", bytes([number]) * 200)
    node.remove_abandoned()
    assert sum(copy.stat().st_size for copy in copies(node)) <= COPIED_BYTES
    for number in range(8):
        assert node.read(VIDEO, f"rungs/720/{number}.m4s") == bytes([number]) * 200


def test_a_long_file_is_stored_in_parts_and_read_where_it_is(fleet: Fleet) -> None:
    maker, other = fleet.node(), fleet.node()
    with maker.writing(VIDEO, "source.mp4") as file:
        file.truncate(MOST_COPIED_BYTES)
        file.seek(MOST_COPIED_BYTES)
        file.write(b"the end")
    found, stored = other.open(VIDEO, "source.mp4")
    with stored:
        assert found.length == MOST_COPIED_BYTES + 7
        stored.seek(-7, 2)
        assert stored.read(100) == b"the end"
    assert copies(maker) == copies(other) == []


def test_copies_make_room_for_what_is_being_made(fleet: Fleet) -> None:
    node = fleet.node()
    keep(node, "poster.jpg", b"poster")
    with pytest.raises(NoRoom):
        node.scratch.require_room(1 << 60)
    assert copies(node) == []
    assert node.read(VIDEO, "poster.jpg") == b"poster"


def test_copies_make_room_for_what_is_watched(fleet: Fleet) -> None:
    node = fleet.node()
    keep(node, "poster.jpg", b"poster")
    huge = Made(VIDEO, "huge.m4s", 1 << 60, fleet.now, "f" * 32)
    with pytest.raises(NoRoom):
        node.objects.fetch(huge)
    assert copies(node) == []


def test_viewers_of_the_same_file_wait_for_one_copy(fleet: Fleet) -> None:
    keep(fleet.node(), "poster.jpg", b"poster")
    fleet.bucket = bucket = PatientBucket(fleet.bucket.caller)
    node, slots = fleet.node(), Slots(2)
    entered = Barrier(2)

    def view() -> bytes:
        with holding(slots):
            entered.wait()
            return node.read(VIDEO, "poster.jpg")

    with ThreadPoolExecutor(2) as viewers:
        views = [viewers.submit(view) for _ in range(2)]
        bucket.is_asked.wait()
        slots.acquire()  # The second viewer waits, and has given its slot to others.
        bucket.may_answer.set()
        slots.release()
        assert [view.result() for view in views] == [b"poster"] * 2
    assert [copy.read_bytes() for copy in copies(node)] == [b"poster"]


def test_what_is_stored_is_kept_where_no_copy_can_be(fleet: Fleet) -> None:
    maker, other = fleet.node(), fleet.node()
    maker.scratch.root.mkdir()
    (maker.scratch.root / COPIES).write_bytes(b"not a folder")
    keep(maker, "poster.jpg", b"poster")
    assert other.read(VIDEO, "poster.jpg") == b"poster"


def test_a_file_replaced_while_it_is_fetched_is_fetched_again(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker, other = fleet.node(), fleet.node()
    keep(maker, "poster.jpg", b"first")
    keep(maker, "sprite.jpg", b"sprite")
    fetch, is_first = BucketObjects.fetch, iter([True])

    def replaced(objects: BucketObjects, file: Made) -> FileIO:
        if next(is_first, False):
            keep(maker, "poster.jpg", b"second")
            fleet.bucket.delete(bucket_name(file))
        return fetch(objects, file)

    monkeypatch.setattr(BucketObjects, "fetch", replaced)
    assert other.read(VIDEO, "poster.jpg") == b"second"


def test_a_file_that_is_missing_from_the_bucket_is_not_there(fleet: Fleet) -> None:
    node = fleet.node()
    keep(node, "poster.jpg", b"poster")
    lost = node.find(VIDEO, "poster.jpg")
    assert lost is not None
    fleet.bucket.delete(bucket_name(lost))
    with pytest.raises(FileNotFoundError):
        fleet.node().read(VIDEO, "poster.jpg")


def test_a_bucket_that_lets_nothing_be_deleted_stops_nobody(fleet: Fleet) -> None:
    keep(fleet.node(), "poster.jpg", b"poster")
    fleet.bucket, allowed = fleet.with_key(AccessKey("nobody", "nothing")), fleet.bucket
    node = fleet.node()
    node.remove([VIDEO])
    assert node.find(VIDEO, "poster.jpg") is None
    fleet.bucket = allowed
    fleet.node().remove_abandoned()
    assert fleet.objects() == set()


def test_the_table_and_the_bucket_are_compared_both_ways(fleet: Fleet) -> None:
    node = fleet.node()
    keep(node, "poster.jpg", b"poster")
    keep(node, "sprite.jpg", b"sprite")
    lost = node.find(VIDEO, "sprite.jpg")
    assert lost is not None
    fleet.bucket.delete(bucket_name(lost))
    orphan = f"{VIDEO}/poster.jpg.{'0' * 32}"
    fleet.bucket.put_object(f"{OBJECTS}{orphan}", b"of an unknown maker")
    assert list(node.missing()) == [lost]
    fleet.now = datetime.now(UTC)
    assert list(node.orphans()) == []
    fleet.now += 2 * ORPHAN_AGE
    assert list(node.orphans()) == [orphan]
