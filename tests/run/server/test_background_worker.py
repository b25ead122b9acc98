"""The process that works in the background, with few connections to the database."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dropzone_client import ChunkedFile, send_all
from tests.live_server import running_server
from tests.video.films import FilmStore
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e


def test_a_video_is_indexed_where_web_workers_have_a_single_thread(
    tmp_path: Path, film: FilmStore
) -> None:
    """Each of its threads that looks for work keeps a connection."""
    content = film("h264.mp4").read_bytes()
    with running_server(tmp_path, SLUICE_THREADS="1") as server:
        video = send_all(server, ChunkedFile(content, len(content)))["id"]

        def is_playable() -> bool:
            playback = server.get(f"/api/videos/{video}").json()["playback"]
            return playback is not None and playback["state"] == "ready"

        wait_until(is_playable, "it is indexed")
