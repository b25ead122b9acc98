"""Reads the server's metrics."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from app.run.monitoring.instruments import Snapshot
from tests.live_server import Server


def scrape(server: Server) -> Snapshot:
    """The numbers of `/metrics`."""
    response = server.get("/metrics")
    assert response.status_code == 200
    assert response.headers["Content-Type"].startswith("text/plain")
    return Snapshot(text_string_to_metric_families(response.text))


class Change:
    """What a test adds to the counts of a shared server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._before = scrape(server)

    def total(self, name: str, **labels: str) -> float:
        """`Snapshot.total` minus the earlier value."""
        return scrape(self._server).total(name, **labels) - self._before.total(name, **labels)

    def by(self, label: str, name: str) -> dict[str, float]:
        """`Snapshot.by` minus the earlier values; unchanged ones are left out."""
        before, after = self._before.by(label, name), scrape(self._server).by(label, name)
        changes = {key: after[key] - before.get(key, 0.0) for key in after}
        return {key: change for key, change in changes.items() if change}


def labels_by_name(server: Server) -> dict[str, set[str]]:
    """The metric names in `/metrics`, with the names of their labels."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(server.get("/metrics").text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for sample in family.samples for label in sample.labels}
        found[name] = labels - {"le"}
    return found
