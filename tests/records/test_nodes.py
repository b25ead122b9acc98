"""The leases of nodes, which exist on a database server alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.core.nodes import NodeReport, NodeState
from app.db.engine import Database
from app.db.nodes import NodeRecords

REPORT = NodeReport(
    name="one-1",
    address="one:8000",
    version="1.0",
    is_leaving=False,
    counts={"requests_now": 3},
)


LONG = 3600
"""Seconds of a lease that does not end in a test."""


@pytest.fixture
def nodes(on_server: Database) -> NodeRecords:
    return NodeRecords(on_server)


def states(nodes: NodeRecords) -> dict[str, NodeState]:
    return {node.report.name: node.state for node in nodes.all()}


def test_a_report_replaces_the_last_one_and_not_the_start(nodes: NodeRecords) -> None:
    nodes.tell(REPORT, lease_seconds=LONG)
    (first,) = nodes.all()
    assert first.report == REPORT
    assert first.state is NodeState.READY
    leaving = replace(REPORT, counts={"requests_now": 1}, is_leaving=True)
    nodes.tell(leaving, lease_seconds=LONG)
    (second,) = nodes.all()
    assert second.report == leaving
    assert second.state is NodeState.LEAVING
    assert second.started_at == first.started_at
    assert second.uptime_seconds > first.uptime_seconds


def test_a_node_is_gone_when_its_lease_has_ended_and_back_with_its_next_report(
    nodes: NodeRecords,
) -> None:
    nodes.tell(REPORT, lease_seconds=LONG)
    nodes.tell(replace(REPORT, name="two-2", is_leaving=True), lease_seconds=0)
    assert states(nodes) == {"one-1": NodeState.READY, "two-2": NodeState.GONE}
    assert nodes.count_live() == 1
    nodes.tell(replace(REPORT, name="two-2"), lease_seconds=LONG)
    assert states(nodes) == {"one-1": NodeState.READY, "two-2": NodeState.READY}
    assert nodes.count_live() == 2


def test_any_node_forgets_those_that_vanished_long_ago(nodes: NodeRecords) -> None:
    nodes.tell(REPORT, lease_seconds=LONG)
    nodes.tell(replace(REPORT, name="two-2"), lease_seconds=0)
    nodes.tell(replace(REPORT, name="three-3"), lease_seconds=-1)
    nodes.forget_gone(shown_seconds=600)
    assert len(states(nodes)) == 3
    nodes.forget_gone(shown_seconds=0)
    assert states(nodes) == {"one-1": NodeState.READY}


def test_a_node_that_ends_leaves_no_row(nodes: NodeRecords) -> None:
    nodes.tell(REPORT)
    nodes.tell(replace(REPORT, name="two-2"))
    nodes.remove("one-1")
    assert list(states(nodes)) == ["two-2"]
