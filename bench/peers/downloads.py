"""Who takes part in the download benchmark: ours, nginx, FTP, and upload servers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench.lib.client import Connection
from bench.lib.harness import Lab
from bench.lib.parallel import in_processes
from bench.lib.samples import MB
from bench.lib.uploading import upload_raw
from bench.peers.ftp import FtpServer, retrieve
from bench.peers.process import Peer, Served, Uploads, can_run, running, versions
from bench.peers.put import Nginx
from bench.peers.uploads import RUSTUS, TUSD, await_digests

STEP_BYTES = 5 * MB
AT_ONCE = 8
OURS, NGINX = "Sluice", "nginx"


@dataclass(frozen=True, slots=True)
class Files:
    """A large file, and one of an eighth of its size, which a server has eight times."""

    large: Path
    small: Path

    @property
    def length(self) -> int:
        """Of the large one."""
        return self.large.stat().st_size

    @property
    def served(self) -> list[Path]:
        """What each server has."""
        return [self.large, *[self.small] * AT_ONCE]


@dataclass(frozen=True, slots=True)
class ServedFiles:
    """A running server with a large file and eight small ones, by their paths there."""

    server: Served
    large: str
    small: list[str]
    length: int

    @property
    def small_length(self) -> int:
        """Of each of the eight."""
        return self.length // AT_ONCE


Fetch = Callable[[int, str, int], None]
"""Fetches a file of so many bytes from a port, by its path, and drops it."""


@dataclass(frozen=True, slots=True)
class Job:
    """The large file to one client, or a small one to each of several."""

    count: int
    fetch: Fetch

    def clients(self, served: ServedFiles) -> AbstractContextManager[Callable[[], list[None]]]:
        """Processes that wait to fetch, as `in_processes` has them."""
        is_one = self.count == 1
        paths = [served.large] if is_one else served.small
        length = served.length if is_one else served.small_length
        return in_processes(
            self.count, lambda index: self.fetch(served.server.port, paths[index], length)
        )


@dataclass(frozen=True, slots=True)
class FileServer:
    """A server by name: how it gets its files, and which jobs it can serve."""

    name: str
    open: Callable[[Lab, Files], AbstractContextManager[ServedFiles]]
    jobs: dict[str, Job] = field(default_factory=lambda: HTTP_JOBS)


def file_servers() -> tuple[list[FileServer], str]:
    """All servers that can run here; a note of versions and who is missing."""
    ftp = FtpServer()
    peers: list[tuple[Peer, FileServer]] = [
        (Nginx(), FileServer(NGINX, partial(_static_files, peer=Nginx(), root="/"))),
        (ftp, FileServer(ftp.name, partial(_static_files, peer=ftp, root=""), FTP_JOBS)),
        *(
            (peer, FileServer(peer.name, partial(_tus_uploads, peer=peer)))
            for peer in (TUSD, RUSTUS)
        ),
    ]
    found = [one for peer, one in peers if can_run(peer)]
    note = f"Versions: {versions(peer for peer, _ in peers if can_run(peer))}."
    absent = [one.name for _, one in peers if one not in found]
    note += f" Missing here: {', '.join(absent)}." if absent else ""
    return [FileServer(OURS, _ours), *found], note


def spans(length: int) -> list[tuple[int, int]]:
    """A file's ranges of 5 MB, half-open; the last may be shorter."""
    return [(start, min(start + STEP_BYTES, length)) for start in range(0, length, STEP_BYTES)]


@contextmanager
def _ours(lab: Lab, files: Files) -> Iterator[ServedFiles]:
    """Ours, once it has hashed its videos and is idle."""
    with lab.server() as server:
        large, *small = (
            upload_raw(server.port, path, path.stat().st_size) for path in files.served
        )
        await_digests(server.port, [large, *small])
        yield ServedFiles(
            server, f"/media/{large}", [f"/media/{one}" for one in small], files.length
        )


@contextmanager
def _tus_uploads(lab: Lab, files: Files, *, peer: Uploads) -> Iterator[ServedFiles]:
    with running(lab, peer) as server:
        large, *small = (
            peer.upload(server.port, path, path.stat().st_size) for path in files.served
        )
        os.sync()  # It did not wait for the disk, which should be idle while we measure.
        yield ServedFiles(server, large, small, files.length)


@contextmanager
def _static_files(lab: Lab, files: Files, *, peer: Peer, root: str) -> Iterator[ServedFiles]:
    with running(lab, peer) as server:
        for index, path in enumerate(files.served):
            os.link(path, server.files / str(index))
        small = [f"{root}{index}" for index in range(1, AT_ONCE + 1)]
        yield ServedFiles(server, f"{root}0", small, files.length)


def _get_whole(port: int, path: str, _: int) -> None:
    with Connection(port) as connection:
        connection.get(path)


def _get_ranges(port: int, path: str, length: int) -> None:
    with Connection(port) as connection:
        for span in spans(length):
            connection.get(path, span)


ONE, EIGHT = "1 file", f"{AT_ONCE} files at once"
HTTP_JOBS: dict[str, Job] = {
    f"{ONE}, whole": Job(1, _get_whole),
    f"{EIGHT}, whole": Job(AT_ONCE, _get_whole),
    f"{ONE}, ranges of 5 MB": Job(1, _get_ranges),
    f"{EIGHT}, ranges of 5 MB": Job(AT_ONCE, _get_ranges),
}
FTP_JOBS: dict[str, Job] = {
    f"{ONE}, whole": Job(1, retrieve),
    f"{EIGHT}, whole": Job(AT_ONCE, retrieve),
}
