"""What a node tells the others that share its records."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from app.db.engine import Database
from app.db.nodes import NodeRecords
from app.db.this_node import VARIABLE
from app.run.build import build_services
from app.run.monitoring.instruments import Instruments, NodeCounts
from app.run.server.node_worker import NodeWorker
from app.settings import Settings


@pytest.mark.parametrize("name", ["one", ""])
def test_a_node_that_ends_is_leaving_until_its_supervisor_removes_it(
    tmp_path: Path,
    shared_url: str,
    on_server: Database,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    monkeypatch.setenv(VARIABLE, name)
    records = NodeRecords(on_server)
    services = build_services(Settings(data_dir=tmp_path, database_url=shared_url))
    with closing(services.database):
        worker = NodeWorker(services, records, NodeCounts(services, Instruments()))
        worker.beat()
        assert [node.report.is_leaving for node in records.all()] == [False]
        worker.end()
        # Without a name there is no supervisor.
        assert [node.report.is_leaving for node in records.all()] == ([True] if name else [])
