"""Full disks, unusable folders, and how the store reports them."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.core.errors import NoRoom, ServerBusy, StorageFailed
from app.core.ranges import ByteRange
from app.ingest.source import Watch, no_watch
from app.storage.base import Durability
from app.storage.local import LOW_ROOM_BYTES, NO_ROOM_BYTES, LocalStore, folder
from app.storage.local.folder import Folder
from app.storage.s3.spool import Spools
from app.storage.s3.store import BucketStore
from tests.processes import PROCESSES
from tests.storage.conftest import InBucket
from tests.storage.processes import reserve_beyond_limit
from tests.storage.sources import PiecesSource, body, pattern
from tests.storage.stores import (
    KEY,
    LIMITS,
    OTHER_KEY,
    bucket_store,
    content,
    fill,
    ignore,
    local_store,
    names,
    record,
)

MIB = 1024 * 1024
SMALL_DISK = 24 * MIB  # of which 16 are kept free


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with space for 24 MiB."""
    mount, unmount = shutil.which("mount"), shutil.which("umount")
    if os.geteuid() != 0 or mount is None or unmount is None:
        pytest.skip("mounting a small disk needs root")
    point = tmp_path / "small"
    point.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={SMALL_DISK}", "tmpfs", str(point)]
    if subprocess.run([mount, *options], capture_output=True, check=False).returncode != 0:
        pytest.skip("this container may not mount")
    yield point
    subprocess.run([unmount, "--lazy", str(point)], check=True)


def test_a_full_staging_disk_is_found_before_a_byte_is_sent(
    small_disk: Path, tmp_path: Path
) -> None:
    store = local_store(small_disk / "staging", tmp_path / "library")
    with pytest.raises(NoRoom):
        store.staging.reserve(KEY, SMALL_DISK + 1)
    assert names(small_disk / "staging") == set()
    assert names(tmp_path / "library") == set()


def test_space_that_is_only_compared_is_taken_as_bytes_come(small_disk: Path) -> None:
    store = local_store(small_disk / "staging", small_disk / "library")
    free = _free(small_disk)
    with pytest.raises(NoRoom):
        store.staging.reserve(KEY, SMALL_DISK + 1, allocates=False)
    store.staging.reserve(KEY, 6 * MIB, allocates=False)
    with pytest.raises(NoRoom):
        store.staging.enlarge(KEY, SMALL_DISK + 1, allocates=False)
    assert free - _free(small_disk) < MIB
    fill(store, KEY, 5 * MIB, 6 * MIB)
    assert free - _free(small_disk) < 2 * MIB, "of a file with a hole"
    fill(store, KEY, 0, 5 * MIB)
    store.library.publish(KEY, 6 * MIB)
    assert content(store, KEY, 0) == pattern(0, 6 * MIB)


def test_a_hole_in_a_file_is_not_filled_on_a_full_disk(small_disk: Path) -> None:
    store = local_store(small_disk / "staging", small_disk / "library")
    store.staging.reserve(KEY, 6 * MIB, allocates=False)
    fill(store, KEY, 6 * MIB - 1, 6 * MIB)
    with (small_disk / "other").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, _free(small_disk) - folder.KEPT_FREE_BYTES)
    with pytest.raises(NoRoom):
        fill(store, KEY, 0, 3 * MIB)
    assert _free(small_disk) >= folder.KEPT_FREE_BYTES - MIB, "left to the records"


def test_a_file_of_unknown_length_leaves_space_for_the_records(small_disk: Path) -> None:
    store = local_store(small_disk / "staging", small_disk / "library")
    store.staging.reserve(KEY, 0)
    recorded: list[ByteRange] = []
    span = ByteRange(0, SMALL_DISK)
    with store.staging.writer(KEY, span, LIMITS) as writer, pytest.raises(NoRoom):
        writer.write(span, body(0, SMALL_DISK), recorded.append)
    assert recorded[0].end >= SMALL_DISK - folder.KEPT_FREE_BYTES - MIB, "what there was room for"
    assert _free(small_disk) >= folder.KEPT_FREE_BYTES - MIB


def test_a_whole_file_leaves_space_for_the_records(small_disk: Path) -> None:
    store = local_store(small_disk / "staging", small_disk / "library")
    with pytest.raises(NoRoom):
        store.staging.receive(KEY, body(0, SMALL_DISK), SMALL_DISK, LIMITS)
    assert _free(small_disk) >= folder.KEPT_FREE_BYTES - MIB


def test_reserved_space_can_be_filled_on_a_full_disk(small_disk: Path) -> None:
    store = local_store(small_disk / "staging", small_disk / "library")
    store.staging.reserve(KEY, 4 * MIB)
    other = small_disk / "other"
    with other.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, _free(small_disk))
    assert fill(store, KEY, 0, 4 * MIB) == 4 * MIB


def _free(disk: Path) -> int:
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize


def test_a_full_library_disk_is_found_before_a_byte_is_sent(
    small_disk: Path, tmp_path: Path
) -> None:
    store = local_store(tmp_path / "staging", small_disk / "library")
    with pytest.raises(NoRoom):
        store.staging.reserve(KEY, SMALL_DISK + 1)
    assert names(tmp_path / "staging") == set()
    assert names(small_disk / "library") == set()


def test_a_reserved_file_can_be_stored_on_a_full_disk(small_disk: Path) -> None:
    store = local_store(small_disk / "staging", small_disk / "library")
    store.staging.reserve(KEY, 6 * MIB)
    with pytest.raises(NoRoom):
        store.staging.reserve(OTHER_KEY, 3 * MIB)
    fill(store, KEY, 0, 6 * MIB)
    store.library.publish(KEY, 6 * MIB)
    assert content(store, KEY, 6 * MIB - 9) == pattern(6 * MIB - 9, 6 * MIB)


def test_a_disk_that_fills_up_midway_keeps_what_arrived(small_disk: Path) -> None:
    store = local_store(small_disk / "staging", small_disk / "library")
    store.staging.reserve(KEY, 0)
    told: list[ByteRange] = []
    span = ByteRange(0, SMALL_DISK + 2 * MIB)
    with store.staging.writer(KEY, span, LIMITS) as writer, pytest.raises(NoRoom):
        writer.write(span, EndlessSource(), told.append)
    assert told
    end = told[-1].end
    with store.staging.open(KEY) as file:
        assert file.read(end) == b"x" * end


def test_a_file_beyond_the_process_limit_has_no_room(tmp_path: Path) -> None:
    arguments = (tmp_path / "staging", tmp_path / "library", MIB)
    process = PROCESSES.Process(target=reserve_beyond_limit, args=arguments)
    process.start()
    process.join(30)
    assert process.exitcode == 0
    assert names(tmp_path / "staging") == set()


def test_files_kept_for_reuse_give_way_on_a_full_disk(small_disk: Path) -> None:
    spools, length = Spools(Folder(small_disk)), SMALL_DISK - folder.KEPT_FREE_BYTES
    with spools.open(0, may_reuse_file=True) as sent:
        os.posix_fallocate(sent.descriptor, 0, length)
    assert _free(small_disk) <= folder.KEPT_FREE_BYTES
    with spools.open(0):
        assert _free(small_disk) >= length


@pytest.fixture
def cramped(small_disk: Path, in_bucket: InBucket) -> Iterator[BucketStore]:
    """A bucket store whose spools are on the small disk, with a reserved file."""
    with bucket_store(in_bucket.bucket, small_disk.parent, staging=small_disk) as store:
        store.staging.reserve(KEY, SMALL_DISK)
        yield store


def test_a_node_whose_spools_have_no_disk_is_busy_until_they_have(
    cramped: BucketStore, small_disk: Path
) -> None:
    """Other nodes have room."""
    span = ByteRange(0, 8 * MIB)
    with _filled(small_disk):
        with cramped.staging.writer(KEY, span, LIMITS) as writer, pytest.raises(ServerBusy):
            writer.write(span, body(0, span.end), ignore)
        with pytest.raises(ServerBusy):
            cramped.staging.receive(OTHER_KEY, body(0, span.end), span.end, LIMITS)
    assert fill(cramped, KEY, 0, span.end) == span.end


def test_a_spool_whose_disk_fills_up_midway_stores_what_arrived(
    cramped: BucketStore, small_disk: Path
) -> None:
    told, span = list[ByteRange](), ByteRange(0, 8 * MIB)
    source = FillsDiskMidway(pattern(0, span.end), small_disk)
    with ExitStack() as source.until:
        with cramped.staging.writer(KEY, span, LIMITS) as writer:

            def tell(stored: ByteRange) -> None:
                record(cramped, writer)
                told.append(stored)

            with pytest.raises(ServerBusy):
                writer.write(span, source, tell)
        end = told[-1].end
        assert 0 < end < span.end
        with cramped.staging.open(KEY) as file:
            assert file.read(end) == pattern(0, end)
    whole = FillsDiskMidway(pattern(0, span.end), small_disk)
    with whole.until, pytest.raises(ServerBusy):
        cramped.staging.receive(OTHER_KEY, whole, span.end, LIMITS)
    assert fill(cramped, KEY, end, span.end) == span.end


class FillsDiskMidway(PiecesSource):
    """A body during which others fill the disk, until `until` is left."""

    def __init__(self, data: bytes, disk: Path) -> None:
        super().__init__(data, [MIB // 2])
        self.until = ExitStack()
        self._disk = disk

    def readinto(self, buffer: memoryview, /) -> int | None:
        count = super().readinto(buffer)
        if self.position == len(self._data) // 2:
            self.until.enter_context(_filled(self._disk))
        return count


@contextmanager
def _filled(disk: Path) -> Iterator[None]:
    """Take all space of a disk for a while."""
    with (disk / "filler").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, _free(disk)))
        yield
    (disk / "filler").unlink()


def test_a_folder_that_cannot_be_created_is_a_storage_failure(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = local_store(tmp_path / "file" / "staging", tmp_path / "library")
    with pytest.raises(StorageFailed):
        store.staging.reserve(KEY, 1)


def test_a_link_in_place_of_the_staging_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "staging").symlink_to(tmp_path / "elsewhere")
    store = local_store(tmp_path / "staging", tmp_path / "library")
    with pytest.raises(StorageFailed):
        store.staging.reserve(KEY, 1)
    assert names(tmp_path / "elsewhere") == set()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_staging_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "staging").mkdir()
    os.chown(tmp_path / "staging", 12345, -1)
    store = local_store(tmp_path / "staging", tmp_path / "library")
    with pytest.raises(StorageFailed, match="another user"):
        store.staging.reserve(KEY, 1)


def problems_of(staging: Path, library: Path) -> dict[str, bool]:
    """Codes of the problems, and whether each is fatal."""
    store = LocalStore(staging, library, Durability.CHUNK)
    return {problem.code: problem.is_fatal for problem in store.inspection.problems()}


def problems_of_any_machine(staging: Path, library: Path) -> dict[str, bool]:
    """`problems_of` without the warning that /tmp, where tests have their folders, is in memory."""
    found = problems_of(staging, library)
    found.pop("staging_in_memory", None)
    return found


def test_good_folders_have_no_problems_and_stay_empty(tmp_path: Path) -> None:
    assert problems_of_any_machine(tmp_path / "staging", tmp_path / "library") == {}
    assert names(tmp_path / "staging") | names(tmp_path / "library") == set()


def test_folders_that_cannot_be_written_are_fatal(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = problems_of(tmp_path / "file" / "staging", tmp_path / "file" / "library")
    assert found == {"staging_not_writable": True, "library_not_writable": True}


def test_a_staging_folder_in_memory_is_a_warning(memory_folder: Path, tmp_path: Path) -> None:
    found = problems_of(memory_folder / "staging", tmp_path / "library")
    assert found.get("staging_in_memory") is False
    found = problems_of(tmp_path / "staging", memory_folder / "library")
    assert "library_in_memory" not in found


@pytest.mark.parametrize(
    ("free", "is_fatal"),
    [(NO_ROOM_BYTES - 1, True), (LOW_ROOM_BYTES - 1, False)],
)
def test_little_space_is_a_warning_and_none_is_fatal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, is_fatal: bool
) -> None:
    room = SimpleNamespace(f_bavail=free, f_frsize=1)
    monkeypatch.setattr(os, "fstatvfs", lambda _: room)
    found = problems_of_any_machine(tmp_path / "staging", tmp_path / "library")
    assert found == {"staging_low_on_room": is_fatal, "library_low_on_room": is_fatal}


def test_a_really_small_disk_has_no_room(small_disk: Path, tmp_path: Path) -> None:
    found = problems_of(small_disk / "staging", tmp_path / "library")
    assert found["staging_low_on_room"] is True


class EndlessSource:
    """A body that never ends."""

    remaining = None
    is_verified_at_end = False

    def readinto(self, buffer: memoryview, /) -> int | None:
        buffer[:] = b"x" * len(buffer)
        return len(buffer)

    def finish(self, _watch: Watch = no_watch, /) -> None:
        """Never reached."""
