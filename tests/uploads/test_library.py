"""Published uploads: pages, reading, deleting."""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from threading import Barrier, BrokenBarrierError
from typing import Any

import pytest

from app.core.access import Scope
from app.core.errors import InvalidRequest, NoRoom, UploadGone, UploadNotFound
from app.core.lifecycle import UploadState
from app.core.ranges import ByteRange
from app.core.upload import Upload, UploadId
from app.core.video_list import VideoList
from tests.storage.sources import pattern
from tests.uploads.world import ME, OTHERS, World, in_threads


def test_pages_list_all_videos_newest_first(world: World) -> None:
    videos = [world.completed().id for _ in range(5)]
    seen: list[str] = []
    cursor = None
    for _ in range(3):
        page = world.library.page(ME, limit=2, cursor=cursor)
        seen += [video.id for video in page.videos]
        cursor = page.next_cursor
    assert seen == videos[::-1]
    assert cursor is None


def test_the_last_page_has_no_next_one(world: World) -> None:
    for _ in range(2):
        world.completed()
    assert world.library.page(ME, limit=2).next_cursor is None
    assert world.library.page(OTHERS, limit=2).videos == []


def test_page_sizes_are_limited(world: World) -> None:
    for _ in range(3):
        world.completed()
    assert len(world.library.page(ME, limit=0).videos) == 1
    assert len(world.library.page(ME, limit=10**9).videos) == 3


@pytest.mark.parametrize("cursor", ["", ".", "..", "5." + "0" * 32, "0" * 8 + ".5." + "0" * 32])
def test_a_foreign_cursor_is_refused(world: World, cursor: str) -> None:
    with pytest.raises(InvalidRequest):
        world.library.page(ME, limit=5, cursor=cursor)


def test_a_search_is_paged_in_its_order(world: World) -> None:
    names = ["clip 10.mp4", "Clip 2.mp4", "film.mp4", "clip 1.mp4"]
    for name in names:
        world.library.rename(ME, world.completed().id, name)
    wanted, seen, cursor = VideoList.parse("CLIP", "-name"), list[str](), None
    for _ in range(3):
        page = world.library.page(ME, wanted, limit=1, cursor=cursor)
        seen += [video.filename for video in page.videos]
        cursor = page.next_cursor
    assert seen == ["clip 10.mp4", "Clip 2.mp4", "clip 1.mp4"]
    assert cursor is None


def test_a_renamed_video_keeps_everything_but_its_name(world: World) -> None:
    video = world.completed()
    renamed = world.library.rename(ME, video.id, " ../Ferien/e\u0301te\u0301.mp4 ")
    assert renamed == replace(video, filename="Ferien/été.mp4")
    assert world.library.get(ME, video.id) == renamed


@pytest.mark.parametrize("name", ["", "  ", "..", " ./../ ", "a\x00b", "\ud800", "a" * 1025])
def test_an_invalid_name_is_refused(world: World, name: str) -> None:
    video = world.completed()
    with pytest.raises(InvalidRequest):
        world.library.rename(ME, video.id, name)
    assert world.library.get(ME, video.id) == video


def test_only_videos_of_their_owner_are_renamed(world: World) -> None:
    video, running = world.completed(), world.create(10)
    for scope, upload in ((OTHERS, video), (ME, running)):
        with pytest.raises(UploadNotFound):
            world.library.rename(scope, upload.id, "b.mp4")
    world.library.delete(ME, video.id)
    with pytest.raises(UploadGone):
        world.library.rename(ME, video.id, "b.mp4")


def test_only_complete_uploads_of_their_owner_are_videos(world: World) -> None:
    video, running = world.completed(), world.create(10)
    assert world.library.get(ME, video.id) == video
    with pytest.raises(UploadNotFound):
        world.library.get(ME, running.id)
    with pytest.raises(UploadNotFound):
        world.library.get(OTHERS, video.id)
    with pytest.raises(UploadNotFound):
        world.library.delete(OTHERS, video.id)


def test_a_video_is_read_from_any_byte(world: World) -> None:
    video = world.completed()
    with world.library.open(video, ByteRange(90, 95)) as file:
        assert file.read(5) == pattern(90, 95)


def test_a_video_whose_file_is_lost_is_gone(world: World) -> None:
    video = world.completed()
    world.lose(video)
    with pytest.raises(UploadGone):
        world.library.open(video, ByteRange(0, 1))


def test_a_deleted_video_is_gone_with_its_file(world: World) -> None:
    video = world.completed()
    world.library.delete(ME, video.id)
    assert world.files() == set()
    assert world.library.page(ME, limit=5).videos == []
    with pytest.raises(UploadGone):
        world.library.get(ME, video.id)
    with pytest.raises(UploadGone):
        world.library.delete(ME, video.id)


def test_a_running_download_survives_the_deletion(world: World) -> None:
    video = world.completed()
    with world.library.open(video, ByteRange(0, 100)) as file:
        world.library.delete(ME, video.id)
        assert file.read(100) == pattern(0, 100)


def test_of_two_concurrent_deletions_one_finds_the_video_gone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    video, both_have_looked, get = world.completed(), Barrier(2), world.library.get

    def look_together(scope: Scope, upload_id: UploadId) -> Upload:
        found = get(scope, upload_id)
        with suppress(BrokenBarrierError):
            both_have_looked.wait(1)
        both_have_looked.abort()
        return found

    monkeypatch.setattr(world.library, "get", look_together)
    outcomes = in_threads(2, lambda _: world.library.delete(ME, video.id))
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Upload", "UploadGone"]


@pytest.mark.folders
@pytest.mark.parametrize("way", ["open", "hand_over"])
@pytest.mark.parametrize("planted", ["link", "pipe", "folder", "nothing"])
def test_a_link_or_folder_in_place_of_a_video_is_not_sent(
    world: World, caplog: pytest.LogCaptureFixture, planted: str, way: str
) -> None:
    video = world.completed()
    path = world.videos / video.id
    path.unlink()
    if planted == "link":
        path.symlink_to("/etc/passwd")
    elif planted == "pipe":
        os.mkfifo(path)
    elif planted == "folder":
        path.mkdir()
    ways: dict[str, Callable[[], object]] = {
        "open": lambda: world.library.open(video, ByteRange(0, 1)),
        "hand_over": lambda: world.library.hand_over(video),
    }
    with pytest.raises(UploadGone, match="no longer there"):
        ways[way]()
    told = [each for each in caplog.records if each.name == "app.uploads.library"]
    assert len(told) == 1, "and the operator is told in one line"


def test_a_video_can_be_deleted_even_if_its_record_needs_the_space(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    video = world.completed()
    move = world.records.move

    def move_with_room(*arguments: Any, **names: Any) -> Upload:
        if (world.videos / video.id).exists():
            raise NoRoom("The disk of the database is full.")
        return move(*arguments, **names)

    monkeypatch.setattr(world.records, "move", move_with_room)
    world.library.delete(ME, video.id)
    assert world.state(video) is UploadState.DELETED
    assert world.files() == set()
