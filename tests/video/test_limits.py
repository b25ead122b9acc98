"""What takes long for one file makes way for the files of others."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from app.core.jobs import Heartbeat, Job, JobCancelled, JobFailed, JobYields, Lane
from app.core.lifecycle import UploadState
from app.core.playback import PlaybackState
from app.core.ranges import ByteRange
from app.core.upload import UploadId
from app.storage.base import Store
from app.video.index.samples import LONG_INDEX, SHORT_INDEX
from app.video.make import work
from app.video.make.ffmpeg import PROBE_LIMITS, Ffmpeg, FfmpegTimedOut
from app.video.make.indexing import index
from app.video.make.sandbox.process import ProgramLimits
from app.video.make.steps import LATER
from app.video.make.work import unless_long
from app.video.serve.facts import MANIFEST
from app.video.serve.source import MediaSource
from tests.records.making import new_upload
from tests.storage.sources import PiecesSource
from tests.storage.stores import LIMITS, ignore, local_store
from tests.video import hostile_indexes
from tests.video.films import FilmStore
from tests.video.world import World, wall_clock


class Site:
    """The step that indexes, on stored files."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder / "data")
        self.store: Store = local_store(folder / "in", folder / "out")
        self.probes = Probes(ffmpeg=None, ffprobe=Path("/bin/false"))
        tools = self.world.tools(MediaSource(self.store, self.world.files), self.probes)
        self.alone: list[Job] = []
        self._step = unless_long(partial(index, tools), lambda job, _beat: self.alone.append(job))

    def publish(self, content: bytes, filename: str = "film.mp4") -> UploadId:
        """A stored file that waits for its first look."""
        upload = replace(
            new_upload(length=len(content), created_at=wall_clock()), filename=filename
        )
        span = ByteRange(0, len(content))
        self.store.staging.reserve(upload.id, len(content))
        with self.store.staging.writer(upload.id, span, LIMITS) as writer:
            writer.write(span, PiecesSource(content), ignore)
        self.store.library.publish(upload.id, len(content))
        self.world.uploads.add(replace(upload, state=UploadState.COMPLETE))
        self.world.media.add(upload.id, wall_clock(), is_planned=True)
        return upload.id

    def index(self, upload_id: UploadId, lane: Lane, priority: int = 0) -> JobYields | None:
        """Run the step; how it gives way, if it does."""
        now = wall_clock()
        job = self.world.jobs.enqueue(upload_id, "index", lane=lane, priority=priority, now=now)
        try:
            self._step(job, Heartbeat(job))
        except JobYields as error:
            return error
        return None

    def state(self, upload_id: UploadId) -> PlaybackState:
        playback = self.world.media.get(upload_id)
        assert playback is not None
        return playback.state


class Probes(Ffmpeg):
    """Does not run ffprobe, and counts how often it would."""

    limits: ClassVar[list[ProgramLimits]] = []

    def probe(
        self,
        path: Path,
        limits: ProgramLimits = PROBE_LIMITS,
        *,
        formats: str = "",
        stop: threading.Event | None = None,
    ) -> dict[str, Any]:
        self.limits.append(limits)
        raise FfmpegTimedOut("ffprobe needed more than 2 s of CPU time")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    Probes.limits.clear()
    site = Site(tmp_path)
    with closing(site.world):
        yield site


def test_a_film_with_a_short_index_is_playable_at_once(site: Site, film: FilmStore) -> None:
    video = site.publish(film("moov-last.mp4").read_bytes())
    assert site.index(video, Lane.QUICK) is None
    assert site.state(video) is PlaybackState.PLAYABLE


def test_a_longer_index_waits_in_its_lane_for_short_ones(site: Site) -> None:
    video = site.publish(hostile_indexes.of_many_samples(SHORT_INDEX + 1))
    gives_way = site.index(video, Lane.QUICK)
    assert gives_way is not None
    assert (gives_way.lane, gives_way.priority) == (Lane.QUICK, LATER)
    assert site.state(video) is PlaybackState.WAITING


def test_a_longer_index_is_read_after_it_has_waited(site: Site) -> None:
    video = site.publish(hostile_indexes.of_many_samples(SHORT_INDEX + 1))
    assert site.index(video, Lane.QUICK, LATER) is None
    assert site.state(video) is PlaybackState.PLAYABLE


@pytest.mark.parametrize(
    "content",
    [
        hostile_indexes.of_many_samples(LONG_INDEX + 1),
        hostile_indexes.of_many_chunks(),
        hostile_indexes.of_many_edits(),
    ],
    ids=["samples", "chunks", "edits"],
)
def test_a_long_index_leaves_the_lane_and_is_read_by_a_process_of_its_own(
    site: Site, content: bytes
) -> None:
    video = site.publish(content)
    for lane, priority in ((Lane.QUICK, 0), (Lane.QUICK, LATER), (Lane.BACKGROUND, 0)):
        gives_way = site.index(video, lane, priority)
        assert gives_way is not None
        assert gives_way.lane is Lane.LONG
        site.world.jobs.drop(video, "index", prefix="")
    assert site.index(video, Lane.LONG) is None
    assert [job.upload_id for job in site.alone] == [video]
    assert site.state(video) is PlaybackState.WAITING


@pytest.mark.parametrize(("tracks", "is_made"), [(2, True), (10, False)])
def test_only_so_much_silence_is_made_of_a_small_film(
    site: Site, tracks: int, is_made: bool
) -> None:
    """Ten tracks of an hour of it would be 1.5 million packets, of a file of 6 KB."""
    video = site.publish(hostile_indexes.of_late_sound(tracks, seconds=3600))
    assert site.index(video, Lane.QUICK, LATER) is None
    assert site.state(video) is PlaybackState.PLAYABLE
    assert (site.world.files.find(video, MANIFEST) is not None) is is_made


def test_noise_is_no_film_without_a_run_of_ffprobe(site: Site) -> None:
    video = site.publish(random.Random(14).randbytes(200_000))
    assert site.index(video, Lane.QUICK) is None
    assert site.state(video) is PlaybackState.UNPLAYABLE
    assert Probes.limits == []


def test_a_format_without_a_known_beginning_is_examined_for_its_name(site: Site) -> None:
    video = site.publish(random.Random(14).randbytes(200_000), "capture.y4m")
    gives_way = site.index(video, Lane.QUICK)
    assert gives_way is not None
    assert (gives_way.lane, gives_way.priority) == (Lane.QUICK, LATER)


def test_what_only_ffprobe_knows_waits_for_films_with_an_index(site: Site, film: FilmStore) -> None:
    video = site.publish(film("vp9.webm").read_bytes())
    gives_way = site.index(video, Lane.QUICK)
    assert gives_way is not None
    assert (gives_way.lane, gives_way.priority) == (Lane.QUICK, LATER)
    assert Probes.limits == []


def test_what_ffprobe_needs_long_for_leaves_the_lane(site: Site, film: FilmStore) -> None:
    video = site.publish(film("vp9.webm").read_bytes())
    gives_way = site.index(video, Lane.QUICK, LATER)
    assert gives_way is not None
    assert gives_way.lane is Lane.LONG
    site.world.jobs.drop(video, "index", prefix="")
    assert site.index(video, Lane.LONG) is None
    assert [limits.cpu_seconds for limits in Probes.limits] == [2, PROBE_LIMITS.cpu_seconds]


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGXCPU)", "index_too_long"),
        ("import os; os.kill(os.getpid(), 9)", "interrupted"),
        ("print(bytearray(1 << 40))", "index_too_long"),
    ],
    ids=["CPU time", "killed", "memory"],
)
def test_a_process_that_meets_its_limit_says_so(
    site: Site, monkeypatch: pytest.MonkeyPatch, program: str, problem: str
) -> None:
    upload_id = site.publish(b"?")
    job = site.world.enqueue(upload_id, "index")
    guarded = "from app.video.make.work import limit_this_process, outcome_of; import sys; "
    guarded += "limit_this_process(); "
    guarded += f"sys.stdout.write(outcome_of(lambda: exec({program!r})))"
    monkeypatch.setattr(work, "_COMMAND", [sys.executable, "-c", guarded])
    with pytest.raises(JobFailed) as failed:
        work.run_in_process(job, Heartbeat(job))
    assert failed.value.problem.code == problem


def test_a_process_ends_with_its_job(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    job = site.world.enqueue(site.publish(b"?"), "index")
    beat = Heartbeat(job)
    beat.stop.set()
    monkeypatch.setattr(work, "_COMMAND", [sys.executable, "-c", "import time; time.sleep(600)"])
    with pytest.raises(JobCancelled):
        work.run_in_process(job, beat)
