"""The use cases over records and a store in a folder, with a clock that the tests set."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

from app.access.senders import SenderLimits
from app.core.access import Scope
from app.core.events import UploadCompleted
from app.core.lifecycle import UploadState
from app.core.ranges import ByteRange
from app.core.upload import Upload, UploadId, UploadKind, UploadPart
from app.db.context import Context
from app.db.engine import Database
from app.db.minute_counts import MinuteCounts
from app.db.sql import insert_unless_known
from app.db.tables import projects
from app.ingest.copy import BodyLimits
from app.records.uploads import UploadRecords
from app.settings import Settings
from app.storage.base import Durability, Store
from app.storage.local import LocalStore
from app.storage.local.range_writer import Checkpoints
from app.storage.machine import COUNTED_GAP, IdleClock, NoteFile, Reading
from app.storage.s3.bucket import Bucket
from app.storage.s3.catalog import BucketCatalog
from app.storage.s3.store import BucketStore
from app.uploads.chunks import Chunks
from app.uploads.completion import Completion, Listener
from app.uploads.files import WholeFiles
from app.uploads.housekeeping import Housekeeping
from app.uploads.library import VideoLibrary
from app.uploads.quotas import ProjectQuotas
from app.uploads.service import NewUpload, UploadService
from app.video.serve.source import reader
from tests.records.making import new_sqlite
from tests.storage.sources import body
from tests.storage.stores import SPOOL_BYTES

ME = Scope("me")
OTHERS = Scope("others")
MAX_LENGTH = 1 << 20
EXPIRY = timedelta(days=7)
NO_END = timedelta(days=36_500)
NO_LIMITS = {"per_minute": 0, "max_uploads": 0}
LIMITS = BodyLimits(idle_seconds=30.0, minimum_bytes_per_second=0.0)


opened: list[Database] = []
"""Databases of the worlds of one test; its end closes them."""

buckets: list[Bucket] = []
"""Where the worlds of one test have their files, if not in folders."""


class World:
    """Everything `build_services` would make, in one folder."""

    def __init__(
        self,
        folder: Path,
        *,
        database: Database | None = None,
        store: Store | None = None,
        listeners: Sequence[Listener] = (),
        staging: Path | None = None,
        max_length: int = MAX_LENGTH,
        expiry: timedelta = EXPIRY,
        reservation: timedelta = NO_END,
        is_open: bool = False,
        limits: Mapping[str, int] = NO_LIMITS,
        checkpoints: Checkpoints | None = None,
        counted_gap: timedelta = COUNTED_GAP,
    ) -> None:
        self.staging, self.videos = staging or folder / "staging", folder / "library"
        self.now = datetime(2030, 1, 1, tzinfo=UTC)
        self.boot_id, self.since_boot = "first boot", 1000.0
        self._clock_file = folder / "clock"
        self._counted_gap = counted_gap
        self.events: list[UploadCompleted] = []
        self.database = database or new_database(folder)
        self.ctx = Context(
            database=self.database,
            clock=lambda: self.now,
            new_id=new_id,
            settings=Settings(
                data_dir=folder,
                staging_dir=self.staging,
                storage="s3://bucket" if buckets else "",
                access="open" if is_open else "accounts",
                max_upload_bytes=max_length,
                body_idle_seconds=LIMITS.idle_seconds,
                min_bytes_per_second=LIMITS.minimum_bytes_per_second,
                expiry_seconds=expiry.total_seconds(),
                reservation_seconds=reservation.total_seconds(),
            ),
        )
        add_projects(self.database)
        self.quotas = ProjectQuotas(self.database)
        self.records = self._new_records(folder, limits)
        self.store = store or self._new_store(checkpoints)
        self.completion = self._new_completion(listeners)
        self.service = self._new_service()
        self.chunks = self._new_chunks()
        self.whole = self.new_whole_files()
        self.library = self._new_library()
        self.housekeeping = self.new_housekeeping(self.new_idle_clock())

    def _new_records(self, folder: Path, limits: Mapping[str, int]) -> UploadRecords:
        counts = MinuteCounts(folder / "minute-counts", self._seconds)
        of_senders = SenderLimits(counts, **{**NO_LIMITS, **limits})
        return UploadRecords(self.database, observers=[self.quotas.observe, of_senders.observe])

    def _new_store(self, checkpoints: Checkpoints | None) -> Store:
        """In a folder, or where the option `--storage` says."""
        if buckets:
            catalog = BucketCatalog(self.database)
            return BucketStore(buckets[-1], catalog, self.staging, spool_bytes=SPOOL_BYTES)
        return LocalStore(self.staging, self.videos, Durability.NONE, checkpoints=checkpoints)

    def _seconds(self) -> float:
        return self.now.timestamp()

    def _new_completion(self, listeners: Sequence[Listener]) -> Completion:
        listeners = [self.events.append, *listeners]
        return Completion(self.ctx, self.records, self.store, listeners=listeners)

    def _new_service(self) -> UploadService:
        return UploadService(self.ctx, self.records, self.store, completion=self.completion)

    def _new_chunks(self) -> Chunks:
        return Chunks(
            self.records,
            self.store.staging,
            completion=self.completion,
            policy=self.ctx.settings.policy,
            quotas=self.quotas,
            limits=LIMITS,
            clock=self.ctx.clock,
        )

    def _new_library(self) -> VideoLibrary:
        library = self.store.library if isinstance(self.store, LocalStore) else None
        return VideoLibrary(
            self.ctx,
            self.records,
            self.store.library,
            let_group_read=None if library is None else library.let_group_read,
        )

    def new_whole_files(self) -> WholeFiles:
        """A new one, as in the next process."""
        return WholeFiles(
            self.ctx,
            self.records,
            self.store,
            completion=self.completion,
            quotas=self.quotas,
        )

    def new_housekeeping(self, idle_clock: IdleClock) -> Housekeeping:
        """A new one, as in the next process."""
        return Housekeeping(
            self.ctx,
            self.records,
            self.store,
            completion=self.completion,
            idle_clock=idle_clock,
        )

    def later(self, **delta: float) -> None:
        """Let time pass."""
        self.set_clock(**delta)
        self.since_boot += timedelta(**delta).total_seconds()

    def set_clock(self, **delta: float) -> None:
        """Set only the clock, without time passing."""
        self.now += timedelta(**delta)

    def new_idle_clock(self) -> IdleClock:
        """A new one, as in the next process."""
        return IdleClock(
            NoteFile(self._clock_file),
            lambda: Reading(self.boot_id, self.since_boot, self.now),
            counted_gap=self._counted_gap,
        )

    def create(
        self,
        length: int,
        *,
        client_key: str | None = None,
        fingerprint: str | None = None,
        repr_digest: str | None = None,
    ) -> Upload:
        """A new upload of `ME`."""
        new = NewUpload(
            scope=ME,
            filename="a.mp4",
            length=length,
            client_key=client_key,
            fingerprint=fingerprint,
            repr_digest=repr_digest,
        )
        return self.service.create(new)[0]

    def send(self, upload: Upload, start: int, end: int) -> Upload:
        """Append the right bytes of a range, like a request that looks the upload up first."""
        current = self.service.get(ME, upload.id)
        return self.chunks.append(current, start, body(start, end))

    def part(self, length: int | None) -> Upload:
        """A new upload that is one part of a file."""
        new = NewUpload(scope=ME, filename="", length=length, kind=UploadKind.PARTIAL)
        return self.service.create(new)[0]

    def send_next(self, upload: Upload, start: int, end: int) -> Upload:
        """Append the test's bytes from `start` to `end` at the upload's offset."""
        current = self.service.get(ME, upload.id)
        return self.chunks.append_at_offset(current, current.offset, body(start, end))

    def held(self, start: int, end: int) -> Upload:
        """A part that has the bytes from `start` to `end` of the test's file."""
        return self.send_next(self.part(end - start), start, end)

    def whole_of(self, *parts: Upload, repr_digest: str | None = None) -> Upload:
        """The concatenation of parts, as its request is answered."""
        new = NewUpload(scope=ME, filename="whole.mp4", length=None, repr_digest=repr_digest)
        return self.service.concatenate(new, [UploadPart(p.id, f"/tus/{p.id}") for p in parts])

    def state(self, upload: Upload) -> UploadState:
        """The recorded state."""
        return self.records.get(upload.id).state

    def completed(self, length: int = 100) -> Upload:
        """A video of that length."""
        return self.send(self.create(length), 0, length)

    def content(self, upload: Upload) -> bytes:
        """The published bytes."""
        with self.store.library.open(upload.id, ByteRange(0, 0)) as file:
            return file.read()

    def staged_bytes(self, upload_id: UploadId, start: int, end: int) -> bytes:
        """Bytes of an unpublished file."""
        with self.store.staging.open(upload_id) as file:
            return reader(file)(start, end - start)  # One read stops at the end of a piece.

    def files(self) -> set[str]:
        """Names of all files, staged or published."""
        if isinstance(self.store, BucketStore):
            staged = {file.key for file in self.store.inspection.staged()}
            return staged | set(self.store.inspection.published())
        folders = [folder for folder in (self.staging, self.videos) if folder.exists()]
        return {path.name for folder in folders for path in folder.iterdir()}

    def lose(self, upload: Upload) -> None:
        """Lose the bytes of an upload, or of a video, as a broken disk does."""
        if isinstance(self.store, BucketStore):
            assert upload.id in self.files()
            self.store.cells.catalog.remove(upload.id, also_published=True)
            return
        folder = self.videos if self.state(upload) is UploadState.COMPLETE else self.staging
        (folder / upload.id).unlink()


def new_database(folder: Path) -> Database:
    """A database file, which the end of the test closes."""
    database = new_sqlite(folder / "sluice.db")
    opened.append(database)
    return database


def add_projects(database: Database) -> None:
    """The projects of `ME` and `OTHERS`, unless they are there."""
    names = [ME.project, OTHERS.project]
    at_all_times = {"created_at": datetime(2030, 1, 1, tzinfo=UTC), "used_bytes": 0}
    with database.write() as connection:
        for name in names:
            insert_unless_known(connection, projects, {"id": name, "name": "", **at_all_times})


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds; fail if it never does."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.005)


_numbers = count(1)


def new_id() -> str:
    """An id like the server's, but in order of creation."""
    return f"{next(_numbers):032x}"


def in_threads(count: int, call: Callable[[int], object]) -> list[object]:
    """What `call` returned or raised in each of `count` threads that start together."""
    barrier = threading.Barrier(count)
    outcomes: list[object] = [None] * count

    def run(number: int) -> None:
        barrier.wait()
        try:
            outcomes[number] = call(number)
        except Exception as error:  # noqa: BLE001 - the outcomes are compared by the tests
            outcomes[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return outcomes
