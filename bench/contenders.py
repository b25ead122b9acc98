"""Who takes part in the upload benchmark: ours in its three shapes, the physical limit, peers."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from bench.client import Connection, Upload, upload_form, upload_raw
from bench.harness import Lab
from bench.peers.process import Served, Uploads, build, can_run, running
from bench.peers.put import Nginx, SpliceServer
from bench.peers.tus import Rustus, Tusd, TusNode
from bench.tus_client import upload_tus

DIGEST_SECONDS = 60.0

LIMIT = SpliceServer()
LIMIT_SYNCED = SpliceServer("C, splice, synced", is_synced=True)
BEST_NGINX = Nginx("nginx PUT, 1 MiB buffer", "1m")
TUSD, RUSTUS = Tusd(), Rustus()
RUSTUS_SYNCED = Rustus("rustus, synced", is_synced=True)
PEERS: list[Uploads] = [LIMIT, BEST_NGINX, Nginx(), RUSTUS, TUSD, TusNode()]
SYNCED_PEERS: list[Uploads] = [LIMIT_SYNCED, RUSTUS_SYNCED]
QUICK_PEERS: list[Uploads] = [LIMIT, BEST_NGINX, RUSTUS, TUSD]

RAW, FORM, TUS = "Sluice, raw", "Sluice, form", "Sluice, tus"
RAW_SYNCED, FORM_SYNCED, TUS_SYNCED = (f"{name}, synced" for name in (RAW, FORM, TUS))
SHAPES: dict[str, Upload] = {
    RAW: upload_raw,
    FORM: upload_form,
    TUS: partial(upload_tus, base="/tus/"),
}


@dataclass(frozen=True, slots=True)
class Contender:
    """A server and a way to upload to it. `is_ours`: it computes digests in the background."""

    name: str
    start: Callable[[Lab], AbstractContextManager[Served]]
    upload: Upload
    is_synced: bool = False
    is_ours: bool = False


def contenders(lab: Lab) -> tuple[list[Contender], list[str]]:
    """All that can run here, and the names of those that cannot."""
    if not lab.is_quick:
        build()
    others = QUICK_PEERS if lab.is_quick else [*PEERS, *SYNCED_PEERS]
    absent = [peer.name for peer in others if not can_run(peer)]
    peers = [_peer(peer) for peer in others if peer.name not in absent]
    return [*_ours(is_quick=lab.is_quick), *peers], absent


def _ours(*, is_quick: bool) -> list[Contender]:
    free = {"SLUICE_DURABILITY": "none"}
    synced = {"SLUICE_DURABILITY": "chunk"}
    found = [_own(name, free, upload) for name, upload in SHAPES.items()]
    shapes = [RAW] if is_quick else SHAPES
    return found + [_own(f"{name}, synced", synced, SHAPES[name]) for name in shapes]


def _own(name: str, settings: dict[str, str], upload: Upload) -> Contender:
    is_synced = settings["SLUICE_DURABILITY"] != "none"
    return Contender(name, lambda lab: lab.server(**settings), upload, is_synced, is_ours=True)


def _peer(peer: Uploads) -> Contender:
    is_synced = peer in SYNCED_PEERS
    return Contender(peer.name, lambda lab: running(lab, peer), peer.upload, is_synced)


def await_digests(port: int, paths: list[str]) -> None:
    """Return once our server has hashed these uploads; their ids end the paths."""
    deadline = time.monotonic() + DIGEST_SECONDS
    ids = [path.rpartition("/")[2] for path in paths]
    with Connection(port) as connection:
        while any(not connection.json(f"/api/videos/{one}").get("sha256") for one in ids):
            if time.monotonic() > deadline:
                raise TimeoutError("the digests of the uploads were not computed")
            time.sleep(0.2)
