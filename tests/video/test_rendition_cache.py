"""Other qualities take no more room than they may, and those watched longest ago make way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.core.errors import NoRoom
from app.core.jobs import Heartbeat, Job
from app.core.upload import UploadId
from app.video.make.renditions import RenditionCache
from app.video.serve.renditions import RENDITION, SEGMENTS, rendition_file, segment_file
from tests.derived import place
from tests.video.world import World

SEGMENT_BYTES = 1000


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    with closing(world):
        yield world


def make(world: World, video: UploadId, quality: int, *, watched_at: int) -> Path:
    """Three segments, watched last at this second; their folder."""
    at = datetime.fromtimestamp(watched_at, UTC)
    files = replace(world.files, clock=lambda: at)
    for number in range(1, 4):
        place(files, video, segment_file(quality, number), bytes(SEGMENT_BYTES))
    return world.path(video, segment_file(quality, 1)).parent


def trim(world: World, most_bytes: int) -> int:
    return cache_of(world, most_bytes=most_bytes).trim()


def cache_of(world: World, *, most_bytes: int = 0, least_free_bytes: int = 0) -> RenditionCache:
    return RenditionCache(
        world.files, world.jobs, most_bytes=most_bytes, least_free_bytes=least_free_bytes
    )


def test_those_watched_longest_ago_make_way_whole(world: World) -> None:
    films = [world.publish() for _ in range(2)]
    formats = [
        make(world, films[0], 360, watched_at=200),
        make(world, films[0], 720, watched_at=100),
    ]
    formats += [
        make(world, films[1], 360, watched_at=50),
        make(world, films[1], 720, watched_at=300),
    ]
    beside = place(world.files, films[1], "poster.jpg", bytes(SEGMENT_BYTES))
    assert trim(world, 8 * SEGMENT_BYTES) == 2
    assert [rendition.exists() for rendition in formats] == [True, False, False, True]
    assert beside.exists()
    assert trim(world, 6 * SEGMENT_BYTES) == 0
    assert world.half_made() == []


def test_a_whole_film_counts_and_goes_with_its_segments(world: World) -> None:
    video = world.publish()
    folder = make(world, video, 720, watched_at=100)
    whole = place(world.files, video, rendition_file(720), bytes(10 * SEGMENT_BYTES))
    assert trim(world, 13 * SEGMENT_BYTES) == 0
    assert trim(world, 12 * SEGMENT_BYTES) == 1
    assert not folder.exists()
    assert not whole.exists()


def test_a_whole_film_without_segments_counts_too(world: World) -> None:
    whole = place(world.files, world.publish(), rendition_file(720), bytes(SEGMENT_BYTES))
    assert trim(world, 1) == 1
    assert not whole.exists()


@pytest.mark.parametrize(("step", "argument"), [(SEGMENTS, "720/15"), (RENDITION, "720")])
def test_what_is_being_made_stays(world: World, step: str, argument: str) -> None:
    video = world.publish()
    made = [make(world, video, quality, watched_at=100) for quality in (360, 720)]
    world.enqueue(video, step, argument)
    assert trim(world, 1) == 1
    assert [folder.exists() for folder in made] == [False, True]


def test_without_a_limit_everything_stays(world: World) -> None:
    folder = make(world, world.publish(), 720, watched_at=100)
    assert trim(world, 0) == 0
    assert folder.exists()


def test_qualities_make_way_for_uploads_though_they_are_within_their_limit(world: World) -> None:
    folders = [make(world, world.publish(), 720, watched_at=100) for _ in range(2)]
    more_than_any_disk = cache_of(world, most_bytes=1 << 40, least_free_bytes=1 << 62)
    assert more_than_any_disk.trim() == 2
    assert not any(folder.exists() for folder in folders)


def test_a_step_without_room_gets_that_of_the_quality_watched_longest_ago(world: World) -> None:
    def step(_job: Job, _beat: Heartbeat) -> None:
        raise NoRoom("The disk is full.")

    video = world.publish()
    folders = [make(world, video, quality, watched_at=quality) for quality in (360, 720, 1080)]
    job = world.enqueue(video, SEGMENTS, "360/1")
    with pytest.raises(NoRoom):
        cache_of(world).watching(step)(job, Heartbeat(job))
    assert [folder.exists() for folder in folders] == [True, False, True]


def test_nothing_is_looked_at_until_more_was_made(world: World) -> None:
    video = world.publish()
    cache = cache_of(world, most_bytes=1)
    assert cache.trim() == 0
    make(world, video, 720, watched_at=100)
    assert cache.trim() == 0
    job = world.enqueue(video, "other")
    cache.watching(lambda _job, _beat: None)(job, Heartbeat(job))
    assert cache.trim() == 1
