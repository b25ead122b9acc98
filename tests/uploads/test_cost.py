"""The cost of a request: memory independent of the body's size, and equal work for every chunk."""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import get_ident
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, Pool, event

from app.core.access import Scope
from app.core.upload import Upload, UploadKind, UploadPart
from app.db.engine import Database
from app.ingest.copy import BLOCK_BYTES
from app.ingest.source import BodySource, DigestSource, Watch, no_watch
from app.records import statements as statements_of_uploads
from app.storage.local.range_writer import Checkpoints
from app.uploads.service import NewUpload
from tests.storage.sources import body
from tests.uploads.processes import shared_world
from tests.uploads.world import ME, World, add_upload_link, store_with

MEGABYTE = 1024 * 1024
LARGE = 48 * MEGABYTE
"""Bytes of a body. A program that held a chunk or the file in memory would be noticed."""


class Zeros:
    """A body of `length` zeros, made as they are read."""

    is_verified_at_end = False

    def __init__(self, length: int, *, is_told: bool = True) -> None:
        self._left = length
        self._is_told = is_told

    @property
    def remaining(self) -> int | None:
        return self._left if self._is_told else None

    def readinto(self, buffer: memoryview, /) -> int | None:
        count = min(len(buffer), self._left, 65_536)
        buffer[:count] = bytes(count)
        self._left -= count
        return count

    def finish(self, _watch: Watch = no_watch, /) -> None:
        """Nothing to read."""


def with_wrong_digest(source: BodySource) -> BodySource:
    return DigestSource(source, "crc32", bytes(4))


@contextmanager
def little_memory() -> Iterator[None]:
    """Fail if more than a few blocks of memory are in use at once within the context."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * BLOCK_BYTES


@pytest.fixture
def large_world(tmp_path: Path) -> World:
    world = World(tmp_path, max_upload_bytes=1 << 40)
    world.store.inspection.problems()  # The first rare call to a bucket loads botocore.
    return world


@pytest.mark.parametrize("is_told", [True, False])
@pytest.mark.parametrize("length", [LARGE, None])
def test_a_body_of_any_size_takes_little_memory(
    large_world: World, length: int | None, is_told: bool
) -> None:
    world = large_world
    upload, _ = world.service.create(NewUpload(scope=ME, filename="a.mp4", length=length))
    with little_memory():
        world.chunks.append_at_offset(upload, 0, Zeros(LARGE, is_told=is_told))
    assert world.records.get(upload.id).offset == LARGE


def test_a_body_with_a_digest_takes_little_memory(large_world: World) -> None:
    upload = large_world.create(2 * LARGE)
    with little_memory(), pytest.raises(Exception, match="crc32"):
        large_world.chunks.append_at_offset(upload, 0, with_wrong_digest(Zeros(LARGE)))


def test_a_digest_of_the_whole_takes_little_memory(large_world: World) -> None:
    new = NewUpload(scope=ME, filename="a", length=LARGE, repr_digest=f"sha256:{'00' * 32}")
    upload, _ = large_world.service.create(new)
    with little_memory(), pytest.raises(Exception, match="sha256"):
        large_world.chunks.append_at_offset(upload, 0, Zeros(LARGE))


@pytest.mark.folders
def test_a_concatenation_takes_little_memory(large_world: World) -> None:
    world = large_world
    parts = []
    for _ in range(2):
        new = NewUpload(scope=ME, filename="", length=LARGE, kind=UploadKind.PARTIAL)
        part, _ = world.service.create(new)
        world.chunks.append_at_offset(part, 0, Zeros(LARGE))
        parts.append(part)
    with little_memory():
        whole = world.whole_of(*parts)
    assert (world.videos / whole.id).stat().st_size == 2 * LARGE


@contextmanager
def statements() -> Iterator[list[str]]:
    """The statements that the database executes for this thread within the context.

    Servers of other tests may still run in other threads.
    """
    found: list[str] = []
    here = get_ident()

    def note(*arguments: object) -> None:
        if get_ident() == here:
            found.append(str(arguments[2]))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def send_next(world: World, upload: Upload) -> Upload:
    return world.send_next(upload, 0, 10)


def send_behind_a_gap(world: World, upload: Upload) -> Upload:
    current = world.service.get(ME, upload.id)
    start = current.received.end + 10
    return world.chunks.append(current, start, body(0, 10))


def settle(world: World, upload: Upload) -> Upload:
    world.send_next(upload, 0, 10)
    return world.chunks.stop_writer(upload)


@pytest.mark.parametrize("request_of", [send_next, send_behind_a_gap, settle])
@pytest.mark.parametrize("kind", [UploadKind.FILE, UploadKind.PARTIAL])
def test_every_chunk_costs_the_database_the_same(
    tmp_path: Path, kind: UploadKind, request_of: Callable[[World, Upload], Upload]
) -> None:
    """The first chunk of a long upload, and one after many others."""
    new = NewUpload(scope=ME, filename="a", length=100_000, kind=kind)
    counts = []
    with shared_world(tmp_path) as world:
        upload, _ = world.service.create(new)
        for other in range(20):
            world.create(100)
            world.held(0, other)
        for _ in range(60):
            with statements() as asked:
                request_of(world, upload)
            counts.append(len(asked))
    assert counts[5] == counts[-1]
    assert max(counts) <= 10


@pytest.mark.folders
def test_chunks_through_a_link_cost_what_others_do_but_for_the_steps_of_their_reservation(
    tmp_path: Path,
) -> None:
    """Each step doubles what may come."""
    seldom = Checkpoints(every_seconds=300.0)  # A slow machine would need one in mid-chunk.
    world = World(tmp_path, store=store_with(tmp_path, seldom), max_upload_bytes=1 << 40)
    add_upload_link(world, "a")
    length, chunk = 64 * MEGABYTE, MEGABYTE // 2
    counts = {}
    for sender in ("", "upload_link:a:b"):
        scope = Scope(ME.project, sender=sender, own=sender)
        upload, _ = world.service.create(NewUpload(scope=scope, filename="a", length=length))
        costs = []
        while upload.offset < length:
            world.later(seconds=1)
            with statements() as asked:
                upload = world.chunks.append(upload, upload.offset, Zeros(chunk))
            costs.append(len(asked))
        counts[sender] = costs
    (usual,) = set(counts[""][1:-1])
    dearer = [cost for cost in counts["upload_link:a:b"][1:-1] if cost > usual]
    assert len(dearer) <= 8, "of 128 chunks"


@contextmanager
def traced_by_sqlite() -> Iterator[list[str]]:
    """As `statements`, with what SQLAlchemy does not see."""
    found: list[str] = []
    traced: list[Any] = []
    here = get_ident()

    def trace(connection: Any, *_: object) -> None:
        if get_ident() == here:
            connection.set_trace_callback(found.append)
            traced.append(connection)

    event.listen(Pool, "checkout", trace)
    try:
        yield found
    finally:
        event.remove(Pool, "checkout", trace)
        for connection in traced:
            connection.set_trace_callback(None)


@pytest.mark.folders
def test_a_bundle_takes_one_look_up_and_two_transactions_however_many_files_it_has(
    tmp_path: Path,
) -> None:
    """One transaction records the files, and one notes that they are published."""
    counts = []
    world = World(tmp_path)
    for count in (2, 100):
        files = [
            replace(
                world.whole.receive(Zeros(10), scope=ME, filename="a"),
                fingerprint=f"{count} {number}",
            )
            for number in range(count)
        ]
        with traced_by_sqlite() as asked:
            world.whole.keep_all(files)
        look_ups = sum("fingerprint IN" in statement for statement in asked)
        counts.append((asked.count("COMMIT"), look_ups))
    assert counts == [(2, 1)] * 2


@pytest.mark.folders
def test_every_checkpoint_is_recorded_by_one_statement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = []
    store_if_unchanged = statements_of_uploads.store_if_unchanged

    def noted(connection: Connection, upload: Upload, old: Upload) -> bool:
        outcomes.append(store_if_unchanged(connection, upload, old))
        return outcomes[-1]

    monkeypatch.setattr(statements_of_uploads, "store_if_unchanged", noted)
    store = store_with(tmp_path, Checkpoints(every_bytes=BLOCK_BYTES))
    world = World(tmp_path, store=store, max_upload_bytes=1 << 40)
    upload, _ = world.service.create(NewUpload(scope=ME, filename="a", length=4 * BLOCK_BYTES))
    world.chunks.append(upload, 0, Zeros(4 * BLOCK_BYTES))
    assert len(outcomes) >= 4
    assert all(outcomes)


def test_the_last_part_costs_the_same_however_many_parts_are_waiting(tmp_path: Path) -> None:
    """Each part that completes checks whether it is the last one."""
    new = NewUpload(scope=ME, filename="a", length=None)
    counts = []
    for number in (3, 30):
        with shared_world(tmp_path / str(number)) as world:
            parts = [world.part(10) for _ in range(number)]
            world.service.concatenate(new, [UploadPart(part.id, "") for part in parts])
            with statements() as asked:
                world.send_next(parts[0], 0, 10)
            counts.append(len(asked))
    assert counts[0] == counts[1]


@pytest.mark.folders
def test_a_file_costs_the_same_however_often_it_was_deleted_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transactions, counts = [], []
    write = Database.write

    def counted(database: Database) -> AbstractContextManager[Connection]:
        transactions.append(database)
        return write(database)

    monkeypatch.setattr(Database, "write", counted)
    with shared_world(tmp_path) as world:
        for _ in range(30):
            file = world.whole.receive(body(0, 10), scope=ME, filename="a")
            transactions.clear()
            whole = world.whole.keep(replace(file, fingerprint="f"))
            counts.append(len(transactions))
            world.library.delete(ME, whole.id)
    assert counts[0] == counts[-1] == 2
