"""The last part and the request for the whole at the same time: the file is made exactly once."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from app.core.access import Scope
from app.core.errors import UploadGone
from app.core.lifecycle import UploadState
from app.core.upload import Upload, UploadPart
from tests.processes import PROCESSES
from tests.storage.sources import body, pattern
from tests.uploads.processes import PART, concatenate, send_parts, shared_world
from tests.uploads.world import ME, World, eventually, in_threads

ROUNDS = 15


@pytest.fixture
def world_in_database(tmp_path: Path) -> Iterator[World]:
    with shared_world(tmp_path) as world:
        yield world


@pytest.fixture(params=["world", "world_in_database"])
def any_world(request: pytest.FixtureRequest) -> World:
    found: World = request.getfixturevalue(request.param)
    return found


def test_the_last_part_and_the_request_for_the_whole_may_race(any_world: World) -> None:
    world = any_world
    for _ in range(ROUNDS):
        world.steps.clear()
        parts = [world.held(0, 100), world.part(250)]

        def act(number: int, parts: list[Upload] = parts) -> Upload:
            if number == 0:
                return world.chunks.append_at_offset(parts[1], 0, body(100, 350))
            return world.whole_of(*parts)

        outcomes = in_threads(3, act)
        assert [outcome for outcome in outcomes if not isinstance(outcome, Upload)] == []
        assert_made_once(world, outcomes[1])


def test_concurrent_requests_for_the_whole_both_get_it(
    any_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds no such file; when it looks at the parts, they have just become one."""
    world, made = any_world, list[Upload]()
    parts = [world.held(0, 100), world.held(100, 350)]
    check_parts = world.service._check_parts

    def check_late(scope: Scope, wanted: list[UploadPart]) -> None:
        monkeypatch.undo()
        made.append(world.whole_of(*parts))
        check_parts(scope, wanted)

    monkeypatch.setattr(world.service, "_check_parts", check_late)
    found = world.whole_of(*parts)
    assert [found] == made
    assert found.state is UploadState.COMPLETE


def test_all_parts_and_many_requests_for_the_whole_may_race(any_world: World) -> None:
    world = any_world
    for _ in range(ROUNDS):
        world.steps.clear()
        parts = [world.part(50) for _ in range(6)]
        whole = world.whole_of(*parts)

        def act(number: int, parts: list[Upload] = parts, whole: Upload = whole) -> Upload:
            if number >= 6:
                return world.chunks.stop_writer(whole)
            source = body(number * 50, number * 50 + 50)
            return world.chunks.append_at_offset(parts[number], 0, source)

        outcomes = in_threads(9, act)
        assert [outcome for outcome in outcomes if not isinstance(outcome, Upload)] == []
        assert_made_once(world, whole, 300)


def test_two_wholes_may_wait_for_the_same_last_part(any_world: World) -> None:
    world = any_world
    for _ in range(ROUNDS):
        shared, one, other = world.part(100), world.held(100, 150), world.held(100, 170)
        wholes = [world.whole_of(shared, one), world.whole_of(shared, other)]
        world.send_next(shared, 0, 100)
        eventually(partial(have_come_to, world, wholes, UploadState.COMPLETE))
        assert [world.content(whole) for whole in wholes] == [pattern(0, 150), pattern(0, 170)]
        eventually(partial(have_come_to, world, [shared], UploadState.EXPIRED))


def test_cancelling_a_part_while_it_is_used_leaves_all_or_nothing(any_world: World) -> None:
    world = any_world
    for _ in range(ROUNDS):
        parts = [world.held(0, 100), world.held(100, 350)]

        def act(number: int, parts: list[Upload] = parts) -> object:
            if number == 1:
                return world.whole_of(*parts)
            world.service.cancel(ME, parts[0].id)
            return None

        _, outcome = in_threads(2, act)
        if isinstance(outcome, Upload):
            assert world.content(outcome) == pattern(0, 350)
        else:
            assert isinstance(outcome, UploadGone)
            assert not any(path.stat().st_size == 350 for path in world.staging.iterdir())


def have_come_to(world: World, uploads: list[Upload], state: UploadState) -> bool:
    return {world.state(upload) for upload in uploads} == {state}


def assert_made_once(world: World, whole: object, length: int = 350) -> None:
    assert isinstance(whole, Upload)
    eventually(lambda: world.state(whole) is UploadState.COMPLETE)
    assert world.content(whole) == pattern(0, length)
    eventually(lambda: not list(world.store.inspection.staged()))
    eventually(lambda: world.completed_count > 0)
    assert world.completed_count == 1


@pytest.mark.folders
def test_processes_sending_parts_and_requesting_the_whole_may_race(
    world_in_database: World, tmp_path: Path
) -> None:
    """Two send a part each and two request the file of both, in whatever order happens."""
    world = world_in_database
    rounds = [[world.part(PART), world.part(PART)] for _ in range(ROUNDS)]
    barrier = PROCESSES.Barrier(4)
    ids = [[part.id for part in parts] for parts in rounds]
    plans: list[tuple[Callable[..., None], tuple[object, ...]]] = [
        (send_parts, (tmp_path, barrier, [(pair[0], 0) for pair in ids])),
        (send_parts, (tmp_path, barrier, [(pair[1], 1) for pair in ids])),
        (concatenate, (tmp_path, barrier, ids, 1 << 40)),
        (concatenate, (tmp_path, barrier, ids, 1 << 41)),
    ]
    processes = [PROCESSES.Process(target=target, args=arguments) for target, arguments in plans]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * 4
    for parts in rounds:
        whole = world.whole_of(*parts)
        assert whole.state is UploadState.COMPLETE
        assert world.content(whole) == pattern(0, 2 * PART)
    assert len(list((tmp_path / "library").iterdir())) == ROUNDS
    eventually(lambda: not list((tmp_path / "staging").iterdir()))
