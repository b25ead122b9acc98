"""What a node tells the others that share its records."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from app.core.nodes import NodeReport
from app.db.engine import Database
from app.db.nodes import NodeRecords
from app.db.this_node import VARIABLE
from app.run.build import build_services
from app.run.monitoring.instruments import Instruments, NodeCounts
from app.run.server.node_worker import NodeWorker
from app.settings import Settings
from tests.waiting import wait_until


def test_a_node_that_ends_leaves_its_share_of_the_line_to_the_others(
    tmp_path: Path, shared_url: str, on_server: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "one")
    records = NodeRecords(on_server)
    settings = Settings(data_dir=tmp_path, database_url=shared_url, bytes_per_second=1e6)
    services = build_services(settings)

    def report() -> NodeReport:
        (node,) = records.all()
        return node.report

    with closing(services.database):
        line = services.line
        assert line is not None
        worker = NodeWorker(services, records, NodeCounts(services, Instruments()))

        def is_told() -> bool:
            line.took(line.slot("somebody"), 1000)
            worker.beat()
            return bool(report().traffic["senders"])

        wait_until(is_told, "a sender is reported")
        line.took(line.slot("somebody"), 1000)
        worker.end()
        assert (report().is_leaving, report().traffic["senders"]) == (True, [])
