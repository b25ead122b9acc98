"""Other qualities, as the web offers them and waits for them: no background worker takes part."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from app.core.errors import NoRoom, NotMade, NotMadeYet, RenditionFailed, RenditionsOff
from app.core.jobs import JobState, Lane
from app.core.playback import PlaybackProblem
from app.core.upload import Upload
from app.video.serve.ladder import read_capability
from app.video.serve.library import MadeFile
from app.video.serve.playlists import Playlists
from app.video.serve.renditions import (
    EAGER_PRIORITY,
    FAILED_FOR,
    MOST_QUEUED,
    ORDERED_PRIORITY,
    RENDITION,
    SEGMENTS,
    Renditions,
    WaitTimeout,
)
from tests.derived import place
from tests.video.offered import write_film, write_segments
from tests.video.world import World, wall_clock
from tests.waiting import wait_until

LEASE = timedelta(minutes=1)
STEPS = {SEGMENTS, RENDITION}
FULL = PlaybackProblem("no_room", "There is not enough space.")

PATIENT = WaitTimeout(seconds=600)
"""For what is known at once, however slowly a thread gets to look."""


class Cinema:
    """One film of 1080p, and the web's side of its other qualities."""

    def __init__(self, data: Path) -> None:
        self.world = World(data)
        self.media = data / "media"
        self.film: Upload = self.world.uploads.get(self.world.publish())
        self.files = self.world.files
        write_film(self.files, self.film.id)

    def renditions(
        self,
        patience: WaitTimeout | None = None,
        *,
        is_on: bool = True,
        clock: Callable[[], datetime] = wall_clock,
    ) -> Renditions:
        world, patience = self.world, patience or WaitTimeout(seconds=0.2)
        return Renditions(
            playlists=Playlists(world.files),
            jobs=world.jobs,
            files=world.files,
            timeout=patience,
            capability=lambda: read_capability(self.media),
            is_on=is_on,
            clock=clock,
        )

    def queued(self) -> list[str]:
        """The segments that wait for the worker, the next one first."""
        jobs = self.world.jobs.of(self.film.id, SEGMENTS)
        waiting = [job for job in jobs if job.state is JobState.QUEUED]
        return [job.argument for job in sorted(waiting, key=lambda job: job.priority)]

    def postpone(self, lane: Lane) -> None:
        """Let the next job of a lane wait for room on the disk."""
        job = self.world.jobs.claim(lane, "worker", wall_clock(), LEASE, STEPS)
        assert job is not None
        assert self.world.jobs.postpone(job, FULL, wall_clock(), LEASE)

    def fail(self, lane: Lane) -> None:
        """Let the next job of a lane fail for good."""
        job = self.world.jobs.claim(lane, "worker", wall_clock(), LEASE, STEPS)
        assert job is not None
        problem = PlaybackProblem("broken", "The picture is damaged.")
        assert self.world.jobs.fail(job, problem, wall_clock(), retry_after=None)


@pytest.fixture
def cinema(tmp_path: Path) -> Iterator[Cinema]:
    cinema = Cinema(tmp_path)
    with closing(cinema.world):
        yield cinema


def yes() -> bool:
    return True


def read(made: MadeFile) -> bytes:
    _, file = made.open()
    with closing(file):
        return file.read() or b""


def test_a_film_is_offered_in_smaller_sizes_the_best_first(cinema: Cinema) -> None:
    states = [(view.quality, view.state) for view in cinema.renditions().of(cinema.film)]
    assert states == [(720, "on_demand"), (360, "on_demand")]


def test_nothing_is_offered_where_nothing_can_be_made(cinema: Cinema) -> None:
    assert cinema.renditions(is_on=False).of(cinema.film) == []
    (cinema.media / ".encoder.json").unlink()
    assert cinema.renditions().of(cinema.film) == []


def test_the_master_playlist_has_the_original_first_and_then_the_best(cinema: Cinema) -> None:
    text = Playlists(cinema.world.files).master(
        cinema.film, cinema.renditions().formats(cinema.film)
    )
    lines = text.splitlines()
    assert [line for line in lines if line.endswith(".m3u8")] == [
        "source/index.m3u8",
        "720/index.m3u8",
        "360/index.m3u8",
    ]
    described = next(line for line in lines if "RESOLUTION=1280x720" in line)
    assert "mp4a.40.2" in described
    assert "BANDWIDTH=3630000" in described


def test_a_picture_that_no_browser_decodes_is_left_out(cinema: Cinema) -> None:
    write_film(cinema.files, cinema.film.id, codecs="apcn", is_played=False)
    playlists, film = Playlists(cinema.world.files), cinema.film
    assert "source/index" not in playlists.master(film, cinema.renditions().formats(film))
    with pytest.raises(NotMade):
        playlists.master(film, [])


def test_an_order_is_a_job_until_the_file_is_there(cinema: Cinema) -> None:
    renditions, film = cinema.renditions(), cinema.film
    assert renditions.order(film, 720).state == "making"
    assert renditions.order(film, 720).state == "making"
    job = cinema.world.jobs.claim(Lane.BACKGROUND, "worker", wall_clock(), LEASE, STEPS)
    assert job is not None
    cinema.world.jobs.heartbeat(job, 0.4, wall_clock(), LEASE)
    assert [view.progress for view in renditions.of(film)] == [0.4, 0.0]
    cinema.world.jobs.finish(job, wall_clock())
    place(cinema.files, film.id, "renditions/720.mp4", b"film")
    view = renditions.order(film, 720)
    assert (view.state, view.problem) == ("ready", None)
    place(cinema.files, film.id, "rungs/720/left-out", b"3\n4")
    problem = renditions.order(film, 720).problem
    assert problem is not None
    assert problem.detail == "2 damaged parts are missing, as nothing could be decoded."
    assert read(renditions.file(film, 720)) == b"film"


def test_a_failed_order_says_why_and_can_be_repeated(cinema: Cinema) -> None:
    renditions, film = cinema.renditions(), cinema.film
    renditions.order(film, 720)
    cinema.fail(Lane.BACKGROUND)
    view = renditions.of(film)[0]
    assert (view.state, view.problem) == (
        "failed",
        PlaybackProblem("broken", "The picture is damaged."),
    )
    assert renditions.order(film, 720).state == "making"


def test_an_order_is_more_urgent_than_what_nobody_has_ordered(cinema: Cinema) -> None:
    jobs, film = cinema.world.jobs, cinema.film
    jobs.enqueue(
        film.id,
        RENDITION,
        "720",
        lane=Lane.BACKGROUND,
        priority=EAGER_PRIORITY,
        now=wall_clock(),
    )
    assert cinema.renditions().order(film, 720).state == "making"
    job = jobs.claim(Lane.BACKGROUND, "worker", wall_clock(), LEASE, STEPS)
    assert job is not None
    assert job.priority == ORDERED_PRIORITY
    cinema.renditions().order(film, 720)
    running = jobs.find(film.id, RENDITION, "720")
    assert running is not None
    assert not running.is_renewed


def test_what_is_not_offered_cannot_be_ordered(cinema: Cinema) -> None:
    with pytest.raises(NotMade):
        cinema.renditions().order(cinema.film, 1080)
    with pytest.raises(RenditionsOff):
        cinema.renditions(is_on=False).order(cinema.film, 720)


def test_removing_ends_the_jobs_of_one_quality_and_removes_its_files(cinema: Cinema) -> None:
    renditions, film = cinema.renditions(), cinema.film
    write_segments(cinema.files, cinema.film.id, 720, 1)
    write_segments(cinema.files, cinema.film.id, 360, 1)
    for quality in (720, 360):
        renditions.order(film, quality)
        with pytest.raises(NotMadeYet):
            renditions.segment(film, quality, 3, yes)
    renditions.remove(film, 720)
    renditions.remove(film, 720)
    assert [(job.kind, job.argument) for job in cinema.world.jobs.of(film.id)] == [
        (RENDITION, "360"),
        (SEGMENTS, "360/3"),
    ]
    assert [path.name for path in (cinema.media / film.id / "rungs").iterdir()] == ["360"]
    assert {bundle.name for bundle in cinema.files.evictable()} == {"rungs/360"}
    with pytest.raises(NotMade):
        renditions.remove(film, 1080)


def test_an_order_can_be_cancelled_where_no_qualities_are_offered_any_more(cinema: Cinema) -> None:
    cinema.renditions().order(cinema.film, 720)
    renditions = cinema.renditions(is_on=False)
    with pytest.raises(NotMade):
        renditions.remove(cinema.film, 72)
    assert cinema.world.jobs.of(cinema.film.id) != []
    renditions.remove(cinema.film, 720)
    assert cinema.world.jobs.of(cinema.film.id) == []
    with pytest.raises(NotMade):
        renditions.remove(cinema.film, 720)


def test_a_segment_that_is_missing_is_queued_and_waited_for(cinema: Cinema) -> None:
    renditions = cinema.renditions(WaitTimeout(seconds=20))
    made = threading.Timer(0.3, lambda: write_segments(cinema.files, cinema.film.id, 720, 4))
    made.start()
    assert read(renditions.segment(cinema.film, 720, 4, yes)) == b"4"
    assert cinema.queued() == ["720/4"]
    made.join()


def test_the_first_of_a_quality_waits_for_its_initialization(cinema: Cinema) -> None:
    renditions = cinema.renditions(WaitTimeout(seconds=20))
    made = threading.Timer(0.3, lambda: write_segments(cinema.files, cinema.film.id, 720, 1))
    made.start()
    assert read(renditions.initialization(cinema.film, 720, yes)) == b"init"
    assert cinema.queued() == ["720/1"]
    made.join()


def test_a_segment_that_is_not_made_in_time_is_to_be_asked_for_again(cinema: Cinema) -> None:
    with pytest.raises(NotMadeYet):
        cinema.renditions().segment(cinema.film, 720, 2, yes)


def test_a_segment_that_cannot_be_made_says_why(cinema: Cinema) -> None:
    renditions = cinema.renditions()
    with pytest.raises(NotMadeYet):
        renditions.segment(cinema.film, 720, 2, yes)
    cinema.fail(Lane.ON_DEMAND)
    with pytest.raises(RenditionFailed, match=r"The picture is damaged\."):
        cinema.renditions(PATIENT).segment(cinema.film, 720, 2, yes)


def test_a_segment_that_failed_long_ago_is_tried_again(cinema: Cinema) -> None:
    with pytest.raises(NotMadeYet):
        cinema.renditions().segment(cinema.film, 720, 2, yes)
    cinema.fail(Lane.ON_DEMAND)
    later = cinema.renditions(clock=lambda: wall_clock() + FAILED_FOR)
    with pytest.raises(NotMadeYet):
        later.segment(cinema.film, 720, 2, yes)
    assert cinema.queued() == ["720/2"]


def test_an_order_lets_failed_segments_be_tried_again(cinema: Cinema) -> None:
    renditions, film = cinema.renditions(), cinema.film
    for number in (2, 3):
        with pytest.raises(NotMadeYet):
            renditions.segment(film, 720, number, yes)
    cinema.fail(Lane.ON_DEMAND)
    renditions.order(film, 720)
    assert len(cinema.queued()) == 1
    for number in (2, 3):
        with pytest.raises(NotMadeYet):
            renditions.segment(film, 720, number, yes)


def test_what_waits_for_room_says_so(cinema: Cinema) -> None:
    renditions, film = cinema.renditions(), cinema.film
    renditions.order(film, 720)
    cinema.postpone(Lane.BACKGROUND)
    view = renditions.of(film)[0]
    assert (view.state, view.problem) == ("making", FULL)
    with pytest.raises(NotMadeYet):
        renditions.segment(film, 720, 2, yes)
    cinema.postpone(Lane.ON_DEMAND)
    with pytest.raises(NoRoom, match=FULL.detail):
        cinema.renditions(PATIENT).segment(film, 720, 2, yes)
    later = cinema.renditions(clock=lambda: wall_clock() + LEASE)
    with pytest.raises(NotMadeYet):
        later.segment(film, 720, 2, yes)


def test_a_film_whose_beginning_is_damaged_begins_with_a_later_segment(cinema: Cinema) -> None:
    renditions, film = cinema.renditions(), cinema.film
    for _ in range(2):
        with pytest.raises(NotMadeYet):
            renditions.initialization(film, 720, yes)
        cinema.fail(Lane.ON_DEMAND)
    with pytest.raises(NotMadeYet):
        renditions.initialization(film, 720, yes)
    assert cinema.queued() == ["720/3"]
    write_film(cinema.files, cinema.film.id, durations=[8.0, 8.0], ends=[1, 2])
    with pytest.raises(RenditionFailed):
        renditions.initialization(film, 720, yes)


def test_nobody_waits_for_a_client_that_has_left(cinema: Cinema) -> None:
    began = time.monotonic()
    with pytest.raises(NotMadeYet):
        cinema.renditions(WaitTimeout(seconds=60)).segment(cinema.film, 720, 2, lambda: False)
    assert time.monotonic() - began < 30


def test_only_some_requests_wait_and_the_others_queue_nothing(cinema: Cinema) -> None:
    renditions = cinema.renditions(WaitTimeout(seconds=600, most_waiting=2))
    have_left = threading.Event()

    def ask(number: int) -> None:
        with pytest.raises(NotMadeYet):
            renditions.segment(cinema.film, 720, number, lambda: not have_left.is_set())

    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(ask, number) for number in (1, 2)]
        try:
            wait_until(lambda: len(cinema.queued()) == 2, "two wait")
            for number in (3, 4, 5):
                ask(number)
            assert not any(each.done() for each in waiting)
        finally:
            have_left.set()
        for each in waiting:
            each.result()
    assert sorted(cinema.queued()) == ["720/1", "720/2"]


def test_the_queue_of_segments_has_an_end(cinema: Cinema) -> None:
    count = MOST_QUEUED + 4
    write_film(cinema.files, cinema.film.id, durations=[4.0] * count, ends=[1] * count)
    renditions = cinema.renditions(WaitTimeout(seconds=0))
    for number in range(1, count + 1):
        with pytest.raises(NotMadeYet):
            renditions.segment(cinema.film, 720, number, yes)
    assert len(cinema.queued()) == MOST_QUEUED


@pytest.mark.parametrize("number", [0, 6, 10**18])
def test_there_are_no_segments_beyond_the_film(cinema: Cinema, number: int) -> None:
    with pytest.raises(NotMade):
        cinema.renditions().segment(cinema.film, 720, number, yes)
    assert cinema.queued() == []


def test_what_comes_next_is_made_while_somebody_watches(cinema: Cinema) -> None:
    renditions, film = cinema.renditions(), cinema.film
    write_segments(cinema.files, cinema.film.id, 720, 1, 2)
    renditions.segment(film, 720, 1, yes)
    assert cinema.queued() == ["720/3"]
    with pytest.raises(NotMadeYet):
        renditions.segment(film, 720, 5, yes)
    assert cinema.queued() == ["720/5", "720/3"]


def test_watching_what_is_made_writes_nothing_to_the_database(cinema: Cinema) -> None:
    renditions, film = cinema.renditions(), cinema.film
    write_segments(cinema.files, cinema.film.id, 720, 1, 2, 3, 4, 5)
    for number in range(1, 6):
        renditions.segment(film, 720, number, yes)
    assert cinema.world.jobs.of(film.id) == []


def test_it_is_noted_when_a_quality_was_watched_last(cinema: Cinema) -> None:
    write_segments(cinema.files, cinema.film.id, 720, 1, 2, 3)
    later = wall_clock() + timedelta(hours=1)
    files = replace(cinema.files, clock=lambda: later)
    renditions = cinema.renditions()
    renditions.files = files
    renditions.segment(cinema.film, 720, 1, yes)
    assert [bundle.used_at for bundle in files.evictable()] == [later.timestamp()]


def test_segments_may_be_cut_elsewhere_than_those_of_the_original(cinema: Cinema) -> None:
    write_film(cinema.files, cinema.film.id, rung_durations=[2.0] * 9 + [0.5])
    lines = cinema.renditions().playlist(cinema.film, 720).splitlines()
    assert lines[-2] == "10.m4s"
    assert "#EXTINF:0.500000," in lines
