"""The films of one client do not wait for the hostile files of another."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.films import encode, repeat
from tests.deliver.stored import Stored, store
from tests.hostile.conftest import Scaled
from tests.live_server import FFMPEG, Server, command_of, running_server
from tests.video import hostile_indexes
from tests.video.films import FilmStore
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

JUNK_FILES = 8
MOST_WORKER_BYTES = 400 << 20
"""Of the background worker; a hostile film took 1.3 GB of it."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with running_server(tmp_path, **FFMPEG) as server:
        yield server


def playback(stored: Stored) -> dict[str, Any]:
    found: dict[str, Any] = stored.server.get(f"/api/videos/{stored.id}").json()["playback"]
    return found


def state(stored: Stored) -> str:
    return str(playback(stored)["state"])


def peak_bytes(server: Server) -> int:
    """The most memory that the background worker has had."""
    module = "app.run.server.background_worker"
    (worker,) = (each for each in server.processes() if module in command_of(each))
    status = Path(f"/proc/{worker.pid}/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def test_a_film_plays_before_hostile_files_that_came_first_are_done(
    server: Server, film: FilmStore, tmp_path: Path, scaled: Scaled
) -> None:
    encode(tmp_path / "short.mp4", size="960x540", seconds=1, bits_per_second="400k")
    repeat(tmp_path / "short.mp4", tmp_path / "long.mp4", times=15)
    long = store(server, "long.mp4", (tmp_path / "long.mp4").read_bytes())
    wait_until(lambda: bool(playback(long)["renditions"]), "the film is offered in other qualities")
    quality = playback(long)["renditions"][0]["height"]
    server.post(f"/api/videos/{long.id}/renditions/{quality}").raise_for_status()
    films = (
        hostile_indexes.of_many_samples(3_000_000),
        hostile_indexes.of_many_edits(tracks=8, samples=100_000),
        hostile_indexes.of_many_chunks(1_000_000),
    )[: scaled(short=1, long=3)]
    hostile = [store(server, "hostile.mp4", content) for content in films]
    noise = random.Random(14)
    junk = [store(server, f"{n}.mp4", noise.randbytes(50_000)) for n in range(JUNK_FILES)]
    innocent = store(server, "innocent.mp4", film("moov-last.mp4").read_bytes())
    wait_until(lambda: state(innocent) in {"playable", "ready"}, "the innocent film plays")
    assert [state(each) for each in hostile] == ["waiting"] * len(hostile)
    wait_until(lambda: {state(each) for each in junk} == {"unplayable"}, "noise is no film")
    wait_until(lambda: "waiting" not in map(state, hostile), "all are decided", 600)
    assert peak_bytes(server) < MOST_WORKER_BYTES
    assert state(innocent) in {"playable", "ready"}
