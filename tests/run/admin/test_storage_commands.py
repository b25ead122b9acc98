"""`storage adopt`, and commands that are refused where the files are not."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from app.db.engine import Database
from app.db.nodes import SharedValues
from app.http.services import Services
from app.records.uploads import UploadRecords
from app.run.build import build_services
from app.settings import from_env
from app.storage.data_folder import lock_data_folder
from app.uploads.storage_identity import PLACE
from tests.live_server import ROOT, Server
from tests.records.making import new_upload
from tests.run.admin.running import run_command

ELSEWHERE = "s3://films/elsewhere"


def moved(folder: Path) -> Server:
    """A server whose files were in a bucket when it ran last; its settings name none."""
    server = Server(folder)
    services: Services = build_services(from_env(server.environment))
    with closing(services.database):
        services.prepare()
        UploadRecords(services.database).add(new_upload())
        SharedValues(services.database).put(PLACE, ELSEWHERE)
    return server


def run(server: Server, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=ROOT,
        env=server.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_a_server_starts_only_where_its_files_are_and_after_adopting(tmp_path: Path) -> None:
    server = moved(tmp_path)
    refused = run(server, server.module)
    assert refused.returncode == 2
    [line] = refused.stderr.splitlines()
    assert ELSEWHERE in line
    assert "Restore the setting" in line
    data = Path(server.environment["SLUICE_DATA_DIR"])
    lock = lock_data_folder(data)
    assert lock is not None
    kept_out = run_command(server, "storage", "adopt")
    os.close(lock)
    assert (kept_out.exit_code, "Stop it" in kept_out.stderr) == (1, True)
    adopted = run(server, "flask", "--app", "wsgi", "storage", "adopt")
    assert adopted.returncode == 0, adopted.stderr
    with closing(Database(f"sqlite:///{data / 'sluice.db'}", synced=False)) as database:
        assert SharedValues(database).get(PLACE) == ""


def test_commands_that_need_the_files_are_refused(tmp_path: Path) -> None:
    server = moved(tmp_path)
    swept = run_command(server, "sweep")
    assert swept.exit_code == 1
    assert ELSEWHERE in swept.stderr
    shown = run_command(server, "uploads", "list")
    assert shown.exit_code == 0, shown.stderr
    served = run(server, "flask", "--app", "wsgi", "run", "--port", "0")
    assert served.returncode == 1
    assert ELSEWHERE in served.stderr
