"""Who takes part in the upload benchmark: ours in its three shapes, the physical limit, peers.

All servers run side by side from their first sample to the end, and are warmed up with each shape
of upload. What one has stored is removed before the next one's turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.lib.client import Connection
from bench.lib.harness import Lab
from bench.lib.meter import Meter, resident_bytes
from bench.lib.parallel import in_threads
from bench.lib.uploading import CHUNK_BYTES, Upload, upload_form, upload_raw, upload_tus
from bench.peers.process import Served, Uploads, can_run, running, versions
from bench.peers.put import Nginx, SpliceServer
from bench.peers.tus import Rustus, Tusd, TusNode

DIGEST_SECONDS = 60.0

WARM_UP_UPLOADS = 8
"""Of one chunk, at once, so that every process of a server has one: its first requests load,
compile and connect."""

LIMIT = SpliceServer()
LIMIT_SYNCED = SpliceServer("C, splice, synced", is_synced=True)
BEST_NGINX = Nginx("nginx PUT, 1 MiB buffer", "1m")
TUSD, RUSTUS, TUS_NODE = Tusd(), Rustus(), TusNode()
RUSTUS_SYNCED = Rustus("rustus, synced", is_synced=True)
QUICK_PEERS: list[Uploads] = [BEST_NGINX, RUSTUS, TUSD]
PEERS: list[Uploads] = [*QUICK_PEERS, Nginx(), TUS_NODE]

RAW, FORM, TUS = "Sluice, raw", "Sluice, form", "Sluice, tus"
RAW_SYNCED, FORM_SYNCED, TUS_SYNCED = (f"{name}, synced" for name in (RAW, FORM, TUS))
SHAPES: dict[str, Upload] = {
    RAW: upload_raw,
    FORM: upload_form,
    TUS: partial(upload_tus, base="/tus/"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A server and a way to upload to it; `peer` is None if it is ours.

    Those whose `server` is the same share it.
    """

    name: str
    server: str
    start: Callable[[Lab], AbstractContextManager[Served]]
    clear: Callable[[Served, list[str]], None]
    upload: Upload
    is_synced: bool = False
    peer: Uploads | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """So many uploads at once, of so many bytes each."""

    count: int
    length: int

    @property
    def name(self) -> str:
        """As in the table."""
        return f"{self.count} x {self.length / 1024**2:.0f} MiB"


class Servers:
    """The contenders' servers, one for each kind of job, so that jobs do not share their memory.

    Each starts when first needed, and ends with the benchmark. A quick run has one for all jobs, as
    a start takes longer than a job.
    """

    def __init__(self, lab: Lab, source: Path, *, warm_up_bytes: int = CHUNK_BYTES) -> None:
        self.lab = lab
        self.source = source
        self.warm_up_bytes = warm_up_bytes
        self._running: dict[str, Served] = {}
        self._idle_bytes: dict[str, int] = {}
        self._warm: set[tuple[str, str]] = set()

    def of(self, contender: Contender, job: str) -> Served:
        """The contender's server for a job."""
        key = self._key(contender, job)
        if key not in self._running:
            server = self.lab.servers.enter_context(contender.start(self.lab))
            self._idle_bytes[key] = resident_bytes(server.processes())
            self._running[key] = server
        if (key, contender.name) not in self._warm:
            self._warm.add((key, contender.name))
            self._warm_up(contender, self._running[key])
        return self._running[key]

    def meter(self, contender: Contender, job: str) -> Meter:
        """For that server; memory is above what it had when it was fresh."""
        processes = self.of(contender, job).processes()
        return Meter(processes, idle_bytes=self._idle_bytes[self._key(contender, job)])

    def _key(self, contender: Contender, job: str) -> str:
        return contender.server if self.lab.is_quick else f"{contender.server}, {job}"

    def _warm_up(self, contender: Contender, server: Served) -> None:
        def upload(_: int) -> str:
            return contender.upload(server.port, self.source, self.warm_up_bytes)

        paths = in_threads(WARM_UP_UPLOADS, upload)
        if contender.peer is None:
            await_digests(server.port, paths)
        contender.clear(server, paths)


def contenders(*, is_quick: bool) -> tuple[list[Contender], str]:
    """All that can run here, ours right after its limit; a note of versions and who is missing."""
    peers = QUICK_PEERS if is_quick else PEERS
    everybody = [_peer(LIMIT), *map(_own, SHAPES), *map(_peer, peers)]
    if is_quick:
        everybody.append(_own_synced(RAW))
    else:
        everybody += [_peer(LIMIT_SYNCED), *map(_own_synced, SHAPES), _peer(RUSTUS_SYNCED)]
    able = [one for one in everybody if one.peer is None or can_run(one.peer)]
    note = f"Versions: {versions(one.peer for one in able if one.peer)}."
    absent = [one.name for one in everybody if one not in able]
    return able, f"{note} Missing here: {', '.join(absent)}." if absent else note


def _peer(peer: Uploads) -> Contender:
    return Contender(
        name=peer.name,
        server=peer.name,
        start=lambda lab: running(lab, peer),
        clear=_empty_folder,
        upload=peer.upload,
        is_synced=peer in (LIMIT_SYNCED, RUSTUS_SYNCED),
        peer=peer,
    )


def _own(shape: str, *, durability: str = "none", name: str | None = None) -> Contender:
    return Contender(
        name=name or shape,
        server=f"Sluice, {durability}",
        start=lambda lab: lab.server(SLUICE_DURABILITY=durability),
        clear=delete_videos,
        upload=SHAPES[shape],
        is_synced=durability == "chunk",
    )


def _own_synced(shape: str) -> Contender:
    return _own(shape, durability="chunk", name=f"{shape}, synced")


def _empty_folder(server: Served, _: list[str]) -> None:
    for path in (server.folder / "files").iterdir():
        path.unlink()


def delete_videos(server: Served, paths: list[str]) -> None:
    """Remove what ours has stored; ids end the paths."""
    with Connection(server.port) as connection:
        for path in paths:
            connection.request(f"DELETE /api/videos/{path.rpartition('/')[2]}", {})


def await_digests(port: int, paths: list[str]) -> None:
    """Return once our server has hashed these uploads; their ids end the paths.

    It does not hash those that were sent straight to the bucket: they have a CRC32C at once.
    """
    deadline = time.monotonic() + DIGEST_SECONDS
    ids = [path.rpartition("/")[2] for path in paths]

    def is_hashed(one: str) -> bool:
        video = connection.json(f"/api/videos/{one}")
        return bool(video.get("sha256") or video.get("crc32c"))

    with Connection(port) as connection:
        while not all(map(is_hashed, ids)):
            if time.monotonic() > deadline:
                raise TimeoutError("the digests of the uploads were not computed")
            time.sleep(0.2)
