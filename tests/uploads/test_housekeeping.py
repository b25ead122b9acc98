"""What the background worker does with uploads."""

import hashlib
import os
import time
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from crc32c import crc32c

from app.core.crc32c import in_base64
from app.core.errors import ServerBusy, UploadGone, UploadNotFound
from app.core.lifecycle import UploadState
from app.core.ranges import ByteRange
from app.core.upload import Upload, UploadId
from app.storage.s3.assembly import WAIT_SECONDS
from app.storage.s3.store import BucketStore
from app.uploads.housekeeping import REMEMBER_GONE, STUCK_AFTER
from tests.storage.sources import pattern
from tests.uploads.world import EXPIRY, ME, World, new_id


def state_of(world: World, upload: Upload) -> UploadState:
    return world.records.get(upload.id).state


def test_an_idle_upload_expires_and_its_space_is_freed(world: World) -> None:
    upload = world.create(1000)
    world.send(upload, 0, 10)
    world.later(seconds=EXPIRY.total_seconds())
    world.housekeeping.expire()
    assert state_of(world, upload) is UploadState.EXPIRED
    assert world.files() == set()
    with pytest.raises(UploadGone, match="expired"):
        world.send(upload, 10, 20)


def test_only_the_last_activity_counts(world: World) -> None:
    old_but_active, idle = world.create(1000), world.create(1000)
    world.later(days=6)
    world.send(old_but_active, 0, 10)
    world.later(days=2)
    world.housekeeping.expire()
    assert state_of(world, old_but_active) is UploadState.RECEIVING
    assert state_of(world, idle) is UploadState.EXPIRED
    assert world.files() == {old_but_active.id}


def test_videos_never_expire(world: World) -> None:
    video = world.completed()
    world.later(days=1000)
    world.housekeeping.sweep()
    assert world.content(video) == pattern(0, 100)


def test_more_uploads_than_one_batch_expire(world: World) -> None:
    world.housekeeping.batch = 3
    uploads = [world.create(1) for _ in range(8)]
    world.later(days=8)
    world.housekeeping.expire()
    assert {state_of(world, upload) for upload in uploads} == {UploadState.EXPIRED}


def test_an_upload_left_in_verifying_is_published(world: World) -> None:
    upload = world.stuck()
    world.later(seconds=STUCK_AFTER.total_seconds())
    world.housekeeping.finish_stuck()
    assert state_of(world, upload) is UploadState.COMPLETE
    assert world.content(upload) == pattern(0, 100)
    assert world.completed_count == 1


def test_an_upload_being_published_now_is_left_alone(world: World) -> None:
    upload = world.stuck()
    world.later(seconds=STUCK_AFTER.total_seconds() - 1)
    world.housekeeping.finish_stuck()
    assert state_of(world, upload) is UploadState.VERIFYING


@pytest.mark.every_store
def test_a_crash_between_publishing_and_recording_it_is_repaired(world: World) -> None:
    upload = world.stuck()
    world.store.library.publish(upload.id, 100)
    world.later(minutes=5)
    world.housekeeping.finish_stuck()
    assert state_of(world, upload) is UploadState.COMPLETE
    assert world.content(upload) == pattern(0, 100)
    assert world.completed_count == 1


@pytest.mark.parametrize("place_of_files", ["s3"], indirect=True)
def test_an_upload_that_another_node_publishes_does_not_block_the_others(world: World) -> None:
    slow, good = world.stuck(), world.stuck()
    store = world.store
    assert isinstance(store, BucketStore)
    assert store.pieces.catalog.lease(slow.id, "another node", 3600)
    world.later(minutes=5)
    begun = time.monotonic()
    world.housekeeping.finish_stuck()
    assert time.monotonic() - begun < WAIT_SECONDS
    assert (state_of(world, slow), state_of(world, good)) == (
        UploadState.VERIFYING,
        UploadState.COMPLETE,
    )
    store.pieces.catalog.release(slow.id, "another node")
    world.housekeeping.finish_stuck()
    assert state_of(world, slow) is UploadState.COMPLETE


@pytest.mark.parametrize("place_of_files", ["s3"], indirect=True)
@pytest.mark.parametrize("when", ["before the attempt", "during it"])
def test_an_upload_that_another_node_has_taken_since_is_no_failure(
    world: World, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload, store, publish = world.stuck(), world.store, world.housekeeping._completion.publish
    assert isinstance(store, BucketStore)
    catalog = store.pieces.catalog
    world.later(minutes=5)
    [queued] = world.housekeeping.stuck()
    if when == "before the attempt":
        assert catalog.lease(upload.id, "another node", 3600)

    def taken_over(_: Upload) -> Upload:
        assert catalog.lease(upload.id, "another node", 3600)
        raise ServerBusy("Another server still makes one object of the file.")

    monkeypatch.setattr(world.housekeeping._completion, "publish", taken_over)
    world.housekeeping.finish(queued)
    monkeypatch.setattr(world.housekeeping._completion, "publish", publish)
    catalog.release(upload.id, "another node")
    world.housekeeping.finish_stuck()
    assert state_of(world, upload) is UploadState.COMPLETE, "the next try is due at once"


@pytest.mark.every_store
@pytest.mark.parametrize("is_concatenation", [False, True])
def test_an_idle_upload_is_not_expired_while_a_server_is_too_busy_to_publish_it(
    world: World, monkeypatch: pytest.MonkeyPatch, is_concatenation: bool
) -> None:
    publish = world.completion.publish

    def busy(_: Upload) -> Upload:
        raise ServerBusy("The store cannot be reached.")

    monkeypatch.setattr(world.completion, "publish", busy)
    if is_concatenation:
        parts = [world.held(0, 40), world.held(40, 100)]
        with pytest.raises(ServerBusy):
            world.whole_of(*parts)
        [upload] = world.records.waiting_for(parts[0].id)
    else:
        upload = world.stuck()
    world.later(days=8)
    world.housekeeping.finish_stuck()
    world.housekeeping.sweep()
    assert state_of(world, upload) is UploadState.VERIFYING
    monkeypatch.setattr(world.completion, "publish", publish)
    world.later(hours=1)
    world.housekeeping.finish_stuck()
    assert state_of(world, upload) is UploadState.COMPLETE
    assert world.content(upload) == pattern(0, 100)


def test_a_crash_with_the_file_lost_expires_the_upload(world: World) -> None:
    upload = world.stuck()
    world.lose(upload)
    world.later(minutes=5)
    world.housekeeping.finish_stuck()
    assert state_of(world, upload) is UploadState.EXPIRED
    assert world.completed_count == 0


@pytest.mark.folders
def test_an_upload_that_cannot_be_published_does_not_block_the_others(world: World) -> None:
    broken, good = world.stuck(), world.stuck()
    world.lose(broken)
    (world.staging / broken.id).symlink_to("/nowhere")
    world.later(minutes=5)
    world.housekeeping.finish_stuck()
    assert state_of(world, good) is UploadState.COMPLETE
    assert state_of(world, broken) is UploadState.VERIFYING


def hopeless(world: World) -> Upload:
    """An upload that the disk refuses to publish."""
    upload = world.stuck()
    world.lose(upload)
    (world.staging / upload.id).symlink_to("/nowhere")
    return upload


@pytest.mark.folders
def test_many_uploads_that_cannot_be_published_do_not_block_the_next(world: World) -> None:
    world.housekeeping.batch = 3
    broken = [hopeless(world) for _ in range(4)]
    world.later(minutes=1)
    good = world.stuck()
    world.later(minutes=5)
    for _ in range(2):
        world.housekeeping.finish_stuck()
    assert state_of(world, good) is UploadState.COMPLETE
    assert {state_of(world, upload) for upload in broken} == {UploadState.VERIFYING}


@pytest.mark.folders
def test_what_cannot_be_published_is_tried_less_and_less_often_until_it_expires(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    upload, attempts = hopeless(world), list[int]()
    for minute in range(1, 24 * 60):
        world.later(minutes=1)
        caplog.clear()
        world.housekeeping.finish_stuck()
        if any(record.name == "app.uploads.housekeeping" for record in caplog.records):
            attempts.append(minute)
    assert attempts[:7] == [1, 2, 4, 8, 16, 32, 64]
    assert {after - before for before, after in pairwise(attempts[6:])} == {60}
    assert state_of(world, upload) is UploadState.VERIFYING
    world.later(seconds=EXPIRY.total_seconds())
    world.housekeeping.finish_stuck()
    assert state_of(world, upload) is UploadState.EXPIRED


@pytest.mark.folders
def test_a_clock_that_is_set_back_does_not_put_off_the_next_try(world: World) -> None:
    upload = hopeless(world)
    world.later(days=3)
    world.housekeeping.finish_stuck()
    (world.staging / upload.id).unlink()
    (world.staging / upload.id).write_bytes(pattern(0, 100))
    world.set_clock(days=-2)
    world.housekeeping.finish_stuck()
    assert state_of(world, upload) is UploadState.COMPLETE


@pytest.mark.every_store
def test_staged_files_of_ended_uploads_are_removed(world: World) -> None:
    upload = world.create(100)
    world.records.move(upload.id, UploadState.CANCELLED, world.now)
    assert world.files() == {upload.id}
    world.housekeeping.remove_orphans()
    assert world.files() == set()


@pytest.mark.folders
def test_staged_files_of_running_uploads_stay(world: World) -> None:
    uploads = {world.create(100).id, world.stuck().id}
    for upload_id in uploads:
        os.utime(world.staging / upload_id, (0, 0))
    world.housekeeping.remove_orphans()
    assert world.files() == uploads


def test_remains_of_a_published_upload_in_staging_are_removed(world: World) -> None:
    video = world.completed()
    (world.staging / video.id).write_bytes(b"left by a kill after the rename")
    world.housekeeping.remove_orphans()
    assert world.files() == {video.id}
    assert world.content(video) == pattern(0, 100)


@pytest.mark.folders
def test_files_without_a_record_stay_while_they_are_written(world: World) -> None:
    key = new_id()
    world.store.staging.reserve(key, 10)
    world.housekeeping.remove_orphans()
    assert world.files() == {key}
    long_ago = (world.staging / key).stat().st_mtime - EXPIRY.total_seconds() - 60
    os.utime(world.staging / key, (long_ago, long_ago))
    world.housekeeping.remove_orphans()
    assert world.files() == set()


@pytest.mark.folders
def test_files_that_are_not_ours_are_never_touched(world: World) -> None:
    world.create(1)
    world.completed()
    strangers: list[Path] = [world.staging / "notes.txt", world.videos / "holiday.mp4"]
    for path in strangers:
        path.write_bytes(b"mine")
        os.utime(path, (0, 0))
    world.later(days=1000)
    world.housekeeping.sweep()
    world.housekeeping.remove_deleted()
    assert [path.read_bytes() for path in strangers] == [b"mine", b"mine"]


def test_published_files_of_deleted_videos_are_removed_after_a_crash(world: World) -> None:
    deleted, kept = world.completed(), world.completed()
    world.records.move(deleted.id, UploadState.DELETED, world.now)
    world.housekeeping.remove_deleted()
    assert world.files() == {kept.id}


@pytest.mark.folders
def test_a_file_cut_off_between_its_name_and_its_record_is_received_again(
    world: World,
) -> None:
    upload, kept = world.create(100), world.completed()
    world.send(upload, 0, 90)
    world.store.library.publish(upload.id, 100)
    world.housekeeping.forget_unsynced()
    assert world.files() == {kept.id}
    world.send(upload, 0, 100)
    assert state_of(world, upload) is UploadState.COMPLETE


def test_ended_uploads_are_remembered_and_then_forgotten(world: World) -> None:
    upload = world.create(1)
    world.service.cancel(ME, upload.id)
    world.later(seconds=REMEMBER_GONE.total_seconds() - 1)
    world.housekeeping.forget()
    assert state_of(world, upload) is UploadState.CANCELLED
    world.later(seconds=1)
    world.housekeeping.forget()
    with pytest.raises(UploadNotFound):
        world.records.get(upload.id)


def test_videos_and_running_uploads_are_never_forgotten(world: World) -> None:
    video, running = world.completed(), world.create(1)
    world.now += REMEMBER_GONE + timedelta(days=1)
    world.housekeeping.forget()
    assert state_of(world, video) is UploadState.COMPLETE
    assert state_of(world, running) is UploadState.RECEIVING


def test_digests_of_videos_are_computed(world: World) -> None:
    videos = [world.completed(length) for length in (1, 100, 3000)]
    world.housekeeping.digest()
    for video in videos:
        expected = hashlib.sha256(world.content(video)).hexdigest()
        assert world.records.get(video.id).sha256 == expected
    assert world.records.without_sha256(10) == []


def tell_crc32c(world: World, video: Upload) -> None:
    """As of a video whose chunks all had one."""
    world.records._set(video.id, crc32c=in_base64(crc32c(world.content(video))))


@pytest.mark.folders
def test_a_file_with_another_checksum_gets_its_digest_when_nothing_arrives(world: World) -> None:
    video, running = world.completed(100), world.create(100)
    tell_crc32c(world, video)
    for _ in range(3):
        assert world.housekeeping.digest() == 0
        world.later(minutes=3)
        world.send_next(running, 0, 10)
    world.later(minutes=6)
    assert world.housekeeping.digest() == 1


@pytest.mark.folders
def test_a_file_that_is_complete_already_has_arrived_too(world: World) -> None:
    videos = [world.completed(100)]
    world.later(minutes=4)
    videos.append(world.completed(100))
    for video in videos:
        tell_crc32c(world, video)
    world.later(minutes=2)
    assert world.housekeeping.digest() == 0
    world.later(minutes=4)
    assert world.housekeeping.digest() == 2


@pytest.mark.folders
def test_after_each_file_it_is_seen_whether_something_arrives(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    videos = [world.completed(100) for _ in range(3)]
    for video in videos:
        tell_crc32c(world, video)
    running = world.create(100)
    world.later(minutes=6)
    set_sha256 = world.records.set_sha256

    def set_and_send(upload_id: UploadId, digest: str) -> None:
        set_sha256(upload_id, digest)
        world.send_next(running, 0, 10)

    monkeypatch.setattr(world.records, "set_sha256", set_and_send)
    assert world.housekeeping.digest() == 1


@pytest.mark.folders
def test_bytes_that_changed_on_the_disk_get_no_digest(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    video = world.completed(1000)
    tell_crc32c(world, video)
    with (world.videos / video.id).open("r+b") as file:
        file.seek(500)
        byte = file.read(1)[0]
        file.seek(500)
        file.write(bytes([byte ^ 1]))
    world.later(minutes=6)
    assert [world.housekeeping.digest() for _ in range(2)] == [1, 0]
    assert world.records.get(video.id).sha256 is None
    (line,) = caplog.records
    assert "CRC32C differs" in line.getMessage()


@pytest.mark.folders
def test_a_file_with_another_checksum_waits_for_its_digest_a_day_at_most(world: World) -> None:
    video, running = world.completed(100), world.create(100)
    tell_crc32c(world, video)
    world.later(days=1)
    world.send_next(running, 0, 10)
    assert world.housekeeping.digest() == 1


def test_a_digest_that_is_wanted_is_computed_at_once(world: World) -> None:
    video = world.completed(100)
    tell_crc32c(world, video)
    world.create(100)
    assert world.housekeeping.digest() == 0
    world.records.want_sha256([video.id])
    assert [world.housekeeping.digest() for _ in range(2)] == [1, 0]
    world.records.want_sha256([video.id])
    assert world.housekeeping.digest() == 0


def test_a_known_digest_is_not_computed_again(world: World) -> None:
    video = world.completed()
    world.records.set_sha256(video.id, "told by the client")
    world.housekeeping.digest()
    assert world.records.get(video.id).sha256 == "told by the client"


def test_an_unreadable_video_does_not_block_the_others(world: World) -> None:
    world.housekeeping.digest_batch = 1
    lost, good = world.completed(), world.completed()
    world.lose(lost)
    for _ in range(3):
        world.housekeeping.digest()
    assert world.records.get(lost.id).sha256 is None
    assert world.records.get(good.id).sha256 is not None


@pytest.mark.folders
def test_a_truncated_video_gets_no_digest(world: World, caplog: pytest.LogCaptureFixture) -> None:
    video = world.completed(1000)
    os.truncate(world.videos / video.id, 999)
    for _ in range(2):
        world.housekeeping.digest()
    assert world.records.get(video.id).sha256 is None
    (line,) = caplog.records
    assert "999 of 1000 bytes" in line.getMessage()


def test_activity_between_the_check_and_the_step_saves_an_upload(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = world.create(100)
    world.later(days=8)
    listed = world.records.to_expire

    def list_then_receive(*arguments: object, **names: object) -> list[Upload]:
        found = listed(*arguments, **names)  # type: ignore[arg-type]
        world.records.add_received(upload, ByteRange(0, 1), world.now)
        return found

    monkeypatch.setattr(world.records, "to_expire", list_then_receive)
    world.housekeeping.expire()
    assert state_of(world, upload) is UploadState.RECEIVING
    assert world.files() == {upload.id}
