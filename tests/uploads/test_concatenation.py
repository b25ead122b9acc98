"""One file made of several partial uploads."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, permutations
from threading import Event

import pytest

from app.core.errors import (
    DigestMismatch,
    InvalidRequest,
    NoRoom,
    ServerBusy,
    TooLarge,
    UploadComplete,
    UploadGone,
    UploadNotFound,
)
from app.core.lifecycle import UploadState
from app.core.upload import Upload, UploadKind, UploadPart
from app.storage.local import folder
from app.uploads.service import NewUpload
from tests.storage.sources import pattern
from tests.uploads.world import EXPIRY, MAX_LENGTH, ME, OTHERS, World, eventually

CUTS = (0, 100, 350, 1000)
"""Starts and ends of the three parts of a file."""


def three_parts(world: World) -> list[Upload]:
    """Three parts without bytes."""
    return [world.part(end - start) for start, end in pairwise(CUTS)]


def fill(world: World, parts: list[Upload], number: int) -> Upload:
    """The part after all of its bytes have arrived."""
    return world.send_next(parts[number], CUTS[number], CUTS[number + 1])


def is_complete(world: World, upload: Upload) -> bool:
    return world.state(upload) is UploadState.COMPLETE


def test_complete_parts_become_the_file_at_once(world: World) -> None:
    parts = [world.held(0, 100), world.held(100, 350), world.held(350, 1000)]
    whole = world.whole_of(*parts)
    assert (whole.state, whole.length, whole.offset) == (UploadState.COMPLETE, 1000, 1000)
    assert whole.kind is UploadKind.CONCATENATION
    assert world.content(whole) == pattern(0, 1000)
    assert world.completed_count == 1
    assert list(world.library.all(ME)) == [whole]


def test_the_parts_expire_and_free_their_space(world: World) -> None:
    parts = [world.held(0, 100), world.held(100, 350)]
    whole = world.whole_of(*parts)
    assert [world.state(part) for part in parts] == [UploadState.EXPIRED] * 2
    assert world.files() == {whole.id}
    assert world.service.active(ME, 10) == []


def test_a_single_part_never_becomes_a_video(world: World) -> None:
    part = world.held(0, 100)
    world.later(minutes=10)
    world.housekeeping.sweep()
    assert world.state(part) is UploadState.HELD
    assert (world.completed_count, world.files()) == (0, {part.id})


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_unfinished_parts_become_the_file_with_the_last_of_them(
    world: World, order: tuple[int, ...]
) -> None:
    parts = three_parts(world)
    whole = world.whole_of(*parts)
    assert (whole.state, whole.length) == (UploadState.RECEIVING, None)
    for number in order:
        assert world.completed_count == 0
        assert fill(world, parts, number).state is UploadState.HELD
    eventually(lambda: is_complete(world, whole))
    assert world.content(whole) == pattern(0, 1000)
    eventually(lambda: world.files() == {whole.id})


@pytest.mark.parametrize("ready", [[0], [2], [0, 1], [1, 2]])
def test_some_parts_may_be_complete_before(world: World, ready: list[int]) -> None:
    parts = three_parts(world)
    for number in ready:
        fill(world, parts, number)
    whole = world.whole_of(*parts)
    assert whole.state is UploadState.RECEIVING
    for number in {0, 1, 2} - {*ready}:
        fill(world, parts, number)
    eventually(lambda: is_complete(world, whole))
    assert world.content(whole) == pattern(0, 1000)


def test_parts_across_file_systems_become_the_file(world_on_two_disks: World) -> None:
    world = world_on_two_disks
    parts = [world.held(0, 100), world.held(100, 350), world.held(350, 1000)]
    whole = world.whole_of(*parts)
    assert world.content(whole) == pattern(0, 1000)
    assert world.files() == {whole.id}
    assert not list(world.staging.iterdir())


def test_the_order_of_the_parts_is_that_of_the_request(world: World) -> None:
    first, second = world.held(0, 100), world.held(100, 350)
    whole = world.whole_of(second, first)
    assert world.content(whole) == pattern(100, 350) + pattern(0, 100)


def test_a_part_may_be_used_twice(world: World) -> None:
    part = world.held(0, 100)
    whole = world.whole_of(part, part)
    assert world.content(whole) == pattern(0, 100) * 2
    assert world.state(part) is UploadState.EXPIRED


def test_empty_parts_make_an_empty_file(world: World) -> None:
    whole = world.whole_of(world.held(0, 0), world.held(0, 0))
    assert (whole.state, world.content(whole)) == (UploadState.COMPLETE, b"")


def test_parts_may_be_larger_than_a_block(world: World) -> None:
    half = MAX_LENGTH // 2
    whole = world.whole_of(world.held(0, half), world.held(half, 2 * half))
    found, expected = world.content(whole), pattern(0, 2 * half)
    assert found == expected


def test_the_references_are_kept_as_written(world: World) -> None:
    first, second = world.held(0, 10), world.held(10, 20)
    parts = [
        UploadPart(second.id, f"https://example.org/tus/{second.id}"),
        UploadPart(first.id, first.id),
    ]
    new = NewUpload(scope=ME, filename="a.mp4", length=None, metadata="filename YQ==")
    whole = world.service.concatenate(new, parts)
    assert world.service.parts(whole) == parts
    assert (whole.metadata, whole.filename) == ("filename YQ==", "a.mp4")
    assert world.service.parts(first) == []


def test_the_same_request_again_gives_the_same_file(world: World) -> None:
    parts = three_parts(world)
    waiting = world.whole_of(*parts)
    assert world.whole_of(*parts) == waiting
    for number in range(3):
        fill(world, parts, number)
    eventually(lambda: is_complete(world, waiting))
    assert world.whole_of(*parts).id == waiting.id, "also after its parts have expired"
    assert world.whole_of(*parts).state is UploadState.COMPLETE
    eventually(lambda: world.completed_count == 1)


@pytest.mark.parametrize("is_published", [False, True])
def test_the_same_parts_under_other_names_make_another_file(
    world: World, is_published: bool
) -> None:
    """Even after the parts have expired: its bytes are then those of the first file."""
    parts = [world.held(0, 100), world.held(100, 350) if is_published else world.part(250)]
    paths = [UploadPart(part.id, f"/tus/{part.id}") for part in parts]
    urls = [UploadPart(part.id, f"https://example.org/tus/{part.id}") for part in parts]
    named = NewUpload(scope=ME, filename="a.mp4", length=None, metadata="filename YQ==")
    other = replace(named, metadata="filename YQ==,note Yg==")
    asked = [(named, paths), (named, urls), (other, paths), (replace(other, filename="b"), paths)]
    wholes = [world.service.concatenate(*request) for request in asked]
    if not is_published:
        world.send_next(parts[1], 100, 350)
        eventually(lambda: all(is_complete(world, whole) for whole in wholes))
    assert len({whole.id for whole in wholes}) == 4
    assert [world.content(whole) for whole in wholes] == [pattern(0, 350)] * 4
    assert [world.service.parts(whole) for whole in wholes] == [paths, urls, paths, paths]
    assert [whole.metadata for whole in wholes] == [new.metadata for new, _ in asked]
    assert [world.service.concatenate(*request).id for request in asked] == [w.id for w in wholes]
    world.library.delete(ME, wholes[0].id)
    assert world.content(wholes[1]) == pattern(0, 350)
    eventually(lambda: world.files() == {whole.id for whole in wholes[1:]})


def test_a_file_under_another_name_is_made_across_two_disks(world_on_two_disks: World) -> None:
    world = world_on_two_disks
    parts = [UploadPart(world.held(0, 100).id, "a"), UploadPart(world.held(100, 350).id, "b")]
    for name in ("a.mp4", "b.mp4"):
        whole = world.service.concatenate(NewUpload(scope=ME, filename=name, length=None), parts)
        assert (whole.filename, world.content(whole)) == (name, pattern(0, 350))


def test_a_second_file_of_parts_is_gone_after_the_first_was_deleted(world: World) -> None:
    part = world.held(0, 10)
    world.library.delete(ME, world.whole_of(part).id)
    new = NewUpload(scope=ME, filename="other.mp4", length=None)
    with pytest.raises(UploadGone):
        world.service.concatenate(new, [UploadPart(part.id, "")])


def test_the_same_parts_in_another_order_are_another_file(world: World) -> None:
    first, second = world.part(10), world.part(10)
    assert world.whole_of(first, second).id != world.whole_of(second, first).id


def test_a_cancelled_concatenation_can_be_requested_again(world: World) -> None:
    parts = three_parts(world)
    cancelled = world.whole_of(*parts)
    world.service.cancel(ME, cancelled.id)
    again = world.whole_of(*parts)
    assert again.id != cancelled.id
    for number in range(3):
        fill(world, parts, number)
    eventually(lambda: is_complete(world, again))


def test_a_deleted_file_cannot_be_made_again_of_parts_that_are_gone(world: World) -> None:
    part = world.held(0, 10)
    whole = world.whole_of(part)
    world.library.delete(ME, whole.id)
    with pytest.raises(UploadGone):
        world.whole_of(part)
    with pytest.raises(UploadGone):
        world.service.get(ME, whole.id)


def test_only_partial_uploads_are_parts(world: World) -> None:
    part, whole = world.part(10), world.whole_of(world.part(10))
    for other in (world.create(10), world.completed(10), whole):
        with pytest.raises(InvalidRequest):
            world.whole_of(part, other)
    with pytest.raises(InvalidRequest):
        world.whole_of()


def test_parts_of_other_owners_are_not_found(world: World) -> None:
    part = world.held(0, 10)
    stranger = NewUpload(scope=OTHERS, filename="a.mp4", length=None)
    with pytest.raises(UploadNotFound):
        world.service.concatenate(stranger, [UploadPart(part.id, "")])
    world.whole_of(part)
    with pytest.raises(UploadNotFound):
        world.service.concatenate(stranger, [UploadPart(part.id, "")])


def test_ended_parts_are_gone(world: World) -> None:
    part = world.held(0, 10)
    world.service.cancel(ME, part.id)
    with pytest.raises(UploadGone):
        world.whole_of(part)


@pytest.mark.parametrize("is_held", [True, False])
def test_cancelling_a_part_ends_the_file_that_waits_for_it(world: World, is_held: bool) -> None:
    parts = three_parts(world)
    whole = world.whole_of(*parts)
    if is_held:
        fill(world, parts, 0)
    world.service.cancel(ME, parts[0].id)
    with pytest.raises(UploadGone):
        world.chunks.stop_writer(world.service.get(ME, whole.id))
    assert world.state(whole) is UploadState.EXPIRED
    assert [fill(world, parts, n).state for n in (1, 2)] == [UploadState.HELD] * 2


@pytest.mark.every_store
def test_a_part_of_a_file_that_is_being_published_cannot_be_cancelled(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request for the file may have been answered."""
    monkeypatch.setattr(world.completion, "short_bytes", 0)
    monkeypatch.setattr(world.completion, "answer_within_seconds", 0.05)
    assemble, may_go_on = world.store.library.concatenate, Event()

    def assemble_late(key: str, parts: Sequence[tuple[str, int]]) -> None:
        may_go_on.wait(120)
        assemble(key, parts)

    monkeypatch.setattr(world.store.library, "concatenate", assemble_late)
    parts = [world.held(0, 10), world.held(10, 30)]
    whole = world.whole_of(*parts)
    with pytest.raises(ServerBusy):
        world.service.cancel(ME, parts[0].id)
    may_go_on.set()
    eventually(lambda: world.state(whole) is UploadState.COMPLETE)
    assert world.content(whole) == pattern(0, 30)


def test_two_files_of_one_part_both_get_its_bytes(world: World) -> None:
    shared, last = world.held(0, 100), world.part(50)
    first = world.whole_of(shared)
    # It has expired, and no other file can be made of it.
    with pytest.raises(UploadGone):
        world.whole_of(shared, last)
    assert is_complete(world, first)

    shared, one, other = world.held(0, 100), world.part(50), world.part(60)
    wholes = [world.whole_of(shared, one), world.whole_of(shared, other)]
    world.send_next(one, 100, 150)
    eventually(lambda: is_complete(world, wholes[0]))
    assert world.state(shared) is UploadState.HELD, "the second file waits for it"
    world.send_next(other, 100, 160)
    eventually(lambda: is_complete(world, wholes[1]))
    eventually(lambda: world.state(shared) is UploadState.EXPIRED)
    assert [world.content(whole) for whole in wholes] == [pattern(0, 150), pattern(0, 160)]


def test_deferred_lengths_may_be_declared_late(world: World) -> None:
    first, second = world.part(None), world.part(None)
    whole = world.whole_of(first, second)
    world.send_next(first, 0, 100)
    world.chunks.declare_length(world.service.get(ME, first.id), 100)
    world.chunks.declare_length(world.service.get(ME, second.id), 200)
    world.send_next(second, 100, 300)
    eventually(lambda: is_complete(world, whole))
    assert world.content(whole) == pattern(0, 300)


def test_parts_too_long_in_total_are_refused(world: World) -> None:
    parts = [world.part(MAX_LENGTH // 2 + 1) for _ in range(2)]
    with pytest.raises(TooLarge):
        world.whole_of(*parts)
    assert {upload.kind for upload in world.service.active(ME, 10)} == {UploadKind.PARTIAL}


def test_parts_that_turn_out_too_long_in_total_make_no_file(world: World) -> None:
    half = MAX_LENGTH // 2 + 1
    parts = [world.part(None), world.part(None)]
    whole = world.whole_of(*parts)
    for part in parts:
        world.send_next(part, 0, half)
        world.chunks.declare_length(world.service.get(ME, part.id), half)
    with pytest.raises(TooLarge):
        world.chunks.stop_writer(whole)
    assert world.state(whole) is UploadState.RECEIVING
    assert whole.id not in world.files()


@pytest.mark.folders
def test_without_space_the_parts_stay(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [world.held(0, 100), world.held(100, 350)]
    with monkeypatch.context() as patch:
        patch.setattr(folder, "KEPT_FREE_BYTES", 1 << 62)
        with pytest.raises(NoRoom):
            world.whole_of(*parts)
    assert world.files() == {part.id for part in parts}
    assert world.content(world.whole_of(*parts)) == pattern(0, 350)


@pytest.mark.folders
def test_without_space_the_last_part_is_still_accepted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = three_parts(world)
    whole = world.whole_of(*parts)
    with monkeypatch.context() as patch:
        patch.setattr(folder, "KEPT_FREE_BYTES", 1 << 62)
        assert [fill(world, parts, n).state for n in range(3)] == [UploadState.HELD] * 3
    assert world.content(world.chunks.stop_writer(whole)) == pattern(0, 1000)


def test_lost_bytes_of_a_part_end_the_file(world: World) -> None:
    parts = [world.held(0, 100), world.held(100, 350)]
    world.lose(parts[1])
    with pytest.raises(UploadGone):
        world.whole_of(*parts)
    assert world.completed_count == 0
    assert world.files() == {parts[0].id}


def test_unused_held_parts_expire(world: World) -> None:
    parts = [world.held(0, 100), world.part(10)]
    world.later(seconds=EXPIRY.total_seconds())
    world.housekeeping.expire()
    assert [world.state(part) for part in parts] == [UploadState.EXPIRED] * 2
    assert world.files() == set()


def test_parts_of_one_file_live_as_long_as_any_of_them_is_active(world: World) -> None:
    parts = three_parts(world)
    whole, alone = world.whole_of(*parts), world.held(0, 10)
    fill(world, parts, 0)
    for day in range(5, 30, 5):
        world.later(days=5)
        world.send_next(parts[2], 350 + day, 355 + day)
        world.housekeeping.expire()
    assert world.state(alone) is UploadState.EXPIRED
    assert [world.state(upload) for upload in (whole, *parts)] == [
        UploadState.RECEIVING,
        UploadState.HELD,
        UploadState.RECEIVING,
        UploadState.RECEIVING,
    ]
    world.later(days=8)
    world.housekeeping.expire()
    assert {world.state(upload) for upload in (whole, *parts)} == {UploadState.EXPIRED}
    assert world.files() == set()


def test_a_removed_part_delays_nothing(world: World) -> None:
    parts = three_parts(world)
    whole = world.whole_of(*parts)
    world.records.remove(parts[0].id)
    fill(world, parts, 1)
    assert world.state(whole) is UploadState.EXPIRED
    world.later(days=8)
    world.housekeeping.expire()
    assert {world.state(part) for part in parts[1:]} == {UploadState.EXPIRED}


def test_a_complete_concatenation_cannot_be_cancelled(world: World) -> None:
    whole = world.whole_of(world.held(0, 10))
    with pytest.raises(UploadComplete):
        world.service.cancel(ME, whole.id)


def test_the_digest_of_the_whole_is_checked(world: World) -> None:
    parts = [world.held(0, 100), world.held(100, 350)]
    digest = hashlib.sha256(pattern(0, 350)).hexdigest()
    whole = world.whole_of(*parts, repr_digest=f"sha256:{digest}")
    assert (whole.state, whole.sha256) == (UploadState.COMPLETE, digest)


def test_a_wrong_digest_ends_the_whole_and_keeps_the_parts(world: World) -> None:
    parts = [world.held(0, 100), world.held(100, 350)]
    with pytest.raises(DigestMismatch):
        world.whole_of(*parts, repr_digest=f"sha256:{'00' * 32}")
    assert world.files() == {part.id for part in parts}
    assert world.content(world.whole_of(*parts)) == pattern(0, 350)
