"""Workers that are killed, and jobs that are cancelled, while a film is made in another quality."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest

from app.core.upload import UploadId
from app.video.make.ffmpeg import Ffmpeg
from app.video.serve.renditions import ORDERED_PRIORITY, RENDITION, rendition_file
from tests.derived import names_of
from tests.video.films import FilmStore
from tests.video.rendition_runner import StepRunner
from tests.video.world import wall_clock
from tests.waiting import wait_until


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[StepRunner]:
    runner = StepRunner(tmp_path)
    with closing(runner.world):
        yield runner


def work_until_killed(folder: Path) -> None:
    """A worker process."""
    runner = StepRunner(folder)
    runner.worker("killed").start()
    threading.Event().wait()


def test_a_killed_worker_leaves_nothing_half_made(
    runner: StepRunner, film: FilmStore, tmp_path: Path
) -> None:
    video, other = (runner.add(film("hevc-open-gop.mp4")) for _ in range(2))
    runner.rendition(other)
    runner.queue(video, RENDITION, "360", ORDERED_PRIORITY)

    def is_whole() -> bool:
        return runner.world.path(video, rendition_file(360)).exists()

    for pause in (0.05, 0.3):
        process = get_context("spawn").Process(target=work_until_killed, args=(tmp_path,))
        process.start()
        wait_until(lambda: runner.world.half_made() or is_whole(), "it makes something")
        time.sleep(pause)
        process.kill()
        process.join()
        wait_until(lambda: not programs_in(tmp_path), "its ffmpeg has ended, too")
    worker = runner.worker("next")
    worker.start()
    wait_until(is_whole, "another worker has finished it")
    wait_until(lambda: not runner.world.half_made(), "the rest is gone")
    worker.stop(60)
    assert content(runner, video) == content(runner, other)


def test_a_cancelled_rendition_stops_its_encoder(
    runner: StepRunner, film: FilmStore, tmp_path: Path
) -> None:
    video = runner.add(film("hevc-open-gop.mp4"))
    runner.queue(video, RENDITION, "360", ORDERED_PRIORITY)
    worker = runner.worker("cancelled", slow_ffmpeg(tmp_path))
    worker.start()
    wait_until(lambda: programs_in(tmp_path), "it encodes")
    assert runner.world.jobs.cancel(video, RENDITION, "360", wall_clock())
    wait_until(lambda: (RENDITION, "cancelled") in runner.world.outcomes, "it has stopped")
    worker.stop(60)
    wait_until(lambda: not programs_in(tmp_path), "the encoder has ended, and what it has begun")
    assert runner.world.half_made() == []
    assert runner.made(video) == set()


def slow_ffmpeg(folder: Path) -> Ffmpeg:
    """It takes ten minutes longer for everything."""
    real, program = Ffmpeg.find(), folder / "ffmpeg"
    program.write_text(f'#!/bin/sh\n{real.ffmpeg} "$@"\nsleep 600\n')
    program.chmod(0o755)
    return replace(real, ffmpeg=program, layers=frozenset())


def programs_in(folder: Path) -> list[str]:
    """The command lines of processes that work in a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):
            if path.resolve().is_relative_to(folder):
                found.append((path.parent / "cmdline").read_text())
    return found


def content(runner: StepRunner, video: UploadId) -> dict[str, bytes]:
    files = runner.world.files
    return {name: files.read(video, name) for name in names_of(files, video)}
