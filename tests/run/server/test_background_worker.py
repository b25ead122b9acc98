"""The process that works in the background."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from app.core.jobs import GARBAGE, Heartbeat, Lane
from app.run.build import build_services
from app.run.server.background_worker import each_node_does, periodic_kinds
from app.settings import from_env
from app.storage.s3.inspection import BucketInspection
from tests.dropzone_client import ChunkedFile, send_all
from tests.live_server import running_server
from tests.s3_servers import S3Server, new_prefix
from tests.storage.nodes import discard
from tests.video.films import FilmStore
from tests.waiting import wait_until


@pytest.mark.e2e
def test_a_video_is_indexed_where_web_workers_have_a_single_thread(
    tmp_path: Path, film: FilmStore
) -> None:
    """Each of the worker's threads that looks for work keeps a connection."""
    content = film("h264.mp4").read_bytes()
    with running_server(tmp_path, SLUICE_THREADS="1") as server:
        video = send_all(server, ChunkedFile(content, len(content)))["id"]

        def is_playable() -> bool:
            playback = server.get(f"/api/videos/{video}").json()["playback"]
            return playback is not None and playback["state"] == "ready"

        wait_until(is_playable, "it is indexed")


def test_the_garbage_of_a_bucket_is_a_job_of_one_node(
    tmp_path: Path, versitygw: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lock files are in the node's own folder, so each node removes its own."""
    environment = {
        "SLUICE_DATA_DIR": str(tmp_path),
        "SLUICE_TEST_CONSTANTS": "sweep_seconds=2",
        **versitygw.access.settings(new_prefix()),
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    services = build_services(from_env(environment))
    with closing(services.database):
        services.prepare()
        inspection = services.store.inspection
        assert isinstance(inspection, BucketInspection)
        assert (inspection.sweep, 2.0) in each_node_does(services)
        kind = periodic_kinds(services)[GARBAGE]
        assert kind.every == timedelta(seconds=2)
        inspection.bucket.put_object("files/left", b"by a crash")
        discard(inspection.catalog, "files/left")
        jobs, now = services.media.jobs, services.media.clock()
        jobs.add(GARBAGE, {"": ""}, Lane.UPKEEP, now)
        job = jobs.claim(Lane.UPKEEP, "this node", now, timedelta(seconds=15), [GARBAGE])
        assert job is not None
        kind.run(job, Heartbeat(job))
        assert list(inspection.bucket.list_objects("files/")) == []


def test_folders_have_no_garbage(tmp_path: Path) -> None:
    services = build_services(from_env({"SLUICE_DATA_DIR": str(tmp_path)}))
    with closing(services.database):
        assert GARBAGE not in periodic_kinds(services)
        assert len(each_node_does(services)) == 1
