"""Servers that offer the same two files, for downloads: ours, nginx, FTP, and upload servers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench.lib.client import Connection, in_parallel, upload_raw
from bench.lib.harness import Lab
from bench.lib.samples import MB
from bench.peers.ftp import FtpServer, retrieve
from bench.peers.process import Peer, Served, Uploads, can_run, running, versions
from bench.peers.put import Nginx
from bench.peers.uploads import RUSTUS, TUSD, await_digests

STEP_BYTES = 5 * MB
AT_ONCE = 8
OURS, NGINX = "Sluice", "nginx"


@dataclass(frozen=True, slots=True)
class Files:
    """A large file, and one of an eighth of it, which a server has eight times."""

    large: Path
    small: Path

    @property
    def length(self) -> int:
        """Of the large one."""
        return self.large.stat().st_size

    @property
    def on_shelf(self) -> list[Path]:
        """What each server has."""
        return [self.large, *[self.small] * AT_ONCE]


@dataclass(frozen=True, slots=True)
class Shelf:
    """A server with a large file and eight small ones, by their paths there."""

    server: Served
    large: str
    small: list[str]
    length: int

    @property
    def small_length(self) -> int:
        """Of each of the eight."""
        return self.length // AT_ONCE


Job = Callable[[Shelf], None]


@dataclass(frozen=True, slots=True)
class Offer:
    """A server's name, how it comes to its files, and what can be fetched from it."""

    name: str
    open: Callable[[Lab, Files], AbstractContextManager[Shelf]]
    jobs: dict[str, Job] = field(default_factory=lambda: HTTP_JOBS)


def offers() -> tuple[list[Offer], str]:
    """All servers that can run here; a note of versions, and who is absent."""
    ftp = FtpServer()
    peers: list[tuple[Peer, Offer]] = [
        (Nginx(), Offer(NGINX, partial(_static_shelf, peer=Nginx(), root="/"))),
        (ftp, Offer(ftp.name, partial(_static_shelf, peer=ftp, root=""), FTP_JOBS)),
        *((peer, Offer(peer.name, partial(_tus_shelf, peer=peer))) for peer in (TUSD, RUSTUS)),
    ]
    found = [offer for peer, offer in peers if can_run(peer)]
    note = f"Versions: {versions(peer for peer, _ in peers if can_run(peer))}."
    absent = [offer.name for _, offer in peers if offer not in found]
    note += f" Not there to be measured: {', '.join(absent)}." if absent else ""
    return [Offer(OURS, _our_shelf), *found], note


def spans(length: int) -> list[tuple[int, int]]:
    """A file's ranges of 5 MB, half-open; the last may be shorter."""
    return [(start, min(start + STEP_BYTES, length)) for start in range(0, length, STEP_BYTES)]


@contextmanager
def _our_shelf(lab: Lab, files: Files) -> Iterator[Shelf]:
    """Once it has hashed its videos and is idle."""
    with lab.server() as server:
        large, *small = (
            upload_raw(server.port, path, path.stat().st_size) for path in files.on_shelf
        )
        await_digests(server.port, [large, *small])
        yield Shelf(server, f"/media/{large}", [f"/media/{one}" for one in small], files.length)


@contextmanager
def _tus_shelf(lab: Lab, files: Files, *, peer: Uploads) -> Iterator[Shelf]:
    with running(lab, peer) as server:
        large, *small = (
            peer.upload(server.port, path, path.stat().st_size) for path in files.on_shelf
        )
        os.sync()  # It did not wait for the disk; the disk is not to be busy in the measurement.
        yield Shelf(server, large, small, files.length)


@contextmanager
def _static_shelf(lab: Lab, files: Files, *, peer: Peer, root: str) -> Iterator[Shelf]:
    with running(lab, peer) as server:
        for index, path in enumerate(files.on_shelf):
            os.link(path, server.files / str(index))
        small = [f"{root}{index}" for index in range(1, AT_ONCE + 1)]
        yield Shelf(server, f"{root}0", small, files.length)


def _get_whole(shelf: Shelf) -> None:
    with Connection(shelf.server.port) as connection:
        connection.get(shelf.large)


def _get_eight(shelf: Shelf) -> None:
    def work(index: int) -> None:
        with Connection(shelf.server.port) as connection:
            connection.get(shelf.small[index])

    in_parallel(AT_ONCE, work)


def _get_ranges(shelf: Shelf) -> None:
    _get_spans(shelf.server.port, shelf.large, spans(shelf.length))


def _get_ranges_of_eight(shelf: Shelf) -> None:
    wanted = spans(shelf.small_length)
    in_parallel(AT_ONCE, lambda index: _get_spans(shelf.server.port, shelf.small[index], wanted))


def _get_spans(port: int, path: str, wanted: list[tuple[int, int]]) -> None:
    with Connection(port) as connection:
        for span in wanted:
            connection.get(path, span)


def _retrieve(shelf: Shelf) -> None:
    retrieve(shelf.server.port, shelf.large, shelf.length)


def _retrieve_eight(shelf: Shelf) -> None:
    port, length = shelf.server.port, shelf.small_length
    in_parallel(AT_ONCE, lambda index: retrieve(port, shelf.small[index], length))


ONE, EIGHT = "1 file", f"{AT_ONCE} files at once"
HTTP_JOBS: dict[str, Job] = {
    f"{ONE}, whole": _get_whole,
    f"{EIGHT}, whole": _get_eight,
    f"{ONE}, ranges of 5 MB": _get_ranges,
    f"{EIGHT}, ranges of 5 MB": _get_ranges_of_eight,
}
FTP_JOBS: dict[str, Job] = {
    f"{ONE}, whole": _retrieve,
    f"{EIGHT}, whole": _retrieve_eight,
}
