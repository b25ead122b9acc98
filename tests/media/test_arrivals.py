"""Films that can be played while they still arrive, on real records and files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.domain.errors import ServerBusy
from app.domain.playback import Playback, PlaybackState, Problem
from app.domain.ranges import ByteRange
from app.domain.upload import Upload, UploadId
from app.media.film.source import MediaSource
from app.media.steps.arrivals import Arrivals
from app.records.engine import Database
from app.records.media import MediaRecords
from app.records.sqlite import BUSY_SECONDS
from app.storage.base import Store
from tests.media.films import FilmStore
from tests.media.world import World, wall_clock
from tests.records.making import new_upload
from tests.storage.sources import PiecesSource
from tests.storage.stores import LIMITS, ignore, local_store

MISSING_BYTES = 1000
"""At the end of the film."""


class BusyOnce(MediaRecords):
    """The database that cannot be written the first time that a film is described."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.has_failed = False

    def describe(
        self,
        upload_id: UploadId,
        target: PlaybackState,
        now: datetime,
        *,
        facts: Mapping[str, Any] | None,
        problem: Problem | None = None,
    ) -> Playback:
        if not self.has_failed:
            self.has_failed = True
            raise ServerBusy("The database is busy.")
        return super().describe(upload_id, target, now, facts=facts, problem=problem)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "data")
    with closing(world):
        yield world


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return local_store(tmp_path / "in", tmp_path / "out")


def add_most_of(world: World, store: Store, path: Path, *, seconds_ago: float = 0) -> Upload:
    """An upload that still lacks the film's last bytes."""
    at = wall_clock() - timedelta(seconds=seconds_ago)
    content = path.read_bytes()
    upload, _ = world.uploads.add(new_upload(length=len(content), created_at=at))
    span = ByteRange(0, len(content) - MISSING_BYTES)
    store.staging.reserve(upload.id, len(content))
    with store.staging.writer(upload.id, span, LIMITS) as writer:
        writer.write(span, PiecesSource(content[: span.end]), ignore)
    return world.uploads.add_received(upload, span, at)


def state_of(world: World, upload: Upload) -> PlaybackState | None:
    playback = world.media.get(upload.id)
    return None if playback is None else playback.state


def test_a_film_whose_description_failed_is_looked_at_again(
    world: World, store: Store, film: FilmStore
) -> None:
    upload = add_most_of(world, store, film("h264.mp4"))
    tools = world.tools(MediaSource(store, world.folder))
    arrivals = Arrivals(replace(tools, media=BusyOnce(world.database)))
    arrivals.look()
    assert state_of(world, upload) is PlaybackState.WAITING
    arrivals.look()
    assert state_of(world, upload) is PlaybackState.PLAYABLE


def test_a_film_is_found_whose_bytes_were_recorded_long_after_they_had_arrived(
    world: World, store: Store, film: FilmStore
) -> None:
    arrivals = Arrivals(world.tools(MediaSource(store, world.folder)))
    arrivals.look()
    upload = add_most_of(world, store, film("h264.mp4"), seconds_ago=BUSY_SECONDS)
    arrivals.look()
    assert state_of(world, upload) is PlaybackState.PLAYABLE
