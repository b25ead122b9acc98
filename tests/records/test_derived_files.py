"""The table of derived files, on both kinds of database, with objects in a folder."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from threading import Barrier, Event
from typing import NoReturn

import pytest
from sqlalchemy import ColumnElement, Connection

from app.core.errors import NoRoom, ServerBusy, StorageFailed
from app.core.playback import Made, Outdated
from app.core.upload import UploadId
from app.db.engine import Database
from app.video.serve.derived_files import UNFINISHED_FOR, DerivedFiles
from app.video.serve.derived_objects import FolderObjects
from tests.derived import files_in, path_of, place
from tests.records.making import NOW, at

VIDEO, OTHER = UploadId("ab" * 16), UploadId("cd" * 16)
MARK = "rungs/720/made-by"


class Killed(BaseException):
    """Ends a maker as SIGKILL does."""


@dataclass(frozen=True, slots=True)
class KilledAfterPut(FolderObjects):
    """Ends its maker when the object is stored."""

    def put(self, made: Path, file: Made) -> None:
        FolderObjects.put(self, made, file)
        raise Killed


@dataclass(frozen=True, slots=True)
class ReadForLong(FolderObjects):
    """Its objects stay for their readers, as those of a bucket."""

    read_for = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Failing(FolderObjects):
    """Nothing can be deleted."""

    def delete(self, _files: Sequence[Made]) -> None:
        raise StorageFailed("The server's disk failed.")


@pytest.fixture
def files(database: Database, tmp_path: Path) -> DerivedFiles:
    return files_in(tmp_path / "media", database, lambda: NOW)


def later(files: DerivedFiles, time: timedelta) -> DerivedFiles:
    """The same files at a later time."""
    return replace(files, clock=lambda: NOW + time)


def stored(files: DerivedFiles) -> set[str]:
    """The names of the objects, without their versions."""
    return {found.name.rpartition(".")[0] for found in files.objects.list()}


def test_a_file_appears_whole_and_replaces_an_older_one(files: DerivedFiles) -> None:
    with pytest.raises(ZeroDivisionError), files.writing(VIDEO, "poster.jpg") as file:
        file.write(bytes(1 // 0))
    assert files.find(VIDEO, "poster.jpg") is None
    old = place(files, VIDEO, "poster.jpg", b"old")
    first = files.find(VIDEO, "poster.jpg")
    _, opened = files.open(VIDEO, "poster.jpg")
    with opened:
        new = place(files, VIDEO, "poster.jpg", b"new one")
        assert opened.read() == b"old"
    second = files.find(VIDEO, "poster.jpg")
    assert first is not None
    assert second is not None
    assert (first.length, second.length) == (3, 7)
    assert first.version != second.version
    assert files.read(VIDEO, "poster.jpg") == b"new one"
    assert (old.exists(), new.exists()) == (False, True)


def test_files_that_belong_together_appear_together(files: DerivedFiles) -> None:
    place(files, VIDEO, "sprite.jpg", b"there")
    with files.scratch.folder() as scratch:
        made = {name: scratch / name for name in ("sprite.jpg", "thumbs.vtt")}
        for path in made.values():
            path.write_text("made")
        with pytest.raises(FileExistsError):
            files.keep(VIDEO, made, is_new=True)
    assert files.top_names([VIDEO]) == {VIDEO: {"sprite.jpg"}}
    assert later(files, UNFINISHED_FOR).find(VIDEO, "thumbs.vtt") is None
    later(files, UNFINISHED_FOR).remove_abandoned()
    assert stored(files) == {f"{VIDEO}/sprite.jpg"}


def test_a_killed_maker_leaves_an_object_that_is_deleted_a_day_later(files: DerivedFiles) -> None:
    place(files, VIDEO, "poster.jpg", b"whole")
    killed = replace(files, objects=KilledAfterPut(files.scratch.root))
    with pytest.raises(Killed):
        place(killed, VIDEO, "sprite.jpg", b"half")
    assert files.find(VIDEO, "sprite.jpg") is None
    later(files, UNFINISHED_FOR - timedelta(seconds=1)).remove_abandoned()
    assert stored(files) == {f"{VIDEO}/poster.jpg", f"{VIDEO}/sprite.jpg"}
    later(files, UNFINISHED_FOR).remove_abandoned()
    assert stored(files) == {f"{VIDEO}/poster.jpg"}


def test_a_maker_that_is_too_late_keeps_nothing(files: DerivedFiles) -> None:
    times = iter([NOW])
    slow = replace(files, clock=lambda: next(times, NOW + UNFINISHED_FOR))
    with pytest.raises(Outdated):
        place(slow, VIDEO, "poster.jpg", b"late")
    assert files.find(VIDEO, "poster.jpg") is None


def test_nothing_is_added_to_a_folder_that_was_discarded(files: DerivedFiles) -> None:
    place(files, VIDEO, MARK, b"this encoder")
    mark = files.find(VIDEO, MARK)
    place(files, VIDEO, "rungs/7200/1.m4s", b"of another")

    def add(name: str, *, is_new: bool = False) -> None:
        with files.scratch.folder() as scratch:
            (scratch / "made").write_bytes(b"segment")
            files.keep(VIDEO, {name: scratch / "made"}, beside=mark, is_new=is_new)

    add("rungs/720/1.m4s", is_new=True)
    with pytest.raises(FileExistsError):
        add("rungs/720/1.m4s", is_new=True)
    assert files.discard(VIDEO, "rungs/720")
    assert not files.discard(VIDEO, "rungs/720")
    with pytest.raises(Outdated):
        add("rungs/720/2.m4s")
    place(files, VIDEO, MARK, b"another encoder")
    with pytest.raises(Outdated):
        add("rungs/720/2.m4s")
    assert files.find(VIDEO, "rungs/7200/1.m4s") is not None
    assert files.find(VIDEO, "rungs/720/2.m4s") is None


def test_a_folder_is_renewed_once(files: DerivedFiles) -> None:
    """Of two makers that find the mark of an older encoder, or none, the first renews it."""

    def renew(instead_of: Made | None) -> None:
        with files.scratch.folder() as scratch:
            (scratch / "made").write_bytes(b"this encoder")
            files.renew(VIDEO, "rungs/720", {MARK: scratch / "made"}, instead_of=instead_of)

    place(files, VIDEO, "rungs/720/1.m4s", b"without a mark")
    renew(None)
    assert files.find(VIDEO, "rungs/720/1.m4s") is None
    place(files, VIDEO, "rungs/720/2.m4s", b"segment")
    old = files.find(VIDEO, MARK)
    with pytest.raises(FileExistsError):
        renew(None)
    renew(old)
    assert files.find(VIDEO, "rungs/720/2.m4s") is None
    place(files, VIDEO, "rungs/720/3.m4s", b"segment")
    with pytest.raises(FileExistsError):
        renew(old)
    assert files.read(VIDEO, "rungs/720/3.m4s") == b"segment"


def test_of_makers_that_renew_a_folder_at_once_one_does(
    files: DerivedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(files, VIDEO, MARK, b"an older encoder")
    old, both, show = files.find(VIDEO, MARK), Barrier(2), DerivedFiles._show

    def show_slowly(these: DerivedFiles, connection: Connection, file: Made) -> None:
        show(these, connection, file)
        time.sleep(0.3)  # The other one waits for the end of this transaction.

    def renew(encoder: str) -> bool:
        with files.scratch.folder() as scratch:
            (scratch / "made").write_text(encoder)
            both.wait()
            try:
                files.renew(VIDEO, "rungs/720", {MARK: scratch / "made"}, instead_of=old)
            except FileExistsError:
                return False
            return True

    monkeypatch.setattr(DerivedFiles, "_show", show_slowly)
    with ThreadPoolExecutor(2) as makers:
        found = dict(zip("ab", makers.map(renew, "ab"), strict=True))
    (winner,) = [encoder for encoder, has_renewed in found.items() if has_renewed]
    assert files.read(VIDEO, MARK) == winner.encode()


@dataclass(frozen=True, slots=True)
class SlowToReplace(DerivedFiles):
    """Its makers pause before they replace a file."""

    is_replacing: Event = field(default_factory=Event)

    def _leave(
        self, connection: Connection, condition: ColumnElement[bool], due_at: datetime | None = None
    ) -> int:
        self.is_replacing.set()
        time.sleep(0.5)  # The other one waits by now.
        return DerivedFiles._leave(self, connection, condition, due_at)


def test_a_folder_is_discarded_while_one_of_its_files_is_replaced(files: DerivedFiles) -> None:
    """The discard takes no file before the mark, which the maker holds."""
    place(files, VIDEO, "rungs/720/left-out", b"1")
    place(files, VIDEO, MARK, b"this encoder")
    slow = SlowToReplace(
        database=files.database, objects=files.objects, scratch=files.scratch, clock=files.clock
    )

    def replace_left_out() -> None:
        with slow.scratch.folder() as scratch:
            (scratch / "made").write_bytes(b"1\n2")
            beside = slow.find(VIDEO, MARK)
            slow.keep(VIDEO, {"rungs/720/left-out": scratch / "made"}, beside=beside)

    with ThreadPoolExecutor(1) as maker:
        replacing = maker.submit(replace_left_out)
        slow.is_replacing.wait()
        assert files.discard(VIDEO, "rungs/720")
        replacing.result()
    assert stored(files) == set()


def test_an_object_stays_for_its_readers(files: DerivedFiles) -> None:
    objects = ReadForLong(files.scratch.root)
    files = replace(files, objects=objects)
    place(files, VIDEO, "poster.jpg", b"poster")
    files.discard(VIDEO, "poster.jpg")
    later(files, objects.read_for - timedelta(seconds=1)).remove_abandoned()
    assert stored(files) == {f"{VIDEO}/poster.jpg"}
    later(files, objects.read_for).remove_abandoned()
    assert stored(files) == set()


def test_what_cannot_be_deleted_is_invisible_and_deleted_later(files: DerivedFiles) -> None:
    place(files, VIDEO, "poster.jpg", b"poster")
    replace(files, objects=Failing(files.scratch.root)).remove([VIDEO])
    assert files.find(VIDEO, "poster.jpg") is None
    assert stored(files) == {f"{VIDEO}/poster.jpg"}
    files.remove_abandoned()
    assert stored(files) == set()


def test_the_files_of_a_video_are_removed_together_with_their_folders(
    files: DerivedFiles, tmp_path: Path
) -> None:
    assert files.is_empty()
    place(files, VIDEO, "hls/source/init.mp4", b"init")
    place(files, VIDEO, "poster.jpg", b"poster")
    place(files, OTHER, "poster.jpg", b"poster")
    assert sorted(files.videos()) == [VIDEO, OTHER]
    assert files.top_names([VIDEO]) == {VIDEO: {"poster.jpg"}}
    files.remove([VIDEO])
    files.remove([VIDEO])
    assert files.videos() == [OTHER]
    assert not (tmp_path / "media" / VIDEO).exists()


@dataclass(frozen=True, slots=True)
class RemovesOne(DerivedFiles):
    """The database is busy when a second change begins."""

    left: list[int] = field(default_factory=lambda: [1])

    def _leave(
        self, connection: Connection, condition: ColumnElement[bool], due_at: datetime | None = None
    ) -> int:
        if not self.left:
            raise ServerBusy("The database is busy.")
        self.left.pop()
        return DerivedFiles._leave(self, connection, condition, due_at)


def test_each_video_is_removed_in_a_transaction_of_its_own(files: DerivedFiles) -> None:
    for video in (VIDEO, OTHER):
        place(files, video, "poster.jpg", b"poster")
    removing = RemovesOne(
        database=files.database, objects=files.objects, scratch=files.scratch, clock=files.clock
    )
    with pytest.raises(ServerBusy):
        removing.remove([VIDEO, OTHER])
    assert stored(files) == {f"{OTHER}/poster.jpg"}


def test_only_the_owner_can_enter(files: DerivedFiles) -> None:
    path = place(files, VIDEO, "poster.jpg", b"poster")
    assert path.parent.stat().st_mode & 0o077 == 0


def test_a_file_that_is_gone_from_the_folder_does_not_exist(files: DerivedFiles) -> None:
    place(files, VIDEO, "poster.jpg", b"poster").unlink()
    assert files.find(VIDEO, "poster.jpg") is None
    with pytest.raises(FileNotFoundError):
        files.open(VIDEO, "poster.jpg")
    with files.scratch.folder() as scratch:
        (scratch / "made").write_bytes(b"again")
        files.keep(VIDEO, {"poster.jpg": scratch / "made"}, is_new=True)
    assert files.read(VIDEO, "poster.jpg") == b"again"


def test_renditions_can_be_evicted_by_size_and_last_use(files: DerivedFiles) -> None:
    for name in ("rungs/720/init.mp4", "rungs/720/1.m4s", "renditions/720.mp4"):
        place(files, VIDEO, name, b"12345")
    place(files, VIDEO, "hls/source/init.mp4", b"12345")
    place(files, VIDEO, "poster.jpg", b"12345")
    for seconds, name in ((30, "init.mp4"), (100, "init.mp4"), (110, "init.mp4"), (200, "none")):
        later(files, timedelta(seconds=seconds)).note_use(VIDEO, f"rungs/720/{name}")
    found = sorted(files.evictable(), key=lambda bundle: bundle.name)
    assert [(each.name, each.size) for each in found] == [
        ("renditions/720.mp4", 5),
        ("rungs/720", 10),
    ]
    assert [each.used_at for each in found] == [NOW.timestamp(), at(100).timestamp()]
    assert path_of(files, VIDEO, "poster.jpg").exists()


def test_a_last_use_that_cannot_be_written_does_not_fail_its_request(
    files: DerivedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_database: Database) -> NoReturn:
        raise NoRoom("The disk is full.")

    place(files, VIDEO, "rungs/720/init.mp4", b"12345")
    with monkeypatch.context() as patched:
        patched.setattr(Database, "write", refuse)
        later(files, timedelta(seconds=100)).note_use(VIDEO, "rungs/720/init.mp4")
    assert [each.used_at for each in files.evictable()] == [NOW.timestamp()]
