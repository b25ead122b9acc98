"""A clock that jumps while the client works, and one that is years off."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from sluice_client import Client, Options, Phase, Progress
from sluice_client.doctor.examination import check_way
from tests.client.bad_line import BadLine, Line, sometimes
from tests.client.conftest import MakeFile
from tests.live_server import Server

MakeClient = Callable[..., Client]

DAY_SECONDS = 24 * 3600

pytestmark = pytest.mark.e2e


@pytest.fixture
def jumping_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading of the time of day is up to ten days off."""
    random, real = Random(1), time.time
    monkeypatch.setattr(time, "time", lambda: real() + random.uniform(-10, 10) * DAY_SECONDS)


@pytest.mark.usefixtures("jumping_clock")
def test_transfers_retries_and_rates_do_not_depend_on_the_time_of_day(
    line: BadLine, make_client: MakeClient, make_file: MakeFile, home: Path
) -> None:
    path = make_file(size=4_000_000)
    line.on_body = sometimes(lambda broken: broken.cut(), after=300_000, times=3, path="/upload")
    client = make_client(line.url, chunk_bytes=512 * 1024)
    uploaded = client.upload(path)
    client.fetch(uploaded.id, home / "copy.mp4")
    assert (home / "copy.mp4").read_bytes() == path.read_bytes()


@pytest.mark.usefixtures("jumping_clock")
def test_the_doctor_measures_a_round_trip_without_the_time_of_day(server: Server) -> None:
    texts = {finding.check: finding.text for finding in check_way(Options(server=server.url))}
    assert 0 <= int(texts["round trip"].split()[0]) < 60_000


@pytest.mark.parametrize("year", [2001, 2037])
def test_a_retry_after_date_is_compared_with_the_servers_clock(
    line: BadLine, make_client: MakeClient, make_file: MakeFile, year: int
) -> None:
    def busy(refusing: Line) -> None:
        refusing.answer(
            "503 Service Unavailable",
            f"Date: Thu, 01 Jan {year} 00:00:00 GMT",
            f"Retry-After: Thu, 01 Jan {year} 00:00:02 GMT",
        )

    line.on_head = sometimes(busy, after=0, times=1, path="/upload")
    notes: list[str] = []

    def listen(progress: Progress) -> None:
        if progress.phase is Phase.WAITING:
            notes.append(progress.note)

    make_client(line.url).upload(make_file(), on_progress=listen)
    assert len(notes) == 1
    assert "Trying again in 2 s" in notes[0]
