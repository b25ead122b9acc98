"""The steps that make other qualities of real films: what they keep, and when they stop."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from app.core.jobs import Heartbeat, Job, JobCancelled, JobFailed, JobState, JobYields, Lane
from app.core.playback import Made
from app.video.make.ffmpeg import Ffmpeg
from app.video.make.renditions import (
    ENCODED_SHARE,
    NOT_ENCODED,
    SEGMENTS_LOST,
    TOO_LARGE,
    RenditionFile,
    RenditionMaker,
    RenditionMakers,
)
from app.video.make.steps import INTERRUPTED, NO_FFMPEG
from app.video.make.video_files import can_be_rendered
from app.video.serve.derived_files import MARK
from app.video.serve.derived_objects import FolderObjects
from app.video.serve.facts import MANIFEST, SOUND_FILE, Manifest, Stream
from app.video.serve.renditions import (
    ASKED_SECONDS,
    EAGER_PRIORITY,
    ORDERED_PRIORITY,
    RENDITION,
    SEGMENTS,
    left_out,
    priority_at,
    rendition_file,
    rendition_folder,
    segment_file,
)
from app.video.serve.source import REMUXED
from tests.derived import place
from tests.live_server import FFMPEG, Server
from tests.long_tests import long
from tests.video.films import FilmStore, ffmpeg
from tests.video.frames import differences, probe, watch
from tests.video.rendition_runner import CAPABILITY, StepRunner, movie_of
from tests.video.rewritten import with_one_picture_for_all
from tests.video.world import wall_clock
from tests.waiting import wait_until


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[StepRunner]:
    runner = StepRunner(tmp_path)
    with closing(runner.world):
        yield runner


def spoil(path: Path, begin: float, end: float) -> None:
    """Overwrite the pictures that are decoded between these seconds."""
    picture = movie_of(path).picture
    assert picture is not None
    samples = picture.samples
    with path.open("r+b") as file:
        for number, time in enumerate(samples.decode_times):
            if begin <= time / picture.timescale < end:
                file.seek(samples.offsets[number])
                file.write(bytes(samples.sizes[number]))


def test_who_asks_for_a_segment_gets_it_and_those_that_follow(
    runner: StepRunner, film: FilmStore
) -> None:
    video = runner.add(film("hevc-open-gop.mp4"))
    runner.segments(video, 2)
    assert runner.made(video) == {"2", "3"}
    runner.segments(video, 1)
    assert runner.made(video) == {"1", "2", "3"}
    assert runner.world.jobs.of(video) == [], "finished jobs for segments are forgotten"


def test_nothing_is_read_ahead_while_somebody_waits(runner: StepRunner, film: FilmStore) -> None:
    video = runner.add(film("hevc-open-gop.mp4"))
    runner.queue(video, SEGMENTS, "360/3", priority_at(wall_clock() - timedelta(seconds=5)))
    runner.segments(video, 1)
    assert runner.made(video) == {"1"}


def test_a_segment_that_nobody_waits_for_any_more_is_not_made(
    runner: StepRunner, film: FilmStore
) -> None:
    video = runner.add(film("hevc.mp4"))
    long_ago = wall_clock() - timedelta(seconds=2 * ASKED_SECONDS)
    runner.queue(video, SEGMENTS, "360/1", priority_at(long_ago))
    runner.run(runner.claim(Lane.ON_DEMAND))
    assert runner.made(video) == set()


@pytest.mark.parametrize("argument", ["360/0", "360/3", "720/1"])
def test_what_the_film_does_not_have_is_refused_for_good(
    runner: StepRunner, film: FilmStore, argument: str
) -> None:
    video = runner.add(film("hevc.mp4"))
    runner.queue(video, SEGMENTS, argument, priority_at(wall_clock()))
    with pytest.raises(JobFailed, match=r"\.$") as caught:
        runner.run(runner.claim(Lane.ON_DEMAND))
    assert caught.value.is_final


def test_without_ffmpeg_a_segment_fails_for_good(runner: StepRunner, film: FilmStore) -> None:
    with pytest.raises(JobFailed, match="not installed") as caught:
        runner.segments(runner.add(film("hevc.mp4")), 1, Ffmpeg(ffmpeg=None, ffprobe=None))
    assert (caught.value.problem.code, caught.value.is_final) == (NO_FFMPEG, True)


@pytest.mark.parametrize("name", ["av1.mp4", *long(["hevc-open-gop.mp4"])])
def test_a_rendition_is_the_whole_film_with_its_sound(
    runner: StepRunner, film: FilmStore, name: str
) -> None:
    made = runner.rendition(runner.add(film(name)))
    assert differences(watch(film(name)), watch(made), same_pixels=False) == []
    content = made.read_bytes()
    assert content.index(b"moov") < content.index(b"mdat")
    assert [stream["codec_name"] for stream in probe(made)["streams"]] == [
        "h264",
        probe(film(name))["streams"][1]["codec_name"],
    ]


def test_sound_that_browsers_do_not_play_is_taken_from_where_it_was_converted(
    runner: StepRunner, film: FilmStore, tmp_path: Path
) -> None:
    video = runner.add(film("prores.mov"))
    ffmpeg("-i", str(film("prores.mov")), "-vn", "-c:a", "aac", str(tmp_path / SOUND_FILE))
    runner.world.files.keep(video, {SOUND_FILE: tmp_path / SOUND_FILE})
    made = runner.rendition(video)
    assert differences(watch(film("prores.mov")), watch(made), same_pixels=False) == []
    assert [stream["codec_name"] for stream in probe(made)["streams"]] == ["h264", "aac"]


def test_a_rendition_tells_its_progress_and_uses_what_there_is(
    runner: StepRunner, film: FilmStore
) -> None:
    video = runner.add(film("hevc.mp4"))
    runner.segments(video, 2)
    there = runner.world.path(video, f"{rendition_folder(360)}/2.m4s")
    made_at = there.stat().st_mtime_ns
    job = runner.queue(video, RENDITION, "360", ORDERED_PRIORITY)
    beat = Heartbeat(job)
    runner.run(runner.claim(Lane.BACKGROUND), beat)
    assert there.stat().st_mtime_ns == made_at
    assert 0.9 < beat.progress <= 1


def test_a_rendition_makes_way_for_what_is_more_urgent(runner: StepRunner, film: FilmStore) -> None:
    video, other = runner.add(film("hevc.mp4")), runner.add(film("hevc.mp4"))
    runner.queue(video, RENDITION, "360", EAGER_PRIORITY)
    job = runner.claim(Lane.BACKGROUND)
    runner.queue(other, RENDITION, "360", ORDERED_PRIORITY)
    with pytest.raises(JobYields):
        runner.run(job)
    assert runner.made(video) == {"1"}
    now = wall_clock()
    assert runner.world.jobs.postpone(job, None, now, timedelta())
    assert runner.claim(Lane.BACKGROUND).upload_id == other
    next_job = runner.claim(Lane.BACKGROUND)
    assert (next_job.upload_id, next_job.attempts) == (video, 1)


def test_a_lost_job_is_stopped(runner: StepRunner, film: FilmStore) -> None:
    video = runner.add(film("hevc.mp4"))
    for step, argument in ((SEGMENTS, "360/1"), (RENDITION, "360")):
        job = runner.queue(video, step, argument, priority_at(wall_clock()))
        beat = Heartbeat(job)
        beat.stop.set()
        with pytest.raises(JobCancelled):
            runner.run(runner.claim(job.lane), beat)
    assert runner.made(video) == set()


def test_segments_of_another_encoder_are_not_mixed(runner: StepRunner, film: FilmStore) -> None:
    video = runner.add(film("hevc.mp4"))
    runner.segments(video, 1)
    assert runner.made(video) == {"1", "2"}
    runner.capability = replace(CAPABILITY, encoder="newer")
    runner.segments(video, 2)
    assert runner.made(video) == {"2"}


class Unasked(FolderObjects):
    """Like a bucket, it does not look whether an object is there."""

    def has(self, _file: Made) -> bool:
        return True


def test_a_rendition_whose_mark_was_lost_in_a_bucket_is_made_again(
    runner: StepRunner, film: FilmStore
) -> None:
    video = runner.add(film("hevc.mp4"))
    runner.segments(video, 1)
    runner.world.path(video, f"{rendition_folder(360)}/{MARK}").unlink()
    files = runner.world.files
    runner.world.files = replace(files, objects=Unasked(files.scratch.root))
    runner.segments(video, 2)
    assert runner.made(video) == {"2"}


def test_a_segment_unlike_the_others_is_not_kept(runner: StepRunner, film: FilmStore) -> None:
    video = runner.add(film("hevc.mp4"))
    runner.segments(video, 2)
    runner.world.path(video, f"{rendition_folder(360)}/init.mp4").write_bytes(b"another")
    with pytest.raises(JobFailed, match="differently from the others"):
        runner.segments(video, 1)
    assert runner.made(video) == {"2"}


@pytest.mark.parametrize(
    ("name", "number", "begin", "end"),
    [
        ("hevc-open-gop.mp4", 1, 0.0, 4.7),
        ("open-gop.mp4", 2, 4.9, 8.9),
        *long(
            [
                ("hevc-open-gop.mp4", 2, 4.7, 9.5),
                ("open-gop.mp4", 1, 0.0, 4.9),
            ]
        ),
    ],
)
def test_a_part_that_is_damaged_fails_and_the_rest_is_made(
    runner: StepRunner, film: FilmStore, name: str, number: int, begin: float, end: float
) -> None:
    """One of three segments has nothing but leading pictures of the next one's key frame."""
    video = runner.add(film(name))
    place = runner.world.path(video, REMUXED)
    original = watch(place)
    spoil(place, begin, end)
    with pytest.raises(JobFailed, match="cannot be converted") as caught:
        runner.segments(video, number)
    assert (caught.value.problem.code, caught.value.is_final) == (NOT_ENCODED, True)
    shown = watch(runner.rendition(video))
    expected = [frame for frame in original.frames if not begin <= frame.time < end + 0.2]
    found = [frame for frame in shown.frames if not begin <= frame.time < end + 0.2]
    assert [frame.time for frame in found] == [frame.time for frame in expected]
    assert [frame.number for frame in found] == [frame.number for frame in expected]
    assert runner.made(video) == {"1", "2", "3"} - {str(number)}
    assert left_out(runner.world.files, video, 360) == {number}


def test_a_rendition_is_not_begun_without_room_for_all_of_it(
    runner: StepRunner, film: FilmStore, tmp_path: Path
) -> None:
    """It says what it takes; a film whose sound overlaps is refused."""
    video = runner.add(film("hevc.mp4"))
    made = runner.rendition(video)
    with RenditionMakers(runner.tools()).of(video, 360) as maker:
        size = RenditionFile.of(maker).size
        assert 0.8 * made.stat().st_size < size < made.stat().st_size
        sound = maker.movie.sounds[0]
        much = array("I", [maker.movie.length]) * len(sound.samples)
        hostile = replace(sound, samples=replace(sound.samples, sizes=much))
        movie = replace(maker.movie, tracks=(hostile,))
        with pytest.raises(JobFailed, match="more space"):
            RenditionFile.of(replace(maker, movie=movie))


def test_a_damaged_part_is_tried_once_whoever_waits(runner: StepRunner, film: FilmStore) -> None:
    """A rendition makes way after each part, and goes on after the last one."""
    video, other = runner.add(film("hevc.mp4")), runner.add(film("hevc.mp4"))
    spoil(runner.world.path(video, REMUXED), 0, 4.7)
    runner.queue(video, RENDITION, "360", EAGER_PRIORITY)
    job = runner.claim(Lane.BACKGROUND)
    runner.queue(other, RENDITION, "360", ORDERED_PRIORITY)
    for made in (set(), {"2"}):
        with pytest.raises(JobYields):
            runner.run(job)
        assert runner.made(video) == made


def test_an_encoder_that_was_killed_leaves_no_gap(
    runner: StepRunner, film: FilmStore, tmp_path: Path
) -> None:
    """As the kernel kills it when memory is short."""
    program = tmp_path / "ffmpeg"
    program.write_text("#!/bin/sh\nkill -KILL $$\n")
    program.chmod(0o755)
    killed = replace(Ffmpeg.find(), ffmpeg=program, layers=frozenset())
    video = runner.add(film("hevc.mp4"))
    for step, argument in ((SEGMENTS, "360/1"), (RENDITION, "360")):
        job = runner.queue(video, step, argument, priority_at(wall_clock()))
        with pytest.raises(JobFailed, match="SIGKILL") as caught:
            runner.run(runner.claim(job.lane), programs=killed)
        assert (caught.value.problem.code, caught.value.is_final) == (INTERRUPTED, False)
    assert left_out(runner.world.files, video, 360) == set()


class Deleting(Heartbeat):
    """Somebody deletes the rendition when it has come so far; its files, too, if there are any."""

    def __init__(self, job: Job, runner: StepRunner, *, progress: float, has_files: bool) -> None:
        super().__init__(job)
        self._runner, self._at, self._has_files = runner, progress, has_files

    def __call__(self, progress: float) -> None:
        super().__call__(progress)
        if progress >= self._at:
            self._runner.world.jobs.drop(self.job.upload_id, RENDITION, prefix="360")
            if self._has_files:
                self._runner.world.files.discard(self.job.upload_id, rendition_folder(360))


@pytest.mark.parametrize(
    ("progress", "has_files"), [(0.4, True), (0.95, False), *long([(0.95, True)])]
)
def test_of_a_rendition_that_is_deleted_meanwhile_nothing_is_left(
    runner: StepRunner, film: FilmStore, progress: float, has_files: bool
) -> None:
    video = runner.add(film("hevc.mp4"))
    runner.queue(video, RENDITION, "360", ORDERED_PRIORITY)
    job = runner.claim(Lane.BACKGROUND)
    with pytest.raises((JobFailed, JobCancelled)):
        runner.run(job, Deleting(job, runner, progress=progress, has_files=has_files))
    assert not runner.world.path(video, rendition_file(360)).exists()


class RenewedElsewhere(Heartbeat):
    """While the segments are joined, a node with another encoder makes its own."""

    def __init__(self, job: Job, makers: RenditionMakers) -> None:
        super().__init__(job)
        self._makers: RenditionMakers | None = makers

    def __call__(self, progress: float) -> None:
        super().__call__(progress)
        if progress >= ENCODED_SHARE and self._makers is not None:
            makers, self._makers = self._makers, None
            with makers.of(self.job.upload_id, 360) as maker:
                for number in (1, 2):
                    maker.make(number, threading.Event(), wall_seconds=60)


def test_segments_of_another_encoder_are_not_joined_with_others(
    runner: StepRunner, film: FilmStore
) -> None:
    video = runner.add(film("hevc.mp4"))
    job = runner.queue(video, RENDITION, "360", ORDERED_PRIORITY)
    newer = replace(runner.tools(), capability=lambda: replace(CAPABILITY, encoder="newer"))
    with pytest.raises(JobFailed) as caught:
        runner.run(runner.claim(Lane.BACKGROUND), RenewedElsewhere(job, RenditionMakers(newer)))
    assert caught.value.problem.code == SEGMENTS_LOST[0]
    assert not runner.world.path(video, rendition_file(360)).exists()
    assert runner.made(video) == {"1", "2"}


def test_a_segment_that_is_replaced_is_not_joined(
    runner: StepRunner, film: FilmStore, tmp_path: Path
) -> None:
    video = runner.add(film("hevc.mp4"))
    runner.rendition(video)
    with RenditionMakers(runner.tools()).of(video, 360) as maker:
        whole = RenditionFile.of(maker)
        place(runner.world.files, video, segment_file(360, 2), b"of another encoder")
        with pytest.raises(JobFailed) as caught:
            whole.write(tmp_path / "made", lambda: None)
    assert caught.value.problem.code == SEGMENTS_LOST[0]


def test_a_rendition_that_another_maker_has_just_prepared_is_not_discarded(
    runner: StepRunner, film: FilmStore
) -> None:
    """Both have found the mark of an older encoder."""
    video = runner.add(film("hevc.mp4"))
    runner.segments(video, 2)
    assert runner.made(video) == {"2"}
    runner.capability = replace(CAPABILITY, encoder="newer")
    prepared, found = RenditionMaker.prepare, RenditionMaker._mark

    def prepare(maker: RenditionMaker) -> None:
        outdated = found(maker)
        prepared(maker)
        maker.make(2, threading.Event(), wall_seconds=60)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(RenditionMaker, "_mark", lambda _: outdated)
            prepared(maker)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RenditionMaker, "prepare", prepare)
        runner.segments(video, 1)
    assert runner.made(video) == {"1", "2"}


def test_a_film_whose_samples_overlap_takes_no_room(
    runner: StepRunner, film: FilmStore, tmp_path: Path
) -> None:
    """Its segments would be copies of all samples since the last key frame."""
    hostile = tmp_path / "hostile.mp4"
    with_one_picture_for_all(film("hevc.mp4"), hostile)
    video = runner.add(hostile)
    for make in (lambda: runner.segments(video, 1), lambda: runner.rendition(video)):
        with pytest.raises(JobFailed, match="too much") as caught:
            make()
        assert (caught.value.problem.code, caught.value.is_final) == (TOO_LARGE, True)


def test_a_film_in_which_nothing_can_be_decoded_fails(runner: StepRunner, film: FilmStore) -> None:
    video = runner.add(film("hevc.mp4"))
    spoil(runner.world.path(video, REMUXED), 0, 100)
    with pytest.raises(JobFailed, match="cannot be converted"):
        runner.rendition(video)


def test_a_manifest_of_an_earlier_version_is_renewed(runner: StepRunner, film: FilmStore) -> None:
    """Players count segments by it, so it must know how other qualities are cut."""
    video = runner.add(film("long-gop.mp4"))
    place = runner.world.path(video, MANIFEST)
    stream = Manifest.from_json(place.read_bytes()).picture
    assert stream is not None
    assert len(stream.rung_durations) > len(stream.durations)
    place.write_bytes(Manifest([replace(stream, rung_durations=())]).to_json())
    with pytest.raises(JobFailed, match="does not make this rendition"):
        runner.segments(video, 1)
    stored = runner.world.files.read(video, MANIFEST)
    assert Manifest.from_json(stored).picture == stream


def test_pictures_that_browsers_cannot_decode_are_offered_in_other_qualities_alone(
    runner: StepRunner, film: FilmStore
) -> None:
    video = runner.add(film("prores.mov"))
    stored = runner.world.path(video, MANIFEST).read_bytes()
    picture = Manifest.from_json(stored).picture
    assert picture is not None
    assert not picture.is_played
    runner.segments(video, 1)
    assert runner.made(video) == {"1"}


def test_what_can_be_rendered_is_known_before_anything_is_made(film: FilmStore) -> None:
    for name in ("prores.mov", "mpeg2.mp4", "h264.mp4"):
        assert can_be_rendered(movie_of(film(name)), CAPABILITY)
        assert not can_be_rendered(movie_of(film(name)), None)
    assert not can_be_rendered(movie_of(film("sound.m4a")), CAPABILITY)
    slow = replace(CAPABILITY, megapixels_per_second=0.01)
    assert can_be_rendered(movie_of(film("h264.mp4")), slow)
    assert not can_be_rendered(movie_of(film("long-gop.mp4")), slow), "its key frames are rare"


def test_jobs_that_failed_stay_to_say_why(runner: StepRunner, film: FilmStore) -> None:
    video = runner.add(film("hevc.mp4"))
    runner.queue(video, SEGMENTS, "360/7", priority_at(wall_clock()))
    job = runner.claim(Lane.ON_DEMAND)
    with pytest.raises(JobFailed) as caught:
        runner.run(job)
    now: datetime = wall_clock()
    assert runner.world.jobs.fail(job, caught.value.problem, now, retry_after=None)
    assert [each.state for each in runner.world.jobs.of(video)] == [JobState.FAILED]


@pytest.mark.e2e
def test_an_eager_server_makes_all_qualities_unasked(
    start_server: Callable[..., Server], film: FilmStore
) -> None:
    server = start_server(SLUICE_RENDITIONS="eager", **FFMPEG)
    with film("hevc.mp4").open("rb") as file:
        video = server.post("/upload", files={"file": ("film.mp4", file)}).json()["id"]

    def states() -> list[str]:
        playback = server.get(f"/api/videos/{video}").json()["playback"]
        return [rendition["state"] for rendition in playback["renditions"]]

    wait_until(lambda: states() == ["ready"], "the only one is made")


@pytest.mark.parametrize("name", ["open-gop.mp4", "open-gop-cut.mp4"])
def test_a_film_with_open_groups_says_so(runner: StepRunner, film: FilmStore, name: str) -> None:
    assert source_of(runner, film("h264.mp4")).has_open_groups is False
    assert source_of(runner, film(name)).has_open_groups is True


def source_of(runner: StepRunner, path: Path) -> Stream:
    place = runner.world.path(runner.add(path), MANIFEST)
    picture = Manifest.from_json(place.read_bytes()).picture
    assert picture is not None
    return picture
