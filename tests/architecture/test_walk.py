"""How far a request travels through our code, counted in a worker of a real server.

`.venv/bin/python -m pytest tests/architecture/test_walk.py -s` prints the walk of a chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path

import pytest
import requests

from tests.live_server import NO_FFMPEG, Server, running_server
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

TUS = {"Tus-Resumable": "1.0.0"}
CHUNK_BYTES = 64 * 1024

WATCHER = """
import os, sys, threading

APP = os.environ["WALK_APP"]

def note(frame, event, _argument):
    file = frame.f_code.co_filename
    if event == "call" and file.startswith(APP):
        thread = f"{os.getpid()}.{threading.get_ident()}"
        with open(os.environ["WALK_FILE"], "a") as walk:
            print(thread, file[len(APP):], frame.f_code.co_name, file=walk)

threading.setprofile(note)
"""
"""A `sitecustomize` module: each thread that a process starts writes down the calls of our code."""


@dataclass(frozen=True)
class Walk:
    """The calls of one request, in order, each as a file below `app` and a function."""

    calls: list[tuple[str, str]]

    @property
    def files(self) -> int:
        return len({file for file, _ in self.calls})

    @property
    def moves(self) -> int:
        """How often the next call is in another room than the one before."""
        rooms = [file.partition("/")[0] for file, _ in self.calls]
        return sum(before != after for before, after in pairwise(rooms))

    def __str__(self) -> str:
        lines, file = [], ""
        for here, function in self.calls:
            lines.append(f"    {function}" if here == file else f"{here}\n    {function}")
            file = here
        counts = f"{self.files} files, {len(self.calls)} calls, {self.moves} moves between rooms"
        return "\n".join([*lines, counts])


class Walked:
    """A server with one worker, whose request threads write down their calls."""

    def __init__(self, server: Server, file: Path) -> None:
        self.server = server
        self._file = file

    def walk(
        self, request: Callable[[], requests.Response], *, past: tuple[str, str] | None = None
    ) -> Walk:
        """The calls of a request: the shortest walk of six of its kind, of those that pass `past`.

        Two before them fill caches; a busy machine delivers a body in pieces, each with calls of
        its own, or all of it with the headers.
        """
        walks = [self._walk(request) for _ in range(8)][2:]
        passing = [walk for walk in walks if past is None or past in walk.calls]
        assert passing, walks[-1]
        return min(passing, key=lambda walk: len(walk.calls))

    def _walk(self, request: Callable[[], requests.Response]) -> Walk:
        self._file.write_text("")
        answer = request()
        assert answer.ok, answer.text
        wait_until(self._has_ended, "the worker is done with the request")
        lines = [line.split() for line in self._file.read_text().splitlines()]
        # The other processes, and the other threads, have work of their own, such as the last line
        # of the log about the request before.
        ours = [thread for thread, _, function in lines if function == "access"][-1]
        return Walk([(file, function) for thread, file, function in lines if thread == ours])

    def _has_ended(self) -> bool:
        """Whether the request was logged, and its connection waits for the next one."""
        _, logged, after = self._file.read_text().rpartition(" access\n")
        return bool(logged) and " _keepalive_after\n" in after


@contextmanager
def walked_server(folder: Path) -> Iterator[Walked]:
    watcher, file = folder / "watcher", folder / "walk"
    watcher.mkdir()
    (watcher / "sitecustomize.py").write_text(WATCHER)
    options = {
        "PYTHONPATH": str(watcher),
        "WALK_FILE": str(file),
        "WALK_APP": f"{Path(__file__).parents[2] / 'app'}/",
        "SLUICE_WORKERS": "1",
        "SLUICE_THREADS": "1",
    }
    with running_server(folder, **NO_FFMPEG, **options) as server:
        yield Walked(server, file)


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walked]:
    with walked_server(tmp_path_factory.mktemp("walk")) as walked:
        yield walked


def test_a_health_check_passes_few_files(walked: Walked) -> None:
    walk = walked.walk(lambda: walked.server.get("/healthz"))
    print(walk)
    assert walk.files <= 8, walk
    assert len(walk.calls) <= 21, walk


def test_a_chunk_takes_a_known_way_to_the_disk(walked: Walked) -> None:
    new = {**TUS, "Upload-Length": str(10 * CHUNK_BYTES)}
    url = walked.server.post("/tus/", headers=new).headers["Location"]
    offsets = count(0, CHUNK_BYTES)

    def append() -> requests.Response:
        headers = {
            **TUS,
            "Upload-Offset": str(next(offsets)),
            "Content-Type": "application/offset+octet-stream",
        }
        return requests.patch(url, data=bytes(CHUNK_BYTES), headers=headers, timeout=60)

    walk = walked.walk(append, past=("ingest/copy.py", "empty_into"))
    print(walk)
    assert walk.files <= 48, walk
    assert len(walk.calls) <= 350, walk
    assert walk.moves <= 122, walk
