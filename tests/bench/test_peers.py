"""Other servers as the benchmarks run them: they keep every byte, and they end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import requests

from bench.lib.client import RequestFailed
from bench.lib.harness import Lab
from bench.lib.parallel import in_threads
from bench.peers.downloads import AT_ONCE, HTTP_JOBS, Files, file_servers
from bench.peers.ftp import FtpServer, retrieve
from bench.peers.process import Peer, PeerFailed, PeerServer, Uploads, can_run, running, versions
from bench.peers.senders import SLUICE, Sender
from bench.peers.tus import Tusd
from bench.peers.uploads import LIMIT, LIMIT_SYNCED, PEERS, RUSTUS_SYNCED, TUS, await_digests
from bench.peers.uploads import contenders as all_contenders
from tests.live_server import Server

LENGTH, CHUNK_BYTES = 350_001, 100_000
EVERYBODY: list[Uploads] = [LIMIT, LIMIT_SYNCED, *PEERS, RUSTUS_SYNCED]
HERE = [peer for peer in EVERYBODY if can_run(peer)]

pytestmark = [pytest.mark.e2e, pytest.mark.long]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path, True, 1, 1.0)


@pytest.fixture
def source(lab: Lab) -> Path:
    return lab.source(LENGTH)


def kept(server: PeerServer) -> Iterator[bytes]:
    """The bytes a peer has stored, without its notes; chunks that are files in order of offset."""
    for path in sorted(server.files.iterdir(), key=lambda path: (len(path.name), path.name)):
        if path.stat().st_size >= CHUNK_BYTES // 2:
            yield path.read_bytes()


@pytest.mark.parametrize("peer", HERE, ids=lambda peer: peer.name)
def test_a_peer_stores_what_it_is_sent(lab: Lab, source: Path, peer: Uploads) -> None:
    with running(lab, peer) as server:
        peer.upload(server.port, source, LENGTH, chunk_bytes=CHUNK_BYTES)
        assert b"".join(kept(server)) == source.read_bytes()


@pytest.mark.parametrize("peer", [*HERE, FtpServer()], ids=lambda peer: peer.name)
def test_a_peer_and_all_its_processes_end_with_the_sample(lab: Lab, peer: Peer) -> None:
    with running(lab, peer) as server:
        family = server.processes()
        assert family
    assert not any(psutil.pid_exists(process.pid) for process in family)
    assert not list(lab.folder.glob("peer*"))


def test_the_reference_receiver_accepts_several_files_at_once(lab: Lab, source: Path) -> None:
    if not can_run(LIMIT):
        pytest.skip("no C compiler; the benchmark leaves this case out, too")
    with running(lab, LIMIT) as server:
        in_threads(5, lambda _: LIMIT.upload(server.port, source, LENGTH, chunk_bytes=CHUNK_BYTES))
        assert list(kept(server)) == [source.read_bytes()] * 5


def test_ftp_sends_the_whole_file(lab: Lab, source: Path) -> None:
    with running(lab, FtpServer()) as server:
        (server.files / "film").write_bytes(source.read_bytes())
        retrieve(server.port, "film", LENGTH)
        with pytest.raises(RequestFailed, match=f"{LENGTH} of {LENGTH + 1}"):
            retrieve(server.port, "film", LENGTH + 1)


def test_all_other_file_servers_serve_every_job(lab: Lab) -> None:
    files = Files(lab.source(AT_ONCE * 50_000, "large"), lab.source(50_000, "small"))
    for one in file_servers()[0][1:]:
        with one.open(lab, files) as served:
            assert len(served.small) == AT_ONCE
            for job in one.jobs.values():
                with job.clients(served) as run_clients:
                    run_clients()
            if one.jobs is HTTP_JOBS:
                url = f"http://127.0.0.1:{served.server.port}{served.large}"
                assert requests.get(url, timeout=10).content == files.large.read_bytes()


def test_ours_speaks_tus_with_the_same_client(server: Server, lab: Lab, source: Path) -> None:
    ours = next(one for one in all_contenders(is_quick=True)[0] if one.name == TUS)
    path = ours.upload(server.port, source, LENGTH, chunk_bytes=CHUNK_BYTES)
    await_digests(server.port, [path])
    video = path.rpartition("/")[2]
    assert server.get(f"/media/{video}").content == source.read_bytes()


def test_a_peer_that_does_not_start_says_why(lab: Lab) -> None:
    class Broken(Tusd):
        def command(self, folder: Path, port: int, host: str = "127.0.0.1") -> list[str]:
            return ["ls", str(folder / "no such folder")]

    with pytest.raises(PeerFailed, match="no such folder"), running(lab, Broken()):
        pass


def test_a_peer_whose_program_is_missing_cannot_run(tmp_path: Path) -> None:
    assert not can_run(Tusd(program=tmp_path / "tusd"))


def test_a_sender_of_which_a_part_is_missing_cannot_run(tmp_path: Path) -> None:
    sender = Sender("a page", SLUICE, ("env",), needs=tmp_path / "script")
    assert not sender.can_run
    (tmp_path / "script").touch()
    assert sender.can_run


def test_every_installed_peer_has_a_version() -> None:
    everybody: list[Peer] = [*HERE, FtpServer()]
    for peer in everybody:
        name, number, *_ = peer.version.split()
        assert name
        assert number[0].isdigit()


def test_two_peers_of_one_program_have_one_version() -> None:
    assert versions([FtpServer(), FtpServer("FTP, too")]) == FtpServer().version
