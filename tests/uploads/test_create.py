"""Which upload a client gets for its file."""

from dataclasses import replace
from pathlib import Path

import pytest

from app.core.errors import (
    InvalidRequest,
    NoRoom,
    ServerBusy,
    StorageFailed,
    TooLarge,
    UploadConflict,
    UploadGone,
    UploadNotFound,
)
from app.core.lifecycle import UploadState
from app.core.upload import Upload, UploadId
from app.storage.local import folder
from app.storage.local.folder import Folder
from app.uploads.service import NewUpload
from tests.storage.sources import body, pattern
from tests.uploads.processes import shared_world
from tests.uploads.world import MAX_LENGTH, ME, OTHERS, World, in_threads


@pytest.mark.folders
def test_a_new_upload_has_its_space_and_no_bytes(world: World) -> None:
    upload = world.create(1000, client_key="k")
    assert (upload.length, upload.offset, upload.state) == (1000, 0, UploadState.RECEIVING)
    assert (world.staging / upload.id).stat().st_size == 1000
    assert world.service.get(ME, upload.id) == upload


def test_a_known_client_key_returns_the_same_upload(world: World) -> None:
    first = world.create(1000, client_key="k")
    again, is_new = world.service.create(
        NewUpload(scope=ME, filename="b.mp4", length=1000, client_key="k")
    )
    assert (again, is_new) == (first, False)
    assert world.files() == {first.id}


def test_a_known_client_key_with_another_length_is_a_conflict(world: World) -> None:
    world.create(1000, client_key="k")
    with pytest.raises(UploadConflict):
        world.create(1001, client_key="k")
    with pytest.raises(UploadConflict):
        world.service.find(ME, "k", 1001)


def test_a_key_of_an_ended_upload_is_gone(world: World) -> None:
    upload = world.create(1000, client_key="k")
    world.service.cancel(ME, upload.id)
    with pytest.raises(UploadGone):
        world.create(1000, client_key="k")
    with pytest.raises(UploadGone):
        world.service.find(ME, "k", 1000)


def test_an_upload_is_found_by_its_key(world: World) -> None:
    upload = world.create(1000, client_key="k")
    assert world.service.find(ME, "k", 1000) == upload
    assert world.service.find(ME, "other", 1000) is None
    assert world.service.find(OTHERS, "k", 1000) is None


def test_a_file_is_recognised_by_its_fingerprint(world: World) -> None:
    upload = world.create(1000, client_key="k", fingerprint="a.mp4:1000:5")
    world.send(upload, 0, 400)
    again = world.create(1000, client_key="after-a-reload", fingerprint="a.mp4:1000:5")
    assert again.id == upload.id
    assert again.offset == 400
    assert world.create(1001, fingerprint="a.mp4:1000:5").id != upload.id


def test_a_complete_file_need_not_be_sent_again(world: World) -> None:
    upload = world.create(10, fingerprint="f")
    world.send(upload, 0, 10)
    assert world.create(10, fingerprint="f").state is UploadState.COMPLETE


def test_a_cancelled_file_starts_over(world: World) -> None:
    upload = world.create(10, fingerprint="f")
    world.service.cancel(ME, upload.id)
    assert world.create(10, fingerprint="f").id != upload.id


@pytest.mark.parametrize(
    ("length", "filename", "key", "error"),
    [
        (MAX_LENGTH + 1, "a.mp4", "k", TooLarge),
        (-1, "a.mp4", "k", InvalidRequest),
        (1, "a\0.mp4", "k", InvalidRequest),
        (1, "a.mp4", "../k", InvalidRequest),
        (1, "a.mp4", "", InvalidRequest),
    ],
)
def test_a_file_refused_by_the_policy_leaves_nothing(
    world: World, length: int, filename: str, key: str, error: type[Exception]
) -> None:
    new = NewUpload(scope=ME, filename=filename, length=length, client_key=key)
    with pytest.raises(error):
        world.service.create(new)
    assert world.service.active(ME, 10) == []
    assert world.files() == set()


@pytest.mark.parametrize("length", [1, None])
@pytest.mark.parametrize("fingerprint", ["", "f" * 201, "a\nb"])
def test_a_fingerprint_is_checked_even_without_a_length(
    world: World, fingerprint: str, length: int | None
) -> None:
    new = NewUpload(scope=ME, filename="a.mp4", length=length, fingerprint=fingerprint)
    with pytest.raises(InvalidRequest):
        world.service.create(new)
    assert world.files() == set()


@pytest.mark.folders
def test_without_space_nothing_is_recorded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "KEPT_FREE_BYTES", 1 << 62)  # More than any disk has.
    with pytest.raises(NoRoom):
        world.create(1000, client_key="k")
    assert world.records.find(ME.project or "", "k") is None


def test_concurrent_creations_with_one_key_get_one_upload(world: World) -> None:
    outcomes = in_threads(8, lambda _: world.create(1000, client_key="k"))
    uploads = {outcome.id for outcome in outcomes if isinstance(outcome, Upload)}
    assert len(uploads) == 1
    assert [outcome for outcome in outcomes if not isinstance(outcome, Upload)] == []
    assert world.files() == uploads


@pytest.mark.parametrize("has_ended_before", [False, True])
def test_concurrent_creations_of_one_file_get_one_upload_and_one_reservation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_ended_before: bool
) -> None:
    reserved: list[str] = []
    with shared_world(tmp_path) as world:
        if has_ended_before:
            world.service.cancel(ME, world.create(1000, fingerprint="f").id)
        reserve = world.store.staging.reserve

        def count(key: str, length: int, *, allocates: bool) -> None:
            reserved.append(key)
            reserve(key, length, allocates=allocates)

        monkeypatch.setattr(world.store.staging, "reserve", count)
        outcomes = in_threads(16, lambda _: world.create(1000, fingerprint="f"))
    uploads = {outcome.id for outcome in outcomes if isinstance(outcome, Upload)}
    assert [outcome for outcome in outcomes if not isinstance(outcome, Upload)] == []
    assert (len(uploads), len(reserved)) == (1, 1)
    assert world.files() == uploads


def test_a_file_sent_in_chunks_and_one_sent_whole_never_share_a_key(world: World) -> None:
    """One that has just begun must not replace the other, which has all of its bytes."""
    sending = world.create(1000, fingerprint="f")
    file = world.whole.receive(body(0, 1000), scope=ME, filename="a.mp4")
    whole = world.whole.keep(replace(file, fingerprint="f"))
    assert whole.id != sending.id
    assert whole.state is UploadState.COMPLETE


def test_uploads_of_other_owners_are_not_found(world: World) -> None:
    upload = world.create(1000)
    with pytest.raises(UploadNotFound):
        world.service.get(OTHERS, upload.id)
    with pytest.raises(UploadNotFound):
        world.service.cancel(OTHERS, upload.id)
    assert world.service.active(OTHERS, 10) == []
    assert world.service.active(ME, 10) == [upload]


def test_an_unknown_upload_is_not_found(world: World) -> None:
    with pytest.raises(UploadNotFound):
        world.service.get(ME, UploadId("f" * 32))


@pytest.mark.folders
def test_a_link_in_place_of_a_new_file_is_refused(world: World) -> None:
    world.create(1)
    victim = world.staging.parent / "victim"
    victim.write_bytes(b"precious")
    number = int(world.create(1).id, 16)
    (world.staging / f"{number + 1:032x}").symlink_to(victim)
    with pytest.raises(StorageFailed):
        world.create(100)
    assert victim.read_bytes() == b"precious"


def test_a_request_that_fails_late_takes_no_upload_away_that_others_have_filled(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client lost patience and repeated it; the first request hears of its failure later."""
    reserve, sent = world.store.staging.reserve, list[Upload]()

    def reserve_unheard(key: str, length: int, *, allocates: bool) -> None:
        monkeypatch.setattr(world.store.staging, "reserve", reserve)
        reserve(key, length, allocates=allocates)
        sent.append(world.send(world.create(1000, client_key="k"), 0, 400))
        raise ServerBusy("The database cannot be reached.")

    monkeypatch.setattr(world.store.staging, "reserve", reserve_unheard)
    with pytest.raises(ServerBusy):
        world.create(1000, client_key="k")
    assert world.create(1000, client_key="k") == sent[0]
    assert world.send(sent[0], 400, 1000).state is UploadState.COMPLETE


@pytest.mark.folders
def test_a_request_without_space_takes_no_file_away_that_others_have_filled(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocate, sent = Folder.allocate_open, list[Upload]()

    def allocate_late(folder: Folder, descriptor: int, length: int) -> None:
        monkeypatch.setattr(Folder, "allocate_open", allocate)
        sent.append(world.send(world.create(1000, client_key="k"), 0, 400))
        raise NoRoom("The disk is full.")

    monkeypatch.setattr(Folder, "allocate_open", allocate_late)
    with pytest.raises(NoRoom):
        world.create(1000, client_key="k")
    assert world.send(sent[0], 400, 1000).state is UploadState.COMPLETE
    assert world.content(sent[0]) == pattern(0, 1000)
