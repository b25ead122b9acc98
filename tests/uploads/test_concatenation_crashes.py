"""A process killed between any two steps of a concatenation loses nothing."""

import hashlib

import pytest

from app.core.errors import UploadGone
from app.core.lifecycle import UploadState
from app.core.ranges import ByteRange
from app.core.upload import Upload
from app.uploads.completion import Concatenation
from app.uploads.housekeeping import STUCK_AFTER
from tests.storage.sources import body, pattern
from tests.uploads.world import EXPIRY, LIMITS, World, eventually


def arrived(world: World, part: Upload, start: int, end: int) -> Upload:
    """The part with its bytes recorded by a request that was killed right then."""
    span = ByteRange(0, end - start)
    with world.store.staging.writer(part.id, span, LIMITS) as writer:
        writer.write(span, body(start, end), lambda _: None)
        with writer.recording() as rows:
            held = world.records.add_received(part, span, world.now, rows=rows)
    assert held.state is UploadState.HELD
    return held


def steps(world: World) -> Concatenation:
    """The steps that a process takes until it is killed."""
    return Concatenation(world.ctx, world.records, world.store)


def waiting(world: World) -> tuple[Upload, list[Upload]]:
    """A concatenation whose parts are complete, which no one has noticed; and its parts."""
    first, second = world.held(0, 100), world.part(250)
    whole = world.whole_of(first, second)
    return whole, [first, arrived(world, second, 100, 350)]


def swept(world: World) -> None:
    """The background worker sweeps once the other process must be dead."""
    world.later(seconds=STUCK_AFTER.total_seconds())
    world.housekeeping.finish_stuck()


def assert_is_published(world: World, whole: Upload) -> None:
    assert world.state(whole) is UploadState.COMPLETE
    assert world.content(whole) == pattern(0, 350)
    assert world.completed_count == 1
    assert whole.id in world.files()


@pytest.mark.parametrize("who", ["who asks about the file", "who asks about the part", "who asks"])
def test_a_kill_before_completion_was_noticed_is_recovered(world: World, who: str) -> None:
    whole, parts = waiting(world)
    if who == "who asks about the file":
        world.chunks.stop_writer(whole)
    elif who == "who asks about the part":
        world.chunks.stop_writer(parts[1])
    else:
        world.whole_of(*parts)
    eventually(lambda: world.state(whole) is UploadState.COMPLETE)
    eventually(lambda: world.files() == {whole.id})
    assert_is_published(world, whole)


def test_a_kill_after_reserving_space_is_recovered(world: World) -> None:
    whole, _ = waiting(world)
    world.store.staging.reserve(whole.id, 350)
    world.chunks.stop_writer(whole)
    assert_is_published(world, whole)
    assert world.files() == {whole.id}


def test_a_kill_after_recording_completion_is_recovered(world: World) -> None:
    whole, _ = waiting(world)
    assert steps(world).begin(whole).state is UploadState.VERIFYING
    swept(world)
    assert_is_published(world, whole)
    assert world.files() == {whole.id}


def test_a_kill_during_assembly_is_recovered(world: World) -> None:
    whole, parts = waiting(world)
    steps(world).begin(whole)
    world.store.library.concatenate(whole.id, [(parts[0].id, 100)])
    swept(world)
    assert_is_published(world, whole)


def test_a_kill_between_assembly_and_publication_is_recovered(world: World) -> None:
    whole, _ = waiting(world)
    begun = steps(world).begin(whole)
    steps(world).assemble(begun)
    swept(world)
    assert_is_published(world, whole)


def test_a_kill_between_publication_and_its_record_is_recovered(world: World) -> None:
    whole, _ = waiting(world)
    begun = steps(world).begin(whole)
    steps(world).assemble(begun)
    world.store.library.publish(whole.id, 350)
    swept(world)
    assert_is_published(world, whole)
    assert world.files() == {whole.id}


def test_a_kill_before_releasing_the_parts_is_recovered(world: World) -> None:
    whole, parts = waiting(world)
    begun = steps(world).begin(whole)
    steps(world).assemble(begun)
    world.store.library.publish(whole.id, 350)
    world.records.move(whole.id, UploadState.COMPLETE, world.now)
    assert world.whole_of(*parts).id == whole.id
    world.later(seconds=EXPIRY.total_seconds())
    world.housekeeping.sweep()
    assert world.files() == {whole.id}
    assert world.content(whole) == pattern(0, 350)


def test_a_kill_while_releasing_the_parts_is_recovered(world: World) -> None:
    whole, parts = waiting(world)
    steps(world).begin(whole)
    world.completion.publish(world.records.get(whole.id))
    steps(world).release(world.records.get(whole.id))
    assert [world.state(part) for part in parts] == [UploadState.EXPIRED] * 2
    assert world.files() == {whole.id}


def test_space_reserved_too_late_does_not_replace_the_file(world: World) -> None:
    """One process has checked the parts and then sleeps while another publishes the file."""
    whole, _ = waiting(world)
    begun = steps(world).begin(whole)
    world.completion.publish(begun)
    world.store.staging.reserve(whole.id, 350)
    assert not (world.staging / whole.id).exists()
    (world.staging / whole.id).write_bytes(bytes(350))
    assert world.completion.publish(begun).state is UploadState.COMPLETE
    assert_is_published(world, whole)
    assert world.files() == {whole.id}


def test_space_reserved_too_late_does_not_fail_the_digest(world: World) -> None:
    """Its parts are being released already, so it could not be filled again."""
    first, second = world.held(0, 100), world.part(250)
    digest = f"sha256:{hashlib.sha256(pattern(0, 350)).hexdigest()}"
    whole = world.whole_of(first, second, repr_digest=digest)
    arrived(world, second, 100, 350)
    begun = steps(world).begin(whole)
    steps(world).assemble(begun)
    world.store.library.publish(whole.id, 350)
    (world.staging / whole.id).write_bytes(bytes(350))
    world.store.library.delete(first.id)
    assert world.completion.publish(begun).state is UploadState.COMPLETE
    assert_is_published(world, whole)


def test_a_stale_record_does_not_end_a_file_that_has_its_bytes(world: World) -> None:
    stale, parts = waiting(world)
    begun = steps(world).begin(stale)
    steps(world).assemble(begun)
    world.records.move(parts[0].id, UploadState.CANCELLED, world.now)
    assert steps(world).begin(stale).state is UploadState.VERIFYING


def test_a_stale_record_of_a_published_file_is_refreshed(world: World) -> None:
    """Its parts have expired, which is no reason to end it."""
    stale, _ = waiting(world)
    world.chunks.stop_writer(stale)
    assert world.chunks.stop_writer(stale).state is UploadState.COMPLETE
    assert steps(world).begin(stale).state is UploadState.COMPLETE
    assert_is_published(world, stale)


def test_a_part_stays_while_another_file_made_of_it_is_published(world: World) -> None:
    shared, other = world.held(0, 100), world.part(60)
    second = world.whole_of(shared, other)
    arrived(world, other, 100, 160)
    begun = steps(world).begin(second)
    first = world.whole_of(shared, world.held(100, 150))
    assert world.content(first) == pattern(0, 150)
    assert world.state(shared) is UploadState.HELD
    assert world.content(world.completion.finish(begun)) == pattern(0, 160)
    assert world.files() == {first.id, second.id}


def test_idle_parts_of_a_file_that_is_being_published_stay(world: World) -> None:
    first, second = world.held(0, 100), world.held(100, 350)
    world.later(seconds=EXPIRY.total_seconds() - 1)
    late = world.part(50)
    whole = world.whole_of(first, second, late)
    arrived(world, late, 350, 400)
    begun = steps(world).begin(whole)
    world.later(seconds=1)
    world.housekeeping.expire()
    assert world.content(world.completion.finish(begun)) == pattern(0, 400)


def test_a_whole_cancelled_while_its_space_was_reserved_leaves_nothing(world: World) -> None:
    whole, parts = waiting(world)
    world.records.move(whole.id, UploadState.CANCELLED, world.now)
    with pytest.raises(UploadGone):
        steps(world).begin(whole)
    assert world.files() == {part.id for part in parts}


def test_a_restart_that_lost_bytes_uses_the_parts_again(world: World) -> None:
    """With a durability below `chunk` nothing that was not published can be trusted."""
    whole, parts = waiting(world)
    steps(world).begin(whole)
    world.records.forget_received()
    assert {world.state(upload) for upload in (whole, *parts)} == {UploadState.RECEIVING}
    world.send_next(parts[1], 100, 350)
    world.send_next(parts[0], 0, 100)
    eventually(lambda: world.state(whole) is UploadState.COMPLETE)
    assert_is_published(world, whole)
