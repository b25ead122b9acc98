"""What a project may hold: counted exactly, refused before it is sent, given back at the end."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest
from sqlalchemy import select, update

from app.core.access import Scope
from app.core.errors import EntryNotFound, LargerThanQuota, QuotaExceeded, TooLarge, UploadError
from app.core.lifecycle import UploadState
from app.core.upload import Upload, UploadKind
from app.db.tables import projects
from app.uploads.files import CHECKED_FIRST_BYTES, FORM_BYTES, ReceivedFile
from app.uploads.service import NewUpload
from tests.storage.sources import PiecesSource, StallingSource, body, pattern
from tests.uploads.world import ME, OTHERS, World, in_threads

QUOTA = 1000


@pytest.fixture
def limited(world: World) -> World:
    """A world in which `ME` is a project with a quota."""
    set_quota(world, QUOTA)
    return world


def set_quota(world: World, quota: int | None) -> None:
    change = update(projects).where(projects.c.id == ME.project)
    with world.database.write() as connection:
        connection.execute(change.values(quota_bytes=quota))


def used(world: World) -> int:
    """What the project is counted with, which must be what it has."""
    query = select(projects.c.used_bytes).where(projects.c.id == ME.project)
    with world.database.read() as connection:
        count: int = connection.execute(query).scalar_one()
    assert world.quotas.recount() == {}
    return count


def without_length(world: World, kind: UploadKind = UploadKind.FILE) -> Upload:
    new = NewUpload(scope=ME, filename="a.mp4", length=None, kind=kind)
    return world.service.create(new)[0]


def received(world: World, length: int) -> ReceivedFile:
    return world.whole.receive(body(0, length), scope=ME, filename="a.mp4")


def test_an_upload_counts_with_its_whole_length_from_the_start(limited: World) -> None:
    limited.create(600)
    assert used(limited) == 600


def test_what_does_not_fit_is_refused_with_what_is_left_and_nothing_stays(limited: World) -> None:
    first = limited.create(600)
    with pytest.raises(QuotaExceeded, match="only 400 bytes are left") as refusal:
        limited.create(401)
    assert refusal.value.members == {"left": 400, "quota": QUOTA}
    assert used(limited) == 600
    assert limited.files() == {first.id}


def test_a_file_larger_than_the_whole_quota_is_too_large(limited: World) -> None:
    with pytest.raises(LargerThanQuota) as refusal:
        limited.create(QUOTA + 1)
    assert refusal.value.status_hint == 413


def test_the_last_byte_of_the_quota_can_be_used(limited: World) -> None:
    limited.create(QUOTA)
    assert used(limited) == QUOTA


def test_the_end_of_an_upload_gives_its_bytes_back(limited: World) -> None:
    cancelled, deleted, expired = (limited.create(length) for length in (100, 200, 300))
    limited.send(deleted, 0, 200)
    assert used(limited) == 600
    limited.service.cancel(ME, cancelled.id)
    limited.library.delete(ME, deleted.id)
    limited.housekeeping.expire_one(expired.id)
    assert used(limited) == 0


@pytest.mark.folders
def test_an_upload_without_room_on_the_disk_counts_nothing(limited: World) -> None:
    with limited.database.write() as connection:
        connection.execute(update(projects).values(quota_bytes=1 << 62))
    limited.staging.mkdir(parents=True)
    limited.staging.chmod(0)
    limited.staging.rmdir()
    limited.staging.write_bytes(b"a file where the folder should be")
    with pytest.raises(UploadError):
        limited.create(100)
    assert used(limited) == 0


def test_a_project_without_a_quota_is_counted_all_the_same(world: World) -> None:
    set_quota(world, None)
    world.completed(100)
    assert used(world) == 100


def test_other_projects_do_not_count(limited: World) -> None:
    new = NewUpload(scope=OTHERS, filename="a.mp4", length=5000)
    limited.service.create(new)
    assert used(limited) == 0


def test_an_upload_to_a_project_that_was_removed_is_refused(limited: World) -> None:
    for length in (1, None):
        new = NewUpload(scope=Scope("removed"), filename="a.mp4", length=length)
        with pytest.raises(EntryNotFound):
            limited.service.create(new)


def test_a_length_told_later_counts_from_then_on(limited: World) -> None:
    upload = without_length(limited)
    assert used(limited) == 0
    upload = limited.chunks.declare_length(upload, 700)
    assert used(limited) == 700
    with pytest.raises(QuotaExceeded):
        limited.chunks.declare_length(without_length(limited), 301)


def test_an_upload_of_unknown_length_never_outgrows_what_is_left(limited: World) -> None:
    limited.create(400)
    growing = without_length(limited)
    limited.chunks.append_at_offset(growing, 0, body(0, 500))
    other = without_length(limited)
    with pytest.raises(QuotaExceeded, match="only 100 bytes"):
        limited.chunks.append_at_offset(other, 0, body(0, 101))
    limited.chunks.append_at_offset(other, 0, body(0, 100))
    assert limited.service.get(ME, other.id).offset == 100


def test_what_an_upload_of_unknown_length_holds_is_not_given_to_others(limited: World) -> None:
    growing = without_length(limited)
    limited.chunks.append_at_offset(growing, 0, body(0, 700))
    with pytest.raises(QuotaExceeded, match="only 300 bytes are left") as refusal:
        limited.create(301)
    assert refusal.value.members == {"left": 300, "quota": QUOTA}
    with pytest.raises(QuotaExceeded):
        limited.quotas.check(ME.target(), 301)
    with pytest.raises(QuotaExceeded):
        limited.whole.keep(received(limited, 301))
    limited.create(300)
    assert used(limited) == 300
    limited.chunks.declare_length(growing, 700)
    assert used(limited) == QUOTA


def test_a_body_of_unknown_length_ends_at_what_is_left(limited: World) -> None:
    limited.create(900)
    growing = without_length(limited)
    with pytest.raises(QuotaExceeded):
        limited.chunks.append_at_offset(growing, 0, PiecesSource(pattern(0, 5000), is_told=False))
    assert limited.service.get(ME, growing.id).offset <= 100


def test_parts_and_the_file_made_of_them_count_while_both_exist(limited: World) -> None:
    limited.whole_of(limited.held(0, 300), limited.held(300, 500))
    assert used(limited) == 500, "the parts have ended"


def test_parts_without_room_for_their_whole_wait_for_it(limited: World) -> None:
    parts = limited.held(0, 300), limited.held(300, 500)
    obstacle = limited.create(100)
    with pytest.raises(QuotaExceeded):
        limited.whole_of(*parts)
    assert used(limited) == 600
    limited.service.cancel(ME, obstacle.id)
    assert limited.whole_of(*parts).state is UploadState.COMPLETE
    assert used(limited) == 500


def test_a_whole_file_is_refused_before_it_is_read_or_at_its_record(world: World) -> None:
    set_quota(world, CHECKED_FIRST_BYTES // 2)
    early = body(0, CHECKED_FIRST_BYTES // 2 + 1)
    with pytest.raises(LargerThanQuota):
        world.whole.keep(world.whole.receive(early, scope=ME, filename="a.mp4"))
    with world.database.write() as connection:
        connection.execute(update(projects).values(quota_bytes=10))
    with pytest.raises(LargerThanQuota):
        world.whole.receive(
            early, scope=ME, filename="a.mp4", room=CHECKED_FIRST_BYTES + FORM_BYTES + 1
        )
    assert world.files() == set()
    assert used(world) == 0


def test_a_chunk_of_a_known_upload_is_held_against_that_alone(limited: World) -> None:
    limited.create(QUOTA)
    room = CHECKED_FIRST_BYTES + FORM_BYTES + 1
    chunk = limited.whole.receive(
        body(0, QUOTA // 2), scope=ME, filename="blob", room=room, most_bytes=QUOTA // 2
    )
    assert chunk.length == QUOTA // 2
    with pytest.raises(TooLarge):
        limited.whole.receive(
            body(0, QUOTA // 2 + 1), scope=ME, filename="blob", most_bytes=QUOTA // 2
        )


def test_a_chunk_is_taken_whose_upload_gets_the_rest_of_the_quota_meanwhile(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, max_upload_bytes=4 * CHECKED_FIRST_BYTES)
    set_quota(world, 2 * CHECKED_FIRST_BYTES)
    chunk = StallingSource(pattern(0, CHECKED_FIRST_BYTES + 1), before=0)

    def create() -> None:
        chunk.is_stalled.wait(60)
        world.create(2 * CHECKED_FIRST_BYTES)
        chunk.goes_on.set()

    other = Thread(target=create)
    other.start()
    arrived = world.whole.receive(chunk, scope=ME, filename="blob")
    other.join()
    assert arrived.length == CHECKED_FIRST_BYTES + 1
    assert used(world) == 2 * CHECKED_FIRST_BYTES


def test_of_whole_files_in_a_group_those_that_fit_are_kept(limited: World) -> None:
    files = [received(limited, length) for length in (600, 500, 400)]
    outcomes = limited.whole.keep_all(files)
    assert [isinstance(outcome, QuotaExceeded) for outcome in outcomes] == [False, True, False]
    assert used(limited) == QUOTA
    assert limited.files() == {files[0].id, files[2].id}


def test_64_clients_at_once_get_exactly_the_quota(limited: World) -> None:
    outcomes = in_threads(64, lambda number: limited.create(90, client_key=f"k{number}"))
    refused = [outcome for outcome in outcomes if isinstance(outcome, QuotaExceeded)]
    assert len(refused) == 64 - QUOTA // 90
    assert used(limited) == 990


def test_64_clients_that_begin_and_end_uploads_leave_the_right_count(limited: World) -> None:
    def begin_and_end(number: int) -> None:
        upload = limited.create(50 + number)
        if number % 2:
            limited.service.cancel(ME, upload.id)
        else:
            limited.send(upload, 0, upload.known_length)
            limited.library.delete(ME, upload.id)

    def attempt(number: int) -> None:
        for _ in range(3):
            with suppress(QuotaExceeded):
                begin_and_end(number)

    assert in_threads(64, attempt) == [None] * 64
    assert used(limited) == 0


def test_a_wrong_count_is_found_and_put_right(limited: World) -> None:
    limited.create(300)
    wrong = update(projects).where(projects.c.id == ME.project).values(used_bytes=7)
    with limited.database.write() as connection:
        connection.execute(wrong)
    assert limited.quotas.recount() == {"me": (7, 300)}
    assert used(limited) == 300
