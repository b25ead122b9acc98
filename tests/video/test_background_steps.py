"""The background steps on real films: what they keep for players, and what they do not do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from math import sin
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from app.core.jobs import SOUND, Heartbeat, JobCancelled, JobFailed, Step
from app.core.playback import PlaybackState
from app.core.upload import UploadId
from app.video.make.ffmpeg import Ffmpeg
from app.video.make.indexing import CHAPTERS, SUBTITLES, write_subtitles
from app.video.make.pictures import PICTURES, POSTER, SPRITE, THUMBNAILS, make_pictures
from app.video.make.sound import (
    FEWEST_POINTS,
    FILE,
    RATE,
    WAVEFORM,
    Peaks,
    encode_sound,
    make_waveform,
)
from app.video.make.video_files import sounds_to_encode
from app.video.serve.derived_files import DerivedFiles
from app.video.serve.facts import MANIFEST, SOUND_FILE, Manifest, Stream
from app.video.serve.source import REMUXED, MediaSource
from tests.derived import place
from tests.storage.stores import local_store
from tests.video.films import FilmStore, ffmpeg
from tests.video.frames import probe
from tests.video.rendition_runner import movie_of
from tests.video.world import World, wall_clock


class Steps:
    """Runs steps on films, without a worker."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder / "data")
        self.source = MediaSource(local_store(folder / "in", folder / "out"), self.world.files)

    def run(
        self, step: str, path: Path, programs: Ffmpeg | None = None, *, is_lost: bool = False
    ) -> UploadId:
        """Run it, and return where its results are."""
        upload_id = self.world.publish()
        self.world.media.add(upload_id, wall_clock(), is_planned=True)
        self.world.media.move(upload_id, PlaybackState.PLAYABLE, wall_clock())
        place(self.world.files, upload_id, REMUXED, path.read_bytes())
        tools = self.world.tools(self.source, programs)
        steps: Mapping[str, Step] = {
            SUBTITLES: partial(write_subtitles, tools),
            PICTURES: partial(make_pictures, tools),
            WAVEFORM: partial(make_waveform, tools),
            SOUND: partial(encode_sound, tools),
        }
        job = self.world.enqueue(upload_id, step)
        beat = Heartbeat(job)
        if is_lost:
            beat.stop.set()
        steps[step](job, beat)
        assert self.world.half_made() == []
        return upload_id

    def made(self, upload_id: UploadId) -> set[str]:
        return set(self.world.files.top_names([upload_id])[upload_id]) - {REMUXED}

    def text(self, upload_id: UploadId, name: str) -> str:
        return self.world.path(upload_id, name).read_text()


@pytest.fixture
def steps(tmp_path: Path) -> Iterator[Steps]:
    steps = Steps(tmp_path)
    with closing(steps.world):
        yield steps


def test_a_film_gets_a_poster_and_a_sprite(steps: Steps, film: FilmStore) -> None:
    made = steps.run(PICTURES, film("h264.mp4"))
    assert steps.made(made) == {POSTER, SPRITE, THUMBNAILS}


@pytest.mark.parametrize("step", [SUBTITLES, PICTURES])
def test_a_file_without_any_is_left_alone(steps: Steps, film: FilmStore, step: str) -> None:
    assert steps.made(steps.run(step, film("sound.m4a"))) == set()


@pytest.mark.parametrize("step", [SUBTITLES, PICTURES, WAVEFORM])
def test_no_film_is_a_failure_that_is_explained(steps: Steps, film: FilmStore, step: str) -> None:
    with pytest.raises(JobFailed, match=r"\.$"):
        steps.run(step, film("garbage.mp4"))


@pytest.mark.parametrize("step", [PICTURES, WAVEFORM])
def test_without_ffmpeg_a_step_fails_for_good(steps: Steps, film: FilmStore, step: str) -> None:
    with pytest.raises(JobFailed, match="ffmpeg is not installed") as caught:
        steps.run(step, film("h264.mp4"), Ffmpeg(ffmpeg=None, ffprobe=None))
    assert caught.value.is_final


def test_subtitles_are_numbered_among_all_text_tracks(
    steps: Steps, film: FilmStore, tmp_path: Path
) -> None:
    """The first text track has no text: there is no file of it, and the second is still second."""
    empty, path = tmp_path / "empty.srt", tmp_path / "two.mp4"
    empty.write_text("1\n00:00:01,000 --> 00:00:02,000\n \n")
    inputs = ["-i", str(film("subtitles.mp4")), "-i", str(empty)]
    maps = ["-map", "0:v", "-map", "1:s", "-map", "0:s", "-c", "copy", "-c:s:0", "mov_text"]
    ffmpeg(*inputs, *maps, str(path))
    made = steps.run(SUBTITLES, path)
    assert steps.made(made) == {"subs-2.vtt"}
    assert "00:00:00.500 --> 00:00:01.500\nGood evening\n" in steps.text(made, "subs-2.vtt")


def test_subtitles_of_a_lost_job_are_not_read_on(steps: Steps, film: FilmStore) -> None:
    with pytest.raises(JobCancelled):
        steps.run(SUBTITLES, film("subtitles.mp4"), is_lost=True)


def test_chapters_follow_each_other_to_the_end(
    steps: Steps, film: FilmStore, tmp_path: Path
) -> None:
    source, path = film("chapters.mp4"), tmp_path / "chapters.mp4"
    path.write_bytes(source.read_bytes().replace(b"Morning", b"A-->\n<i"))
    made = steps.run(SUBTITLES, path)
    end = float(probe(source)["format"]["duration"])
    text = steps.text(made, CHAPTERS)
    assert "\n00:00:00.000 --> 00:00:02.000\n" in text
    assert f"\n00:00:02.000 --> 00:00:{end:06.3f}\nEvening\n" in text
    assert "A--&gt;" in text
    assert "<i" not in text


@pytest.mark.parametrize("name", ["sound.m4a", "sound.mp3"])
def test_a_waveform_is_high_where_it_beeps(steps: Steps, film: FilmStore, name: str) -> None:
    made = json.loads(steps.text(steps.run(WAVEFORM, film(name)), FILE))
    assert made["duration"] == pytest.approx(
        float(probe(film(name))["format"]["duration"]), abs=0.1
    )
    rate = made["points_per_second"]
    loud = [place / rate for place, peak in enumerate(made["peaks"]) if peak > 0.25]
    beeps = [time for before, time in zip([-1.0, *loud], loud, strict=False) if time - before > 0.5]
    assert beeps == pytest.approx([second + 0.5 for second in range(len(beeps))], abs=0.1)
    assert len(beeps) >= 4


def test_a_file_without_sound_has_no_waveform(steps: Steps, film: FilmStore) -> None:
    with pytest.raises(JobFailed, match="No waveform can be made of this file"):
        steps.run(WAVEFORM, film("silent.mp4"))


def sound(seconds: int, level: Callable[[int], int]) -> Iterator[bytes]:
    for second in range(seconds):
        yield pack("<h", level(second)) * RATE


def peaks_of(blocks: Iterator[bytes]) -> dict[str, Any]:
    peaks = Peaks()
    for block in blocks:
        peaks.add(block[:7])
        peaks.add(block[7:])
    peaks.end()
    found: dict[str, Any] = json.loads(peaks.to_json())
    return found


@pytest.mark.parametrize("seconds", [1, 39, 40, 41, 1000])
def test_points_get_longer_rather_than_more(seconds: int) -> None:
    made = peaks_of(sound(seconds, lambda second: -32768 if second == seconds - 1 else 3277))
    peaks, rate = made["peaks"], made["points_per_second"]
    assert made["duration"] == seconds
    assert len(peaks) < 2 * FEWEST_POINTS
    assert len(peaks) == pytest.approx(seconds * rate, abs=1)
    assert peaks.index(1.0) == int((seconds - 1) * rate)
    assert set(peaks) <= {0.1, 1.0}


def test_the_loudest_sample_of_a_point_counts() -> None:
    wave = b"".join(pack("<h", round(16384 * sin(place / 7))) for place in range(RATE))
    assert min(peaks_of(iter([wave]))["peaks"]) >= 0.499


def with_damage(path: Path, target: Path, *, sounds: slice) -> Path:
    """A copy of a film in which nothing of these sounds can be decoded."""
    content = bytearray(path.read_bytes())
    for track in movie_of(path).sounds[sounds]:
        for offset, size in zip(track.samples.offsets, track.samples.sizes, strict=True):
            content[offset : offset + size] = b"\xff" * size
    target.write_bytes(content)
    return target


def test_a_damaged_sound_costs_a_film_no_other(
    steps: Steps, film: FilmStore, tmp_path: Path
) -> None:
    damaged = with_damage(film("late-ac3.mp4"), tmp_path / "damaged.mp4", sounds=slice(1))
    made = steps.run(SOUND, damaged)
    manifest = Manifest.from_json(steps.world.path(made, MANIFEST).read_bytes())
    sounds = [stream for stream in manifest.streams if stream.kind == "audio"]
    assert [(sound.name, sound.language) for sound in sounds] == [("audio-2", "de")]
    playback = steps.world.media.get(made)
    assert playback is not None
    assert playback.problem is not None
    assert playback.problem.code == "sound_damaged"


def test_encoded_sound_appears_together_with_its_streams(
    steps: Steps, film: FilmStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A player reads the playlists once: if they came later, it would play without sound."""
    keep, seen = DerivedFiles.keep, list[tuple[bool, bool]]()

    def keep_and_look(
        files: DerivedFiles, upload_id: UploadId, made: Mapping[str, Path], **options: Any
    ) -> None:
        keep(files, upload_id, made, **options)
        streams: Sequence[Stream] = ()
        with suppress(FileNotFoundError):
            streams = Manifest.from_json(files.read(upload_id, MANIFEST)).streams
        has_sound = any(stream.kind == "audio" for stream in streams)
        seen.append((files.find(upload_id, SOUND_FILE) is not None, has_sound))

    monkeypatch.setattr(DerivedFiles, "keep", keep_and_look)
    steps.run(SOUND, film("late-ac3.mp4"))
    assert seen[-1] == (True, True)
    assert all(is_told == is_there for is_told, is_there in seen)


def test_nothing_is_kept_of_sound_that_cannot_be_decoded(
    steps: Steps, film: FilmStore, tmp_path: Path
) -> None:
    damaged = with_damage(film("late-ac3.mp4"), tmp_path / "damaged.mp4", sounds=slice(2))
    with pytest.raises(JobFailed, match="nothing in it can be decoded"):
        steps.run(SOUND, damaged)
    assert not list(steps.world.files.scratch.root.rglob(f"{SOUND_FILE}*"))


def test_sounds_that_share_an_id_are_left_out(film: FilmStore, tmp_path: Path) -> None:
    content = bytearray(film("late-ac3.mp4").read_bytes())
    last = content.rindex(b"tkhd")
    assert content[last + 16 : last + 20] == (3).to_bytes(4, "big")
    content[last + 16 : last + 20] = (2).to_bytes(4, "big")
    path = tmp_path / "twice.mp4"
    path.write_bytes(content)
    assert sounds_to_encode(movie_of(film("late-ac3.mp4"))) != []
    assert sounds_to_encode(movie_of(path)) == []
