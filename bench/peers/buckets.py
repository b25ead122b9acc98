"""Who takes part where files go to a bucket: ours through the node and direct, tusd, @tus/s3-store.

All of them use the same Garage on this machine.
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from crc32c import crc32c

from bench.lib.client import Connection, FileSlice, RequestFailed
from bench.lib.harness import Lab, NotRunnable
from bench.lib.uploading import (
    CHUNK_BYTES,
    Upload,
    chunks,
    upload_raw,
)
from bench.peers.process import Served, Uploads, can_run, running, versions
from bench.peers.tus import Tusd, TusNode
from bench.peers.uploads import SHAPES, TUS, Contender, delete_videos
from scripts.fleet.postgresql import Postgresql, find_postgresql
from scripts.fleet.s3_servers import TOOLS, Access, S3Server, garage

LOCAL_RAW, LOCAL_TUS = "Sluice, local disk, raw", "Sluice, local disk, tus"
NODE_RAW, NODE_TUS = "Sluice, bucket, raw", "Sluice, bucket, tus"
LOCAL = (LOCAL_RAW, LOCAL_TUS)
DIRECT = "Sluice, direct"
TUSD = "tusd, bucket"
DIRECT_SETTING = "SLUICE_DIRECT_UPLOADS"

_NO_OPTIONS: Mapping[str, str] = MappingProxyType({})

CELLS_AT_ONCE = 8
"""As our client on a fast line."""

READ_BYTES = 1024 * 1024
"""What the client hashes at once."""


@contextmanager
def running_garage(lab: Lab) -> Iterator[S3Server]:
    """A fresh Garage with one empty bucket; raises `NotRunnable` where it is not built."""
    if not os.access(TOOLS / "garage", os.X_OK):
        raise NotRunnable("Garage is missing: `make setup-s3` builds it")
    with lab.scratch("garage") as folder:
        server = garage(folder)
        server.program.start()
        try:
            yield server
        finally:
            server.program.stop()


@contextmanager
def running_postgresql() -> Iterator[Postgresql]:
    """A fresh PostgreSQL; raises `NotRunnable` where it is not installed."""
    programs = find_postgresql()
    if programs is None:
        raise NotRunnable("PostgreSQL is not installed")
    with TemporaryDirectory(prefix="sluice-bench-") as folder:  # The path of a socket is short.
        server = Postgresql(Path(folder), programs)
        server.start()
        try:
            yield server
        finally:
            server.stop()


def upload_direct(port: int, source: Path, length: int, *, chunk_bytes: int = CHUNK_BYTES) -> str:
    """Upload the first `length` bytes of a file straight to the bucket, as our clients do; the id.

    Two requests for eight cells, one for signed URLs, one to have them counted.
    """
    with ExitStack() as connections:
        server = connections.enter_context(Connection(port))
        created = _post(server, "/api/uploads", {"name": "film.mp4", "length": length})
        path, cell_bytes = f"/api/uploads/{created['id']}/cells", created["direct"]["cell_bytes"]
        if cell_bytes != chunk_bytes:
            raise RequestFailed(f"cells have {cell_bytes} bytes, not {chunk_bytes}")
        bucket: Connection | None = None
        bodies = list(chunks(source, length, cell_bytes))
        for first in range(0, len(bodies), CELLS_AT_ONCE):
            some = bodies[first : first + CELLS_AT_ONCE]
            promised = [
                {"start": body.start, "length": body.length, "crc32c": _crc32c(body)}
                for body in some
            ]
            targets = _post(server, path, {"cells": promised})["cells"]
            for body, target in zip(some, targets, strict=True):
                url = urlsplit(target["url"])
                bucket = bucket or connections.enter_context(Connection(url.port or 80))
                headers = {"Host": url.netloc, **target["headers"]}
                bucket.request(f"PUT {url.path}?{url.query}", headers, body)
            state = _post(server, f"{path}/stored", {"cells": promised})
    return str(state["id"])


def _post(server: Connection, path: str, document: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(document).encode()
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    answer: dict[str, Any] = json.loads(
        server.request(f"POST {path}", headers, around=(text, b"")).text
    )
    return answer


def _crc32c(body: FileSlice) -> str:
    value = 0
    with body.path.open("rb") as file:
        file.seek(body.start)
        for left in range(body.length, 0, -READ_BYTES):
            value = crc32c(file.read(min(left, READ_BYTES)), value)
    return b64encode(value.to_bytes(4, "big")).decode()


def contenders(access: Access, *, is_quick: bool) -> tuple[list[Contender], str]:
    """All that can run here; a note of versions and who is missing."""
    peers: list[Uploads] = [Tusd(TUSD, access)]
    if not is_quick:
        peers.append(TusNode("@tus/s3-store", access))
    here = [peer for peer in peers if can_run(peer)]
    ours = [
        _own(NODE_RAW, upload_raw, access),
        _own(NODE_TUS, SHAPES[TUS], access),
        _own(DIRECT, upload_direct, access, {DIRECT_SETTING: "1"}),
    ]
    if not is_quick:
        local = {"SLUICE_DURABILITY": "none"}
        ours = [
            _own(LOCAL_RAW, upload_raw, None, local),
            _own(LOCAL_TUS, SHAPES[TUS], None, local),
            *ours,
        ]
    note = f"Versions: {versions(here)}." if here else ""
    absent = [peer.name for peer in peers if peer not in here]
    note += f" Missing here: {', '.join(absent)}." if absent else ""
    return [*ours, *map(_peer, here)], note.strip()


def _own(
    name: str, upload: Upload, access: Access | None, options: Mapping[str, str] = _NO_OPTIONS
) -> Contender:
    def start(lab: Lab) -> AbstractContextManager[Served]:
        """With an empty library, which takes no folder of another's in the bucket."""
        storage = access.settings(token_hex(8)) if access is not None else {}
        return lab.server(**storage, **options)

    return Contender(
        name=name,
        server=", ".join(name.split(", ")[:2]),
        start=start,
        clear=delete_videos,
        upload=upload,
    )


def _peer(peer: Uploads) -> Contender:
    return Contender(
        name=peer.name,
        server=peer.name,
        start=lambda lab: running(lab, peer),
        clear=_leave,
        upload=peer.upload,
        peer=peer,
    )


def _leave(_: Served, __: list[str]) -> None:
    """Blocks that Garage has already cost it nothing again; @tus/s3-store fails to remove files."""
