"""The steps that make films playable, without a server: what they need, leave and say."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from app.core.errors import NoRoom
from app.core.jobs import (
    INDEX,
    REMUX,
    SOUND,
    Heartbeat,
    Job,
    JobCancelled,
    JobFailed,
    JobState,
    JobYields,
    Lane,
    Step,
)
from app.core.lifecycle import UploadState
from app.core.playback import Playback, PlaybackState
from app.core.upload import Upload
from app.video.make import remux
from app.video.make.ffmpeg import PROBE_LIMITS, VIDEO_FORMATS, Conversion, Ffmpeg, FfmpegTimedOut
from app.video.make.indexing import index
from app.video.make.probe import contents_of
from app.video.make.remux import QUICK_COPY_BYTES, lane_of
from app.video.make.sandbox.process import ProgramLimits, Sink
from app.video.make.sound import encode_sound
from app.video.make.steps import QUICK_CPU_SECONDS
from app.video.make.sweep import MediaSweep
from app.video.serve.source import REMUXED, MediaSource
from tests.long_tests import long
from tests.records.making import new_upload
from tests.storage.stores import local_store
from tests.video.films import FilmStore
from tests.video.films import ffmpeg as make_film
from tests.video.frames import probe, watch
from tests.video.world import World, wall_clock

NOTHING = Ffmpeg(ffmpeg=None, ffprobe=None)


class Lab:
    """Steps on published files, run by hand."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder / "data")
        self.library = folder / "out"
        store = local_store(folder / "in", self.library)
        self.source = MediaSource(store, self.world.files)

    def publish(self, path: Path) -> Upload:
        upload = replace(new_upload(created_at=wall_clock()), filename=path.name)
        video = self.world.uploads.add(replace(upload, state=UploadState.COMPLETE))[0]
        self.library.mkdir(exist_ok=True)
        shutil.copy(path, self.library / video.id)
        self.world.media.add(video.id, wall_clock(), is_planned=True)
        return video

    def run(
        self,
        step: str,
        video: Upload,
        ffmpeg: Ffmpeg,
        beat: Beat | None = None,
        lane: Lane = Lane.ENCODING,
    ) -> Playback:
        tools = self.world.tools(self.source, ffmpeg)
        # Another step may have queued it in the quick lane, which limits CPU time.
        job = replace(self.world.enqueue(video.id, step, lane=lane), lane=lane)
        steps: dict[str, Step] = {
            INDEX: partial(index, tools),
            REMUX: partial(remux.remux, tools),
            SOUND: partial(encode_sound, tools),
        }
        steps[step](job, (beat or Heartbeat)(job))
        assert self.world.half_made() == []
        playback = self.world.media.get(video.id)
        assert playback is not None
        return playback

    def steps_of(self, video: Upload) -> set[str]:
        jobs = self.world.jobs.of(video.id)
        return {job.kind for job in jobs if job.state is JobState.QUEUED} - {INDEX}


Beat = Callable[[Job], Heartbeat]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    with closing(lab.world):
        yield lab


@pytest.fixture
def ffmpeg() -> Ffmpeg:
    return Ffmpeg.find()


def only_ffmpeg() -> Ffmpeg:
    return replace(Ffmpeg.find(), ffprobe=None)


@pytest.mark.parametrize("programs", [only_ffmpeg, *long([Ffmpeg.find])])
def test_a_film_is_probed_remuxed_and_indexed(
    lab: Lab, film: FilmStore, programs: Callable[[], Ffmpeg]
) -> None:
    """Without ffprobe as well: what ffmpeg does not tell of the original, the copy does."""
    video = lab.publish(film("h264.mkv"))
    probed = lab.run(INDEX, video, programs())
    assert (probed.state, probed.problem) == (PlaybackState.PROBED, None)
    assert lab.steps_of(video) == {REMUX}
    lab.run(REMUX, video, programs())
    playable = lab.run(INDEX, video, programs())
    assert playable.state is PlaybackState.PLAYABLE
    facts = playable.facts or {}
    assert [track["codec"] for track in facts["tracks"]] == ["h264", "ac3", "ac3", "subrip"]
    assert [track["language"] for track in facts["tracks"][1:]] == ["en", "de", "en"]
    assert (facts["container"], facts["width"], facts["frame_rate"]) == ("matroska", 160, 25)
    assert len(facts["chapters"]) == 2
    assert lab.run(INDEX, video, programs()).facts == facts


def test_without_ffprobe_no_track_is_lost(film: FilmStore, tmp_path: Path) -> None:
    talkative = tmp_path / "talkative.mkv"
    texts = ["-metadata:s:a:0", "language=en-US", "-metadata", f"comment={'words ' * 10_000}"]
    make_film("-i", str(film("h264.mkv")), "-map", "0:a", "-c", "copy", *texts, str(talkative))
    facts = contents_of(only_ffmpeg().probe(talkative)).facts
    assert facts.container == "matroska"
    assert [track.channels for track in facts.tracks] == [6, 6]


def test_a_film_that_browsers_play_as_it_is_plays_before_it_is_remuxed(
    lab: Lab, film: FilmStore, ffmpeg: Ffmpeg
) -> None:
    video = lab.publish(film("vp9.webm"))
    assert lab.run(INDEX, video, ffmpeg).state is PlaybackState.PLAYABLE
    assert lab.steps_of(video) == {REMUX}


@pytest.mark.parametrize("name", ["garbage.mp4", "text.mp4", "empty.mp4", "picture.avi"])
@pytest.mark.parametrize("programs", [Ffmpeg.find, only_ffmpeg])
def test_what_is_no_film_is_no_failure(
    lab: Lab, film: FilmStore, name: str, programs: Callable[[], Ffmpeg]
) -> None:
    video = lab.publish(film(name))
    playback = lab.run(INDEX, video, programs())
    assert playback.state is PlaybackState.UNPLAYABLE
    assert playback.problem is not None
    assert playback.problem.code == "no_film"
    assert lab.steps_of(video) == set()


@pytest.mark.parametrize("form", ["zip", "tar"])
def test_an_archive_of_films_is_no_film(
    lab: Lab, film: FilmStore, ffmpeg: Ffmpeg, tmp_path: Path, form: str
) -> None:
    """ffprobe finds the film in it."""
    shutil.copy(film("h264.ts"), tmp_path / "h264.ts")
    archive = shutil.make_archive(str(tmp_path / "films"), form, tmp_path, "h264.ts")
    playback = lab.run(INDEX, lab.publish(Path(archive)), ffmpeg)
    assert playback.problem is not None
    assert playback.problem.code == "no_film"


def test_a_file_that_could_not_be_examined_is_not_called_no_film(
    lab: Lab, film: FilmStore, tmp_path: Path
) -> None:
    killed = tmp_path / "ffprobe"
    killed.write_text("#!/bin/sh\nkill -9 $$\n")
    killed.chmod(0o700)
    playback = lab.run(INDEX, lab.publish(film("h264.ts")), replace(Ffmpeg.find(), ffprobe=killed))
    assert playback.problem is not None
    assert playback.problem.code == "not_examined"


def test_damaged_sound_costs_the_picture_nothing(lab: Lab, film: FilmStore, ffmpeg: Ffmpeg) -> None:
    """A copy of such sound fails, so it is encoded, and the picture is copied all the same."""
    video = lab.publish(film("lost-sound.ts"))
    lab.run(REMUX, video, ffmpeg)
    made = lab.world.path(video.id, REMUXED)
    assert picture_digests(made) == picture_digests(film("h264.ts"))
    assert probe(made)["streams"][1]["codec_name"] == "aac"


def picture_digests(path: Path) -> list[str]:
    return [frame.digest for frame in watch(path).frames]


def test_what_cannot_be_prepared_is_not_tried_again(
    lab: Lab, film: FilmStore, ffmpeg: Ffmpeg
) -> None:
    video = lab.publish(film("garbage.mp4"))
    with pytest.raises(JobFailed) as failure:
        lab.run(REMUX, video, ffmpeg)
    assert failure.value.is_final


def test_a_remux_waits_for_room_on_the_disk(
    lab: Lab, film: FilmStore, ffmpeg: Ffmpeg, tmp_path: Path
) -> None:
    huge = tmp_path / "huge.mkv"
    shutil.copy(film("h264.mkv"), huge)
    with huge.open("r+b") as file:
        file.truncate(1 << 43)
    video = lab.publish(film("h264.mkv"))
    (lab.library / video.id).unlink()
    huge.rename(lab.library / video.id)
    with pytest.raises(NoRoom):
        lab.run(REMUX, video, ffmpeg)
    assert lab.world.files.top_names([video.id]) == {video.id: frozenset()}


def test_an_encode_goes_to_a_lane_of_its_own(lab: Lab, film: FilmStore, ffmpeg: Ffmpeg) -> None:
    """There it may take hours, and no other film waits for its pictures."""
    video = lab.publish(film("theora.ogv"))
    with pytest.raises(JobYields) as moved:
        lab.run(REMUX, video, ffmpeg, lane=Lane.BACKGROUND)
    assert moved.value.lane is Lane.ENCODING


@pytest.mark.parametrize(
    ("name", "length", "probed_in", "expected"),
    [
        ("h264.mkv", QUICK_COPY_BYTES, Lane.QUICK, Lane.QUICK),
        ("h264.mkv", QUICK_COPY_BYTES + 1, Lane.QUICK, Lane.BACKGROUND),
        ("h264.mkv", QUICK_COPY_BYTES, Lane.LONG, Lane.BACKGROUND),
        ("theora.ogv", QUICK_COPY_BYTES, Lane.QUICK, Lane.BACKGROUND),
    ],
)
def test_a_short_copy_waits_for_no_segment_that_is_encoded(
    film: FilmStore, ffmpeg: Ffmpeg, name: str, length: int, probed_in: Lane, expected: Lane
) -> None:
    assert lane_of(contents_of(ffmpeg.probe(film(name))), length, probed_in)[0] is expected


def test_a_film_that_was_probed_in_the_long_lane_is_not_probed_again_in_the_quick_one(
    lab: Lab, film: FilmStore, ffmpeg: Ffmpeg
) -> None:
    video = lab.publish(film("h264.mkv"))
    lab.run(INDEX, video, ffmpeg, lane=Lane.LONG)
    lanes = [job.lane for job in lab.world.jobs.of(video.id) if job.kind == REMUX]
    assert lanes == [Lane.BACKGROUND]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted(Ffmpeg):
    """Notes the CPU time of each run of ffprobe, and the number of those of ffmpeg."""

    probes: list[float] = field(default_factory=list)
    runs: list[Conversion] = field(default_factory=list)
    is_slow: bool = False

    def probe(
        self,
        path: Path,
        limits: ProgramLimits = PROBE_LIMITS,
        *,
        formats: str = VIDEO_FORMATS,
        stop: Event | None = None,
    ) -> dict[str, Any]:
        self.probes.append(limits.cpu_seconds)
        if self.is_slow:
            raise FfmpegTimedOut("ffprobe took longer than 2 s")
        return Ffmpeg.find().probe(path, limits, formats=formats, stop=stop)

    def run(
        self,
        conversion: Conversion,
        *,
        on_output: Sink | None = None,
        progress: Callable[[float], object] | None = None,
        stop: Event | None = None,
    ) -> bytes:
        self.runs.append(conversion)
        return Ffmpeg.find().run(conversion, on_output=on_output, progress=progress, stop=stop)


@pytest.mark.parametrize(("is_slow", "runs"), [(True, 0), (False, 1)])
def test_in_the_quick_lane_one_way_is_tried_after_a_short_probe(
    lab: Lab, film: FilmStore, *, is_slow: bool, runs: int
) -> None:
    """The first way fails for this film; ways that fail would add up, to 2 s each."""
    found = Ffmpeg.find()
    programs = Counted(ffmpeg=found.ffmpeg, ffprobe=found.ffprobe, is_slow=is_slow)
    video = lab.publish(film("lost-sound.ts"))
    with pytest.raises(JobYields) as moved:
        lab.run(REMUX, video, programs, lane=Lane.QUICK)
    assert moved.value.lane is Lane.BACKGROUND
    assert (programs.probes, len(programs.runs)) == ([QUICK_CPU_SECONDS], runs)


def test_a_copy_that_takes_long_moves_to_the_lane_of_long_ones(
    lab: Lab, film: FilmStore, ffmpeg: Ffmpeg, monkeypatch: pytest.MonkeyPatch
) -> None:
    video = lab.publish(film("h264.mkv"))
    lab.run(INDEX, video, ffmpeg)
    assert {(job.kind, job.lane) for job in lab.world.jobs.of(video.id)} >= {(REMUX, Lane.QUICK)}

    def impatient(**limits: Any) -> ProgramLimits:
        return replace(ProgramLimits(**limits), wall_seconds=0.001)

    with monkeypatch.context() as patch:
        patch.setattr(remux, "ProgramLimits", impatient)
        with pytest.raises(JobYields) as moved:
            lab.run(REMUX, video, ffmpeg, lane=Lane.QUICK)
    assert moved.value.lane is Lane.BACKGROUND
    assert lab.run(REMUX, video, ffmpeg, lane=Lane.BACKGROUND).state is PlaybackState.PROBED


def test_an_encode_that_fills_the_disk_costs_an_attempt(
    lab: Lab, film: FilmStore, ffmpeg: Ffmpeg, tmp_path: Path
) -> None:
    """Otherwise it begins again every minute, for ever."""
    long = tmp_path / "long.mkv"
    make_film("-stream_loop", "60", "-i", str(film("vp8.webm")), "-c", "copy", str(long))
    video = lab.publish(long)
    with pytest.raises(JobFailed) as failure:
        lab.run(REMUX, video, ffmpeg, FullDisk)
    assert (failure.value.problem.code, failure.value.is_final) == (NoRoom.code, False)


class FullDisk(Heartbeat):
    """What the first look at the disk finds."""

    def __call__(self, progress: float) -> None:
        raise NoRoom("The disk is full.")


@pytest.mark.parametrize(("step", "name"), [(REMUX, "theora.ogv"), (SOUND, "late-ac3.mp4")])
def test_a_lost_job_leaves_nothing(
    lab: Lab, film: FilmStore, ffmpeg: Ffmpeg, step: str, name: str
) -> None:
    video = lab.publish(film(name))
    stopped = Heartbeat(lab.world.enqueue(video.id, step, lane=Lane.ENCODING))
    stopped.stop.set()
    with pytest.raises(JobCancelled):
        lab.run(step, video, ffmpeg, lambda _: stopped)
    assert lab.world.half_made() == []
    assert lab.world.files.top_names([video.id]) == {video.id: frozenset()}


def test_without_ffmpeg_nothing_is_queued_and_later_all_is_found(
    lab: Lab, film: FilmStore, ffmpeg: Ffmpeg
) -> None:
    names = ["h264.mkv", "h264.ts", "moov-last.mp4", "alac.m4a", "text.mp4"]
    videos = [lab.publish(film(name)) for name in names]
    states = [lab.run(INDEX, video, NOTHING).state for video in videos]
    plays, plays_not = PlaybackState.PLAYABLE, PlaybackState.UNPLAYABLE
    assert states == [plays, plays_not, plays, plays_not, plays_not]  # MKV as it is, in Chromium
    assert [lab.steps_of(video) for video in videos] == [set()] * len(videos)
    for video in videos:
        lab.world.jobs.cancel(video.id, INDEX, "", wall_clock())
    sweep(lab, has_ffmpeg=False).plan_unmade()
    assert lab.world.media.unplanned(10) == []
    sweep(lab, has_ffmpeg=True).plan_unmade()
    # A text is no film, whatever is installed.
    assert set(lab.world.media.unplanned(10)) == {video.id for video in videos[:-1]}
    found = [(lab.run(INDEX, video, ffmpeg).state, lab.steps_of(video)) for video in videos]
    assert found == [
        (PlaybackState.PROBED, {REMUX}),
        (PlaybackState.PROBED, {REMUX}),
        (plays, {"pictures"}),
        (PlaybackState.PROBED, {SOUND, "waveform"}),
        (plays_not, set()),
    ]


def sweep(lab: Lab, *, has_ffmpeg: bool) -> MediaSweep:
    return MediaSweep(
        media=lab.world.media,
        uploads=lab.world.uploads,
        files=lab.world.files,
        clock=wall_clock,
        has_ffmpeg=has_ffmpeg,
    )


def test_a_film_whose_sound_cannot_be_encoded_says_so(lab: Lab, film: FilmStore) -> None:
    video = lab.publish(film("late-ac3.mp4"))
    lab.run(INDEX, video, Ffmpeg.find())
    with pytest.raises(JobFailed):
        lab.run(SOUND, video, NOTHING)
    playback = lab.world.media.get(video.id)
    assert playback is not None
    assert playback.state is PlaybackState.PLAYABLE
    assert playback.problem is not None
    assert playback.problem.code == "no_ffmpeg"


def test_a_film_that_could_not_be_remuxed_says_why(
    lab: Lab, film: FilmStore, ffmpeg: Ffmpeg
) -> None:
    video = lab.publish(film("h264.mkv"))
    lab.run(INDEX, video, ffmpeg)
    lab.world.jobs.cancel(video.id, REMUX, "", wall_clock())
    assert sweep(lab, has_ffmpeg=True).conclude(is_recent=False) == 1
    playback = lab.world.media.get(video.id)
    assert playback is not None
    assert playback.state is PlaybackState.UNPLAYABLE
    assert playback.problem is not None


def test_numbers_of_a_hostile_file_are_left_out() -> None:
    stream = {"index": 0, "codec_type": "video", "codec_name": "h264", "tags": {"title": "x" * 999}}
    odd = {
        "width": "inf",
        "height": [],
        "avg_frame_rate": "1/0",
        "bit_rate": "-",
        "side_data_list": 7,
    }
    answer = {
        "streams": [stream | odd, None, 3],
        "format": {"duration": "nan"},
        "chapters": [{}, 5],
    }
    facts = contents_of(answer).facts
    assert (facts.width, facts.height, facts.frame_rate, facts.duration) == (None,) * 4
    assert len(facts.tracks[0].title or "") == 200
    assert contents_of({}).tracks == []
