"""Killed workers, killed servers, cut and stalled lines: no acknowledged byte is ever lost."""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from random import Random

import psutil
import pytest

from tests.hostile.conftest import Scaled
from tests.hostile.senders import PROTOCOLS, Crowd, Line
from tests.live_server import NO_FFMPEG, Server, running_server
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

SERVER_SHARE = 0.1
"""Share of the kills that hit every process of the server, which is then restarted."""


def test_no_acknowledged_byte_is_lost_however_often_workers_and_connections_die(
    tmp_path_factory: pytest.TempPathFactory, scaled: Scaled
) -> None:
    """The senders ask after every broken request, and compare with what was acknowledged."""
    rng = Random(29)
    folder = tmp_path_factory.mktemp("killed")
    with running_server(folder, SLUICE_WORKERS="3", **NO_FFMPEG) as server:
        crowd = Crowd(Line([server], is_bad=True), pause_seconds=0.01)
        clients = len(PROTOCOLS) * scaled(short=1, long=3)
        with crowd.running(clients=clients):
            for _ in range(scaled(short=5, long=2500)):
                time.sleep(rng.uniform(0.1, 0.9))
                kill_something(server, rng)
            wait_until(lambda: crowd.line.counts["cuts"], "a request was cut")
        crowd.finish()
        crowd.check()
        assert {type(sender) for sender in crowd.senders} == {*PROTOCOLS}


def kill_something(server: Server, rng: Random) -> None:
    """One worker, or all of them with the supervisor."""
    if rng.random() < SERVER_SHARE:
        server.restart(signal.SIGKILL)
        return
    with suppress(psutil.NoSuchProcess):
        workers = server.web_workers()
        if workers:
            rng.choice(workers).kill()
