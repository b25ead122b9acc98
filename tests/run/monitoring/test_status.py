"""/api/status, and the status page without scripts."""

from __future__ import annotations

import re
from pathlib import Path

from app.core.nodes import NodeReport
from app.db.engine import Database
from app.db.nodes import NodeRecords
from app.ingest.stages import Stage
from tests.dropzone_client import ChunkedFile, random_bytes, send_all, send_chunk
from tests.live_server import Server
from tests.waiting import wait_until
from tests.web.application import application

CHUNK = 100_000


def test_the_figures_follow_the_work(server: Server) -> None:
    before = server.get("/api/status").json()
    send_all(server, ChunkedFile(random_bytes(3 * CHUNK), CHUNK))
    begun = ChunkedFile(random_bytes(3 * CHUNK, 1), CHUNK, filename="half & half.mp4")
    upload_id = send_chunk(server, begun, 0).json()["id"]
    server.get(f"/api/uploads/{'0' * 32}")
    after = server.get("/api/status").json()

    uploads = after["uploads"]
    assert uploads["complete"] == before["uploads"]["complete"] + 1
    assert uploads["created"] == before["uploads"]["created"] + 2
    assert uploads["under_way"] == before["uploads"]["under_way"] + 1
    assert uploads["newest"][0] == {
        "id": upload_id,
        "filename": "half & half.mp4",
        "length": 3 * CHUNK,
        "received_bytes": CHUNK,
    }
    received = after["transfers"]["received_bytes"] - before["transfers"]["received_bytes"]
    assert 4 * CHUNK < received < 5 * CHUNK
    code = "upload_not_found"
    assert after["errors"][code] == before["errors"].get(code, 0) + 1
    assert after["uptime_seconds"] > before["uptime_seconds"]
    server.delete(f"/api/uploads/{upload_id}")


def test_a_node_of_another_version_may_tell_less_and_more(
    tmp_path: Path, on_server: Database, shared_url: str
) -> None:
    NodeRecords(on_server).tell(
        NodeReport(
            name="older",
            address="older:8000",
            version="1.0",
            is_leaving=False,
            counts={"requests_now": 3, "unheard_of": 1},
        ),
        lease_seconds=3600,
    )
    with application(tmp_path, database_url=shared_url) as app:
        status = app.test_client().get("/api/status").get_json()
    (older,) = status["nodes"]
    assert (older["requests_now"], older["downloads_now"], older["problems"]) == (3, 0, [])
    assert status["fleet"]["requests_now"] == 3


def test_a_bucket_has_no_free_space(tmp_path: Path) -> None:
    with application(tmp_path, storage="s3://videos") as app:
        client = app.test_client()
        assert set(client.get("/api/status").get_json()["free_bytes"]) == {"staging"}
        page = client.get("/status").get_data(as_text=True)
    assert "Free for spool files" in page
    assert "Free in the library" not in page


def test_every_stage_has_its_times(server: Server) -> None:
    send_all(server, ChunkedFile(random_bytes(CHUNK), CHUNK))
    stages = {stage["stage"]: stage for stage in server.get("/api/status").json()["stages"]}
    assert list(stages) == [stage.value for stage in Stage]
    for name in ("receive", "write", "sync", "record", "publish"):
        assert stages[name]["count"] > 0
        assert 0 < stages[name]["median_seconds"] <= stages[name]["p95_seconds"]


def test_watching_requests_are_not_counted_as_running(server: Server) -> None:
    wait_until(lambda: server.get("/api/status").json()["requests"]["now"] == 0, "nothing runs")


def test_the_page_has_the_figures_before_any_script_has_run(server: Server) -> None:
    begun = ChunkedFile(random_bytes(2 * CHUNK, 2), CHUNK, filename="<b>film</b>.mp4")
    upload_id = send_chunk(server, begun, 0).json()["id"]
    response = server.get("/status")
    assert response.status_code == 200
    under_way = server.get("/api/status").json()["uploads"]["under_way"]
    shown = re.search(r'data-value="uploads.under_way"[^>]*>([^<]*)<', response.text)
    assert shown is not None
    assert int(shown[1]) == under_way
    assert "&lt;b&gt;film&lt;/b&gt;.mp4" in response.text
    assert "<b>film" not in response.text
    server.delete(f"/api/uploads/{upload_id}")
