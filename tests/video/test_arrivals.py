"""Films that can be played while they still arrive, on real records and files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import ServerBusy
from app.core.playback import Playback, PlaybackProblem, PlaybackState
from app.core.ranges import ByteRange
from app.core.upload import Upload, UploadId
from app.db.engine import Database
from app.db.sqlite import BUSY_SECONDS
from app.storage.base import Store
from app.storage.s3.catalog import BucketCatalog
from app.storage.s3.store import BucketStore
from app.video.index.samples import SHORT_INDEX
from app.video.make.sweep import Arrivals
from app.video.serve.rows import MediaRecords
from app.video.serve.source import MediaSource
from tests.records.making import new_upload
from tests.s3_servers import S3Server, new_prefix
from tests.storage.sources import PiecesSource
from tests.storage.stores import LIMITS, bucket_at, ignore, local_store
from tests.video import hostile_indexes
from tests.video.films import FilmStore
from tests.video.world import World, wall_clock

MISSING_BYTES = 1000
"""At the end of the film."""


class Busy(MediaRecords):
    """The database that cannot be written the first few times that a film is described."""

    def __init__(self, database: Database, failures: int = 1) -> None:
        super().__init__(database)
        self.failures = failures

    def describe(
        self,
        upload_id: UploadId,
        target: PlaybackState,
        now: datetime,
        *,
        facts: Mapping[str, Any] | None,
        problem: PlaybackProblem | None = None,
    ) -> Playback:
        if self.failures:
            self.failures -= 1
            raise ServerBusy("The database is busy.")
        return super().describe(upload_id, target, now, facts=facts, problem=problem)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "data")
    with closing(world):
        yield world


@pytest.fixture(params=["in_folders", "in_bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path, world: World) -> Store:
    """Each in turn: a film in a bucket plays as early as one on a disk."""
    if request.param == "in_folders":
        return local_store(tmp_path / "in", tmp_path / "out")
    server: S3Server = request.getfixturevalue("versitygw")
    bucket = bucket_at(server.access, new_prefix())
    return BucketStore(bucket, BucketCatalog(world.database), tmp_path / "spools")


def add_most_of(world: World, store: Store, path: Path, *, seconds_ago: float = 0) -> Upload:
    """An upload that still lacks the film's last bytes."""
    content = path.read_bytes()
    return add_begun(world, store, content[:-MISSING_BYTES], len(content), seconds_ago=seconds_ago)


def add_begun(
    world: World, store: Store, begun: bytes, length: int, *, seconds_ago: float = 0
) -> Upload:
    """An upload of which only the beginning has arrived."""
    at = wall_clock() - timedelta(seconds=seconds_ago)
    upload, _ = world.uploads.add(new_upload(length=length, created_at=at))
    store.staging.reserve(upload.id, length)
    return receive(world, store, upload, 0, begun)


def receive(world: World, store: Store, upload: Upload, start: int, content: bytes) -> Upload:
    """More of an upload arrives."""
    span = ByteRange(start, start + len(content))
    with store.staging.writer(upload.id, span, LIMITS) as writer:
        writer.write(span, PiecesSource(content), ignore)
        with writer.recording() as rows:
            return world.uploads.add_received(upload, span, upload.active_at, rows=rows)


def state_of(world: World, upload: Upload) -> PlaybackState | None:
    playback = world.media.get(upload.id)
    return None if playback is None else playback.state


def test_a_film_whose_description_failed_is_looked_at_again(
    world: World, store: Store, film: FilmStore
) -> None:
    upload = add_most_of(world, store, film("h264.mp4"))
    tools = world.tools(MediaSource(store, world.files))
    arrivals = Arrivals(replace(tools, media=Busy(world.database)))
    arrivals.look()
    assert state_of(world, upload) is PlaybackState.WAITING
    arrivals.look()
    assert state_of(world, upload) is PlaybackState.PLAYABLE


def test_a_film_is_found_whose_bytes_were_recorded_long_after_they_had_arrived(
    world: World, store: Store, film: FilmStore
) -> None:
    arrivals = Arrivals(world.tools(MediaSource(store, world.files)))
    arrivals.look()
    upload = add_most_of(world, store, film("h264.mp4"), seconds_ago=BUSY_SECONDS)
    arrivals.look()
    assert state_of(world, upload) is PlaybackState.PLAYABLE


def test_a_film_is_not_believed_to_have_more_frames_than_bytes_have_arrived(
    world: World, store: Store
) -> None:
    """20 kB that describe 32 tracks of 309 000 frames each, of a file that claims to have 10 MB."""
    whole = hostile_indexes.of_many_edits(tracks=32, samples=309_000)
    upload = add_begun(world, store, whole[:20_000], len(whole))
    arrivals = Arrivals(world.tools(MediaSource(store, world.files)))
    assert not arrivals.look()
    assert state_of(world, upload) is None


def test_such_a_film_plays_once_enough_of_it_has_arrived(world: World, store: Store) -> None:
    content = hostile_indexes.film(hostile_indexes.track(5000), media_bytes=10_000)
    upload = add_begun(world, store, content[:2000], len(content))
    arrivals = Arrivals(world.tools(MediaSource(store, world.files)))
    arrivals.look()
    assert state_of(world, upload) is None
    receive(world, store, upload, 2000, content[2000:6000])
    arrivals.look()
    assert state_of(world, upload) is PlaybackState.PLAYABLE


def test_films_with_a_short_index_come_before_those_with_a_long_one(
    world: World, store: Store, film: FilmStore
) -> None:
    length = SHORT_INDEX + 1000
    content = hostile_indexes.film(hostile_indexes.track(length), media_bytes=length + 10)
    short = add_most_of(world, store, film("h264.mp4"))
    long = [add_begun(world, store, content[:-5], len(content)) for _ in range(2)]
    arrivals = Arrivals(world.tools(MediaSource(store, world.files)))
    assert arrivals.look()
    assert state_of(world, short) is PlaybackState.PLAYABLE
    assert sorted(map(str, (state_of(world, each) for each in long))) == ["None", "playable"]
    assert not arrivals.look()
    assert [state_of(world, each) for each in long] == [PlaybackState.PLAYABLE] * 2


def test_long_indexes_that_cannot_be_noted_wait_for_the_next_look(
    world: World, store: Store
) -> None:
    """The worker looks again at once for as long as `look` returns True."""
    length = SHORT_INDEX + 1000
    content = hostile_indexes.film(hostile_indexes.track(length), media_bytes=length + 10)
    long = [add_begun(world, store, content[:-5], len(content)) for _ in range(2)]
    tools = world.tools(MediaSource(store, world.files))
    arrivals = Arrivals(replace(tools, media=Busy(world.database, failures=2)))
    assert not arrivals.look()
    assert arrivals.look()
    assert not arrivals.look()
    assert [state_of(world, each) for each in long] == [PlaybackState.PLAYABLE] * 2
