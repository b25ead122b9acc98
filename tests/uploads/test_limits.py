"""What one sender may have on its way, and reservations without bytes."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from app.core.access import Scope
from app.core.errors import NoRoom, TooManyRequests, TooManyUploads
from app.core.lifecycle import UploadState
from app.core.upload import LEAST_AHEAD_BYTES, Upload
from app.db.engine import Database
from app.ingest.source import StreamSource
from app.storage.local import folder
from app.uploads.service import NewUpload
from tests.storage.sources import PiecesSource, body, pattern
from tests.uploads.test_quotas import used
from tests.uploads.world import ME, OTHERS, World, add_upload_link, in_threads

ANN = Scope("me", sender="person:ann", own="person:ann")
BOB = Scope("me", sender="person:bob", own="person:bob")
AN_HOUR = 3600.0


def create(world: World, scope: Scope, length: int | None) -> Upload:
    return world.service.create(NewUpload(scope=scope, filename="a.mp4", length=length))[0]


@pytest.fixture
def limited(tmp_path: Path) -> World:
    """Three uploads for each sender."""
    return World(tmp_path, max_uploads_per_sender=3)


def test_a_sender_has_so_many_uploads_at_once_and_a_finished_one_makes_room(limited: World) -> None:
    first, *_ = [create(limited, ANN, 10) for _ in range(3)]
    with pytest.raises(TooManyUploads):
        create(limited, ANN, 10)
    create(limited, BOB, 10)
    limited.chunks.append(first, 0, body(0, 10))
    create(limited, ANN, 10)
    assert len(limited.files()) == 5, "nothing stays of what was refused"


def test_64_requests_of_one_sender_at_once_make_exactly_as_many_uploads(limited: World) -> None:
    outcomes = in_threads(64, lambda _: create(limited, ANN, 10))
    assert sum(isinstance(outcome, Upload) for outcome in outcomes) == 3
    assert sum(isinstance(outcome, TooManyUploads) for outcome in outcomes) == 61


def test_limits_of_a_sender_hold_over_several_projects(tmp_path: Path, on_server: Database) -> None:
    world = World(tmp_path, database=on_server, max_uploads_per_sender=3)
    for number in range(5):
        sender = f"person:{number}"
        scopes = [Scope(each.project, sender=sender, own=sender) for each in (ME, OTHERS)]
        made = in_threads(8, lambda n: create(world, scopes[n % 2], 10))  # noqa: B023 - the threads end within the round
        assert sum(isinstance(each, Upload) for each in made) == 3


def test_whoever_is_everybody_has_no_limits(limited: World) -> None:
    for _ in range(5):
        create(limited, ME, 900)


def test_a_sender_begins_so_many_uploads_a_minute(tmp_path: Path) -> None:
    world = World(tmp_path, requests_per_minute=10)
    create(world, ANN, 10)
    create(world, ANN, 10)
    world.later(seconds=20)
    with pytest.raises(TooManyRequests, match="40 seconds") as refusal:
        create(world, ANN, 10)
    assert refusal.value.retry_after_seconds == 40
    create(world, BOB, 10)
    world.later(seconds=40)
    create(world, ANN, 10)


LINK = "upload_link:a:visitor"
"""The sender of uploads through a link."""


@pytest.fixture
def stingy(tmp_path: Path) -> World:
    """Reservations last a minute."""
    world = World(tmp_path, reservation_seconds=60)
    add_upload_link(world, "a")
    return world


class Interrupted(PiecesSource):
    """Something happens while the writer has its lock and has not recorded a byte."""

    def __init__(self, data: bytes, happening: Callable[[], None]) -> None:
        super().__init__(data)
        self._happening = happening

    def readinto(self, buffer: memoryview, /) -> int | None:
        self._happening()
        return super().readinto(buffer)


def age(world: World, upload: Upload) -> None:
    """Make the file look as if it had not been written for an hour."""
    then = time.time() - AN_HOUR
    os.utime(world.staging / upload.id, (then, then))


@pytest.mark.folders
def test_space_without_bytes_is_given_back_and_reserved_again(stingy: World) -> None:
    upload, fresh = stingy.create(1000), stingy.create(1000)
    age(stingy, upload)
    stingy.housekeeping.give_space_back()
    assert stingy.files() == {fresh.id}
    assert stingy.state(upload) is UploadState.RECEIVING
    stingy.send(upload, 500, 600)
    assert (stingy.staging / upload.id).stat().st_size == 1000
    assert stingy.send(stingy.send(upload, 0, 500), 600, 1000).state is UploadState.COMPLETE


@pytest.mark.folders
def test_space_is_reserved_again_for_a_body_of_unknown_length(stingy: World) -> None:
    upload = stingy.create(1000)
    age(stingy, upload)
    stingy.housekeeping.give_space_back()
    source = StreamSource(io.BytesIO(pattern(0, 1000)), None)
    assert stingy.chunks.append_at_offset(upload, 0, source).state is UploadState.COMPLETE
    assert stingy.content(upload) == pattern(0, 1000)


@pytest.mark.folders
def test_an_upload_through_a_link_without_bytes_expires_and_frees_its_quota(
    stingy: World,
) -> None:
    link = Scope("me", sender=LINK)
    empty, begun = create(stingy, link, 1000), create(stingy, link, 1000)
    stingy.send(begun, 0, 1)
    stingy.now += timedelta(hours=1)
    for upload in (empty, begun):
        age(stingy, upload)
    stingy.housekeeping.give_space_back()
    assert stingy.state(empty) is UploadState.EXPIRED
    assert stingy.files() == {begun.id}


@pytest.mark.every_store
def test_an_upload_through_a_link_holds_what_has_come_until_it_is_complete(
    stingy: World,
) -> None:
    length = 500_000
    upload = create(stingy, Scope("me", sender=LINK), length)
    stingy.send(upload, 400_000, 400_001)
    assert used(stingy) <= 1 + LEAST_AHEAD_BYTES
    stingy.now += timedelta(hours=1)
    stingy.housekeeping.give_space_back()
    assert (stingy.state(upload), used(stingy)) == (UploadState.RECEIVING, 1)
    stingy.send(upload, 0, 400_000)
    assert stingy.send(upload, 400_000, length).state is UploadState.COMPLETE
    assert (used(stingy), stingy.content(upload)) == (length, pattern(0, length))


@pytest.mark.folders
def test_an_upload_through_a_link_whose_first_bytes_are_not_recorded_yet_stays(
    stingy: World,
) -> None:
    """As bytes with a digest are recorded at the end of their request."""
    running = create(stingy, Scope("me", sender=LINK), 1000)

    def sweep() -> None:
        stingy.now += timedelta(hours=1)
        stingy.housekeeping.give_space_back()

    source = Interrupted(pattern(0, 1000), sweep)
    assert stingy.chunks.append(running, 0, source).state is UploadState.COMPLETE


@pytest.mark.folders
def test_the_first_byte_is_refused_if_the_disk_is_full_by_then(
    stingy: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = stingy.create(1000)
    age(stingy, upload)
    stingy.housekeeping.give_space_back()
    monkeypatch.setattr(folder, "KEPT_FREE_BYTES", 1 << 62)
    with pytest.raises(NoRoom):
        stingy.send(upload, 0, 100)


@pytest.mark.folders
def test_space_with_bytes_in_it_and_of_a_running_request_is_kept(stingy: World) -> None:
    begun, running = stingy.create(1000), stingy.create(1000)
    stingy.send(begun, 0, 1)
    age(stingy, begun)

    def sweep() -> None:
        age(stingy, running)
        stingy.housekeeping.give_space_back()

    source = Interrupted(pattern(0, 1000), sweep)
    assert stingy.chunks.append(running, 0, source).state is UploadState.COMPLETE
    assert stingy.content(running) == pattern(0, 1000)
    assert begun.id in stingy.files()


@pytest.mark.folders
def test_without_accounts_reservations_last_as_long_as_their_uploads_but_for_those_of_links(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, reservation_seconds=60, access="open")
    add_upload_link(world, "a")
    upload, claim = (create(world, Scope("me", sender=each), 1000) for each in ("", LINK))
    world.now += timedelta(hours=1)
    for each in (upload, claim):
        age(world, each)
    world.housekeeping.give_space_back()
    assert world.files() == {upload.id}
