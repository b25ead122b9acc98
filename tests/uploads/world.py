"""The use cases over records and a store in a folder, with a clock that the tests set."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from app.access.passwords import Passwords
from app.core.access import Scope
from app.core.lifecycle import UploadState
from app.core.ranges import ByteRange
from app.core.upload import Upload, UploadId, UploadKind, UploadPart
from app.db.context import Context
from app.db.engine import Database
from app.db.tables import upload_links
from app.ingest.copy import BodyLimits
from app.run.build import assemble
from app.settings import Settings
from app.storage.base import Durability
from app.storage.local import LocalStore
from app.storage.local.range_writer import Checkpoints
from app.storage.machine import COUNTED_GAP, IdleClock, NoteFile, Reading
from app.storage.s3.bucket import Bucket
from app.storage.s3.catalog import BucketCatalog
from app.storage.s3.store import BucketStore
from app.uploads.service import NewUpload
from app.video.serve.source import reader
from tests.access.world import CHEAP
from tests.records.making import add_projects, new_sqlite
from tests.storage.sources import body

ME = Scope("me")
OTHERS = Scope("others")
MAX_LENGTH = 1 << 20
EXPIRY = timedelta(days=7)
LIMITS = BodyLimits(idle_seconds=30.0, minimum_bytes_per_second=0.0)

SETTINGS: dict[str, object] = {
    "access": "accounts",
    "durability": "none",
    "max_upload_bytes": MAX_LENGTH,
    "expiry_seconds": EXPIRY.total_seconds(),
    "reservation_seconds": timedelta(days=36_500).total_seconds(),
    "body_idle_seconds": LIMITS.idle_seconds,
    "min_bytes_per_second": LIMITS.minimum_bytes_per_second,
}
"""Those of a world, unless a test gives others."""

opened: list[Database] = []
"""Databases of the worlds of one test; its end closes them."""

buckets: list[Bucket] = []
"""Where the worlds of one test have their files, if not in folders."""


class World:
    """All services in one folder, with clocks that a test sets, and settings of its own."""

    def __init__(
        self,
        folder: Path,
        *,
        database: Database | None = None,
        store: LocalStore | None = None,
        staging: Path | None = None,
        counted_gap: timedelta = COUNTED_GAP,
        **settings: Any,
    ) -> None:
        self.staging, self.videos = staging or folder / "staging", folder / "library"
        self.now = datetime(2030, 1, 1, tzinfo=UTC)
        self.boot_id, self.since_boot = "first boot", 1000.0
        self.steps: list[str] = []
        self.database = database or new_database(folder)
        add_projects(self.database, ME.target(), OTHERS.target())
        self._clock_file, self._counted_gap = folder / "clock", counted_gap
        self._store = store
        folders = {"data_dir": folder, "staging_dir": self.staging}
        self.ctx = Context(
            database=self.database,
            clock=lambda: self.now,
            new_id=new_id,
            settings=Settings(**{**folders, **SETTINGS, **settings}),
        )
        self.start()

    def start(self) -> None:
        """Build all services, as the next process does."""
        services = assemble(
            self.ctx,
            self.steps.append,
            clock=self.ctx.clock,
            passwords=Passwords(CHEAP),
            store=self._store or self._in_bucket(),
            idle_clock=IdleClock(
                NoteFile(self._clock_file),
                lambda: Reading(self.boot_id, self.since_boot, self.now),
                counted_gap=self._counted_gap,
            ),
        )
        services.prepare()
        self.records, self.service = services.records, services.uploads
        self.chunks, self.whole = services.chunks, services.whole_files
        self.library, self.housekeeping = services.library, services.housekeeping
        self.store, self.completion = services.store, services.completion
        self.video_expiry, self.quotas = services.video_expiry, services.quotas

    def _in_bucket(self) -> BucketStore | None:
        """The store if the option `--storage` says that files are in a bucket."""
        if not buckets:
            return None
        catalog = BucketCatalog(self.database)
        return BucketStore(buckets[-1], catalog, self.staging)

    @property
    def completed_count(self) -> int:
        """How many uploads this process has published."""
        return self.steps.count(UploadState.COMPLETE)

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

    def stuck(self, length: int = 100) -> Upload:
        """An upload whose publisher was killed before its first step."""
        upload = self.create(length)
        with self.store.staging.writer(upload.id, ByteRange(0, length), LIMITS) as writer:
            writer.write(ByteRange(0, length), body(0, length), lambda _: None)
            with writer.recording() as rows:
                return self.records.add_received(upload, ByteRange(0, length), self.now, rows=rows)

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
            self.store.pieces.catalog.remove(upload.id, also_published=True)
            return
        folder = self.videos if self.state(upload) is UploadState.COMPLETE else self.staging
        (folder / upload.id).unlink()


def new_database(folder: Path) -> Database:
    """A database file, which the end of the test closes."""
    database = new_sqlite(folder / "sluice.db")
    opened.append(database)
    return database


def store_with(folder: Path, checkpoints: Checkpoints) -> LocalStore:
    """A store in the folders of a world, for tests of checkpoints."""
    folders = folder / "staging", folder / "library"
    return LocalStore(*folders, Durability.NONE, checkpoints=checkpoints)


def add_upload_link(world: World, link_id: str) -> None:
    """An upload link of `ME` without limits."""
    values = {"id": link_id, "project_id": ME.project, "code": link_id, "name": "", "message": ""}
    counts = {"files": 0, "bytes": 0, "extensions": "", "asks_name": False}
    with world.database.write() as connection:
        connection.execute(
            upload_links.insert().values(
                **values, **counts, created_by="", created_at=world.ctx.clock()
            )
        )


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
