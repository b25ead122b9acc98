"""Runs of the real ffmpeg and ffprobe: results, progress, ends, and errors in words."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.video.make.ffmpeg import (
    Conversion,
    Ffmpeg,
    FfmpegError,
    FfmpegFailed,
    FfmpegMissing,
    FfmpegStopped,
    FfmpegTimedOut,
    guarded,
    reason,
)
from app.video.make.sandbox.process import ProgramExit, ProgramLimits

LIMITS = ProgramLimits(
    cpu_seconds=60, wall_seconds=60, memory_bytes=1024**3, output_bytes=64 * 1024**2
)
ENDLESS = ("-f", "lavfi", "-i", "testsrc2=size=320x180", "-f", "null", "-")
FRAME_BYTES = 320 * 180 * 3 // 2


@pytest.fixture(scope="module")
def ffmpeg() -> Ffmpeg:
    found = Ffmpeg.find()
    if found.ffmpeg is None or found.ffprobe is None:
        pytest.skip("needs ffmpeg")
    return found


@pytest.fixture(scope="module")
def film(ffmpeg: Ffmpeg, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seconds of 320x180 at 25 frames a second, with sound."""
    folder = tmp_path_factory.mktemp("film")
    arguments = ["-f", "lavfi", "-i", "testsrc2=size=320x180:duration=2"]
    arguments += ["-f", "lavfi", "-i", "sine=duration=2", "-c:v", "libx264"]
    arguments += ["-movflags", "+faststart", "film.mp4"]
    ffmpeg.run(
        Conversion(
            arguments=arguments,
            writable=folder,
            limits=LIMITS,
            formats="lavfi",
        )
    )
    return folder / "film.mp4"


def as_raw(film: Path) -> list[str]:
    return ["-i", str(film), "-an", "-f", "rawvideo", "-"]


def failure(ffmpeg: Ffmpeg, *arguments: str, **changes: Any) -> str:
    """The error's text of a run that fails."""
    with pytest.raises(FfmpegFailed) as caught:
        ffmpeg.run(Conversion(arguments, **{"limits": LIMITS, **changes}))
    return str(caught.value)


def test_the_version_is_a_word(ffmpeg: Ffmpeg) -> None:
    assert ffmpeg.version()[0].isalnum()
    assert " " not in ffmpeg.version()


def test_a_film_is_probed(ffmpeg: Ffmpeg, film: Path) -> None:
    found = ffmpeg.probe(film)
    assert [stream["codec_type"] for stream in found["streams"]] == ["video", "audio"]
    assert float(found["format"]["duration"]) == pytest.approx(2, abs=0.1)
    assert found["chapters"] == []


def test_a_run_returns_what_ffmpeg_writes(ffmpeg: Ffmpeg, film: Path) -> None:
    output = ffmpeg.run(Conversion(as_raw(film), readable=[film], limits=LIMITS))
    assert len(output) == 50 * FRAME_BYTES


def test_output_can_be_taken_as_it_comes(ffmpeg: Ffmpeg, film: Path) -> None:
    blocks: list[int] = []
    output = ffmpeg.run(
        Conversion(
            arguments=as_raw(film), readable=[film], limits=replace(LIMITS, output_bytes=1000)
        ),
        on_output=lambda block: blocks.append(len(block)),
    )
    assert output == b""
    assert sum(blocks) == 50 * FRAME_BYTES


def test_progress_is_told_in_seconds_of_the_result(ffmpeg: Ffmpeg, tmp_path: Path) -> None:
    told: list[float] = []
    arguments = ["-re", "-f", "lavfi", "-i", "sine=duration=2", "sound.wav"]
    ffmpeg.run(
        Conversion(
            arguments=arguments,
            writable=tmp_path,
            limits=LIMITS,
            formats="lavfi",
        ),
        progress=told.append,
    )
    assert told == sorted(told)
    assert 0 < told[-1] <= 2.1


def test_what_the_progress_raises_ends_the_run(ffmpeg: Ffmpeg) -> None:
    def cancel(_: float) -> None:
        raise KeyError("cancelled")

    with pytest.raises(KeyError):
        ffmpeg.run(Conversion(ENDLESS, limits=LIMITS, formats="lavfi"), progress=cancel)


def test_an_event_stops_a_run(ffmpeg: Ffmpeg) -> None:
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    with pytest.raises(FfmpegStopped):
        ffmpeg.run(Conversion(ENDLESS, limits=LIMITS, formats="lavfi"), stop=stop)


def test_a_run_times_out(ffmpeg: Ffmpeg) -> None:
    limits = replace(LIMITS, wall_seconds=0.5)
    with pytest.raises(FfmpegTimedOut, match=r"took longer than 0\.5 s"):
        ffmpeg.run(Conversion(ENDLESS, limits=limits, formats="lavfi"))


def test_limits_are_named_when_they_are_met(ffmpeg: Ffmpeg, film: Path, tmp_path: Path) -> None:
    small = replace(LIMITS, output_bytes=100_000)
    raw = as_raw(film)
    assert failure(ffmpeg, *raw, readable=[film], limits=small) == (
        "ffmpeg wrote more than 100000 bytes"
    )
    raw[-1] = "film.raw"
    assert failure(ffmpeg, *raw, readable=[film], writable=tmp_path, limits=small) == (
        "ffmpeg wrote more than 100000 bytes"
    )
    brief = replace(LIMITS, cpu_seconds=1)
    assert failure(ffmpeg, *ENDLESS, formats="lavfi", limits=brief) == (
        "ffmpeg needed more than 1 s of CPU time"
    )


def test_errors_are_one_line_without_paths(ffmpeg: Ffmpeg, film: Path, tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.mp4"
    garbage.write_bytes(b"garbage" * 1000)
    error = failure(ffmpeg, *as_raw(garbage), readable=[garbage])
    assert error == "Invalid data found when processing input"
    odd = ["-i", str(film), "-vf", "nonsense", "-f", "null", "-"]
    assert "filter" in failure(ffmpeg, *odd, readable=[film]).lower()
    assert failure(ffmpeg, *as_raw(film)) == "Permission denied"
    with pytest.raises(FfmpegFailed) as caught:
        ffmpeg.probe(garbage)
    assert str(caught.value) == "Invalid data found when processing input"


@pytest.mark.parametrize(
    ("status", "errors", "words"),
    [
        (1, b"[mov @ 0x5581]  moov atom not found\n\n", "moov atom not found"),
        (1, b"", "ffmpeg ended with status 1"),
        (1, b"/srv/media/ab/film.mp4: Odd\x1b[0m\nConversion failed!\n", "Odd[0m"),
        (1, b"x: Cannot allocate memory\n", "ffmpeg needed more than 1024 MiB of memory"),
        (-11, b"noise", "ffmpeg crashed (SIGSEGV)"),
        (-9, b"", "ffmpeg crashed (SIGKILL)"),
        (126, b"No such file", "ffmpeg could not be started in the sandbox: No such file"),
        (1, b"a" * 1000, "a" * 200),
    ],
)
def test_a_reason_is_short(status: int, errors: bytes, words: str) -> None:
    assert reason("ffmpeg", ProgramExit(status, errors, 0.1), LIMITS) == words


def test_every_input_has_the_limits_of_an_input() -> None:
    found = guarded(["-ss", "5", "-i", "a", "-i", "b", "-map", "0", "out.mp4"], "mov")
    assert found.count("-format_whitelist") == found.count("-protocol_whitelist") == 2
    assert found[:2] == ["-ss", "5"]
    assert found[-3:] == ["-map", "0", "out.mp4"]


def test_what_is_missing_is_said(ffmpeg: Ffmpeg, film: Path) -> None:
    nothing = Ffmpeg(ffmpeg=None, ffprobe=None)
    static = Ffmpeg(ffmpeg=ffmpeg.ffmpeg, ffprobe=None)
    with pytest.raises(FfmpegMissing):
        nothing.run(Conversion(as_raw(film), readable=[film], limits=LIMITS))
    for found, code in ((nothing, "no_ffmpeg"), (static, "no_ffprobe")):
        (problem,) = found.problems()
        assert (problem.code, problem.is_fatal) == (code, False)
    assert ffmpeg.problems() == []
    assert issubclass(FfmpegMissing, FfmpegError)
