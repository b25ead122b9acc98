"""Files that hold bytes between clients and the bucket."""

from __future__ import annotations

import io
import os
import socket
import time
from pathlib import Path

import pytest

from app.core.errors import ServerBusy
from app.core.ranges import ByteRange
from app.storage.base import BytesLost
from app.storage.local import folder
from app.storage.local.folder import Folder
from app.storage.s3.connections import Connections, Request, StoreUnreachable
from app.storage.s3.contents import SpoolTooShort
from app.storage.s3.spool import KEPT_FILES, Spools
from tests.storage.sources import pattern
from tests.storage.stores import names


@pytest.fixture
def spools(tmp_path: Path) -> Spools:
    return Spools(Folder(tmp_path))


def size_of_next(spools: Spools) -> int:
    """Bytes that a spool has before any were written to it; more than 0 if it is a used one."""
    spool = spools.open(0, may_reuse_file=True)
    try:
        return os.fstat(spool.descriptor).st_size
    finally:
        spool.close()


def test_a_spool_that_was_sent_is_written_again_unless_it_must_be_empty(spools: Spools) -> None:
    with spools.open(0) as sent:
        os.write(sent.descriptor, b"sent")
    empty = spools.open(0)
    assert os.fstat(empty.descriptor).st_size == 0
    empty.close()
    assert [size_of_next(spools) for _ in range(2)] == [4, 0]


def test_few_spools_are_kept(spools: Spools, tmp_path: Path) -> None:
    several = [spools.open(0) for _ in range(KEPT_FILES + 1)]
    for spool in several:
        with spool:
            os.write(spool.descriptor, b"sent")
    sizes = [size_of_next(spools) for _ in several]
    assert sizes == [4] * KEPT_FILES + [0]
    assert names(tmp_path) == set(), "they have no names"


def test_a_spool_that_could_not_be_sent_is_not_written_again(spools: Spools) -> None:
    def fail() -> None:
        with spools.open(0) as unsent:
            os.write(unsent.descriptor, b"on its way")
            raise ServerBusy("The object store does not answer in time.")

    with pytest.raises(ServerBusy):
        fail()
    assert size_of_next(spools) == 0


def test_a_spool_that_the_store_may_still_be_reading_is_not_written_again(spools: Spools) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        spools.open(0, may_reuse_file=True) as slow,
    ):
        os.write(slow.descriptor, b"slow")
        connections = Connections("http", *silent.getsockname())
        body = slow.slice(ByteRange(0, 4))
        request = Request("PUT", "/", {"content-length": "4"}, body, idle_seconds=0.1)
        with pytest.raises(StoreUnreachable):
            connections.ask(request, time.monotonic() + 60)
    assert size_of_next(spools) == 0


def test_a_slice_has_the_bytes_at_a_position_of_the_upload(spools: Spools) -> None:
    with spools.open(1000) as spool:
        os.write(spool.descriptor, bytes(10))
        found = spool.slice(ByteRange(1004, 1010))
        assert (found.start, found.length) == (4, 6)
        with pytest.raises(SpoolTooShort):
            spool.slice(ByteRange(1004, 1011))


def test_a_spool_is_filled_from_a_file(spools: Spools) -> None:
    with spools.open(0) as spool, io.FileIO("/dev/zero") as zeros:
        spool.fill(zeros, 3_000_000)
        assert os.fstat(spool.descriptor).st_size == 3_000_000
    with spools.open(0) as spool, io.FileIO("/dev/null") as empty, pytest.raises(BytesLost):
        spool.fill(empty, 1)


def test_a_nearly_full_disk_that_takes_some_of_the_bytes_leaves_no_hole(
    spools: Spools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite, content = os.pwrite, pattern(0, 2_500_000)
    (tmp_path / "source").write_bytes(content)
    monkeypatch.setattr(
        os, "pwrite", lambda file, data, at: pwrite(file, data[: 1 + len(data) // 3], at)
    )
    with spools.open(1000) as spool, io.FileIO(tmp_path / "source") as source:
        spool.fill(source, len(content))
        assert os.pread(spool.descriptor, len(content) + 1, 0) == content


def test_filling_a_spool_leaves_the_space_that_the_database_needs(
    spools: Spools, monkeypatch: pytest.MonkeyPatch
) -> None:
    with spools.open(0) as spool, io.FileIO("/dev/zero") as zeros:
        monkeypatch.setattr(folder, "KEPT_FREE_BYTES", 1 << 62)
        with pytest.raises(ServerBusy):
            spool.fill(zeros, 1)
        assert os.fstat(spool.descriptor).st_size == 0
