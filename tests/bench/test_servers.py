"""The servers that a comparison keeps from one sample to the next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.lib.client import Connection
from bench.lib.harness import Lab
from bench.lib.meter import Meter
from bench.peers import uploads as who
from bench.peers.uploads import Contender, Servers, contenders

LENGTH = 350_001
MIB = 1024**2

pytestmark = [pytest.mark.e2e, pytest.mark.long]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A lab as in a full run, which leaves memory alone."""
    monkeypatch.setattr(Lab, "settle", lambda _: None)
    lab = Lab(tmp_path, False, 1, 1.0)
    with lab.servers:
        yield lab


@pytest.fixture
def servers(lab: Lab) -> Servers:
    return Servers(lab, lab.source(LENGTH), warm_up_bytes=LENGTH)


def contender(name: str) -> Contender:
    found = [one for one in contenders(is_quick=False)[0] if one.name == name]
    if not found:
        pytest.skip(f"{name} is not on this machine; the benchmark leaves it out, too")
    return found[0]


def test_shapes_share_a_server_and_jobs_do_not(servers: Servers) -> None:
    raw, form = contender(who.RAW), contender(who.FORM)
    one = servers.of(raw, "one")
    assert servers.of(raw, "one") is one
    assert servers.of(form, "one") is one
    assert servers.of(raw, "eight") is not one


def test_files_uploaded_to_ours_are_removed(servers: Servers) -> None:
    ours = contender(who.TUS)
    server = servers.of(ours, "one")
    path = ours.upload(server.port, servers.source, LENGTH)
    who.await_digests(server.port, [path])
    with Connection(server.port) as connection:
        assert len(connection.json("/api/videos")["videos"]) == 1, "and none of the warm-up"
        ours.clear(server, [path])
        assert connection.json("/api/videos")["videos"] == []
    assert not any((server.folder / "data" / "library").iterdir())


def test_files_uploaded_to_a_peer_are_removed(servers: Servers) -> None:
    limit = contender(who.LIMIT.name)
    server = servers.of(limit, "one")
    files = server.folder / "files"
    assert not any(files.iterdir()), "nothing of the warm-up"
    path = limit.upload(server.port, servers.source, LENGTH)
    assert (files / path.lstrip("/")).stat().st_size == LENGTH
    limit.clear(server, [path])
    assert not any(files.iterdir())


def test_memory_is_measured_above_that_of_a_fresh_server(servers: Servers) -> None:
    ours = contender(who.RAW)
    server = servers.of(ours, "one")
    with servers.meter(ours, "one") as first:
        pass
    ours.upload(server.port, servers.source, LENGTH)
    with servers.meter(ours, "one") as second, Meter(server.processes()) as above_now:
        pass
    assert 0 < first.peak_bytes < 100 * MIB, "what the warm-up has left"
    assert second.peak_bytes > above_now.peak_bytes + MIB, "it is counted again"
