"""Fetches one file: several ranges at once into a part file, then verifies and renames it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import requests

from sluice_client.crew import Crew
from sluice_client.errors import (
    ConnectionFailed,
    ContentMismatch,
    FileProblem,
    Interrupted,
    Refused,
    SluiceError,
)
from sluice_client.file_names import name_in, usable_name
from sluice_client.hashing import (
    BackgroundHash,
    FileHash,
    Kind,
    compare,
    hash_of,
    in_transit,
)
from sluice_client.part_file import PartFile
from sluice_client.progress import Meter, Phase, ProgressListener
from sluice_client.retry import Patience
from sluice_client.spans import Span, Spans
from sluice_client.transport import Transport

STEP_BYTES = 5 * 1024 * 1024
"""Size of one range request: memory use does not depend on the size of the file, on either side."""

CONNECTIONS = 6

READ_BYTES = 256 * 1024

DIGEST_SECONDS = 60.0
DIGEST_BYTES_PER_SECOND = 20_000_000
"""How long to wait for a checksum the server has not computed yet."""


class RemoteChanged(ContentMismatch):
    """The file on the server is no longer the one the download started with."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A fetched file.

    `name` is its name on the server. `resumed` bytes were here from an earlier run: all of them if
    the file was here. One of the checksums was computed here; `is_verified` is False if the server
    had none to compare it with.
    """

    path: str
    name: str
    id: str
    length: int
    sha256: str | None
    crc32c: str | None
    resumed: int
    is_verified: bool


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """What the server says about a file before it is fetched.

    `file_name` is `name` as this system can hold it. `rendition` is the height of a rendition,
    None for the original.
    """

    id: str
    length: int
    etag: str
    name: str
    file_name: str
    rendition: int | None = None

    @property
    def path(self) -> str:
        """Of its URL."""
        return _media_path(self.id, self.rendition)


class Downloader:
    """Fetches files of one server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def look(self, video_id: str, rendition: int | None = None) -> RemoteFile:
        """Size, version and name; raises `Refused` for an unknown id."""
        headers = self._head(video_id, rendition)
        length = headers.get("Content-Length", "")
        if not length.isdecimal():
            raise ConnectionFailed("The server does not say how large the file is.")
        unnamed = f"{video_id}.bin" if rendition is None else f"{video_id} {rendition}p.mp4"
        name = name_in(headers.get("Content-Disposition", "")) or unnamed
        etag = headers.get("ETag", "")
        file_name = usable_name(name, unnamed)
        return RemoteFile(video_id, int(length), etag, name, file_name, rendition)

    def _head(self, video_id: str, rendition: int | None) -> Mapping[str, str]:
        path = _media_path(video_id, rendition)
        try:
            return self._transport.patiently(lambda: self._transport.request("HEAD", path)).headers
        except Refused as error:
            if error.status < 400:
                raise
            # The answer to a HEAD has no body: the API says in words why.
            self._transport.json("GET", f"/api/videos/{video_id}")
            raise

    def fetch(
        self,
        remote: RemoteFile,
        target: Path,
        listener: ProgressListener | None = None,
        *,
        overwrite: bool,
    ) -> Fetched:
        """The file at `target`, complete and verified; raises any `SluiceError`.

        A file that is there already is kept if it has the same bytes, and otherwise replaced if
        `overwrite`, or refused with `FileProblem`. If the bytes that come turn out wrong, all are
        discarded and fetched again, once.
        """
        if not overwrite and os.path.lexists(target):
            return self._already_here(remote, target)
        try:
            return self._fetch_once(remote, target, listener, overwrite=overwrite)
        except ContentMismatch:
            again = self.look(remote.id, remote.rendition)
            return self._fetch_once(again, target, listener, overwrite=overwrite)

    def _already_here(self, remote: RemoteFile, target: Path) -> Fetched:
        problem = "exists and is another file"
        try:
            size = target.stat().st_size if target.is_file() else None
            if size == remote.length:
                problem = "exists, and the server has no checksum to compare it with"
                with target.open("rb", buffering=0) as file:
                    stop = self._transport.stop
                    running = hash_of(file.fileno(), 0, size, Kind.SHA256, stop=stop)
                if self._compare(remote, running):
                    return self._fetched(remote, str(target), running, resumed=size)
        except ContentMismatch:
            problem = "exists and is another file"
        except OSError as error:
            raise FileProblem(f"{target}: {error.strerror or error}") from error
        raise FileProblem(
            f"{target} {problem}. Use --force to overwrite it, or -o to choose another name."
        )

    def copy_to(
        self, remote: RemoteFile, output: BinaryIO, listener: ProgressListener | None = None
    ) -> Fetched:
        """Write the bytes in order, as to a pipe; compares the checksum at the end."""
        meter = Meter(remote.name, remote.length, listener)
        running = FileHash(self._kind_of(remote))
        patience = self._transport.patience()
        patience.on_wait = meter.waiting
        position = failures = 0
        while position < remote.length:
            step = Span(position, min(position + STEP_BYTES, remote.length))
            try:
                for block in self._blocks(remote, step):
                    output.write(block)
                    running.update(block)
                    position += len(block)
                    meter.moved(len(block))
                    failures = 0
                    patience.progressed()
            except SluiceError as error:
                failures += 1
                patience.wait_after(error, failures)
        output.flush()
        is_verified = self._compare(remote, running)
        meter.report(Phase.DONE)
        path = str(getattr(output, "name", ""))
        return self._fetched(remote, path, running, is_verified=is_verified)

    def _fetch_once(
        self,
        remote: RemoteFile,
        target: Path,
        listener: ProgressListener | None,
        *,
        overwrite: bool,
    ) -> Fetched:
        meter = Meter(remote.name, remote.length, listener)
        source = f"{self._transport.base_url}{remote.path}"
        part = PartFile(target, source=source, etag=remote.etag, length=remote.length)
        part.open()
        try:
            resumed = part.done.total
            meter.start_at(resumed)
            if resumed:
                self._transport.has_kept_bytes = True
            checksum = self._fill(remote, part, meter)
            meter.report(Phase.VERIFYING)
            is_verified = self._compare(remote, checksum)
            part.publish(overwrite=overwrite)
        except ContentMismatch:
            part.discard()
            raise
        except SluiceError:
            part.record()
            raise
        finally:
            part.close()
        meter.report(Phase.DONE)
        return self._fetched(
            remote, str(target), checksum, resumed=resumed, is_verified=is_verified
        )

    def _fetched(
        self,
        remote: RemoteFile,
        path: str,
        checksum: FileHash,
        *,
        resumed: int = 0,
        is_verified: bool = True,
    ) -> Fetched:
        found = {checksum.kind: checksum.result()}
        return Fetched(
            path=path,
            name=remote.name,
            id=remote.id,
            length=remote.length,
            sha256=found.get(Kind.SHA256),
            crc32c=found.get(Kind.CRC32C),
            resumed=resumed,
            is_verified=is_verified,
        )

    def _fill(self, remote: RemoteFile, part: PartFile, meter: Meter) -> FileHash:
        kind, stop = self._kind_of(remote), self._transport.stop
        background = BackgroundHash(part.descriptor, remote.length, kind, stop)
        try:
            background.allow(part.done.prefix_end)
            _StepFetch(self._transport, part, meter, background).run(
                part.done.missing(remote.length), lambda step: self._blocks(remote, step)
            )
            return background.result()
        finally:
            background.close()

    def _blocks(self, remote: RemoteFile, step: Span) -> Iterator[bytes]:
        """The bytes of a step as they arrive; raises `RemoteChanged` if the file is another now."""
        headers = {"Range": f"bytes={step.start}-{step.end - 1}"}
        if remote.etag and not remote.etag.startswith("W/"):
            headers["If-Range"] = remote.etag
        try:
            with self._transport.stream("GET", remote.path, headers=headers) as response:
                _check_range(response, step, remote)
                yield from self._read(response, step.length)
        except Refused as error:
            if error.status in {412, 416}:
                raise RemoteChanged(f"{remote.name} changed on the server.") from error
            raise

    def _read(self, response: requests.Response, length: int) -> Iterator[bytes]:
        left = length
        for block in response.iter_content(min(READ_BYTES, length)):
            if self._transport.stop.is_set():
                raise Interrupted("Stopped while receiving.")
            self._transport.rate_limit.take(len(block))
            yield block[:left]
            left -= len(block)
            if left <= 0:
                return
        raise ConnectionFailed(f"The answer ended {left} bytes early.")

    def _kind_of(self, remote: RemoteFile) -> Kind:
        """Of the checksum to compare: SHA-256, unless the server has only another one by now."""
        if remote.rendition is not None or in_transit() is Kind.SHA256:
            return Kind.SHA256
        video = self._transport.json("GET", f"/api/videos/{remote.id}")
        return Kind.CRC32C if video.get(Kind.CRC32C) and not video.get(Kind.SHA256) else Kind.SHA256

    def _compare(self, remote: RemoteFile, checksum: FileHash) -> bool:
        """Whether there was a checksum to compare with; raises `ContentMismatch`."""
        if remote.rendition is not None:
            return False
        path, wish = f"/api/videos/{remote.id}", {"Want-Repr-Digest": "sha-256=1"}
        headers = wish if checksum.kind is Kind.SHA256 else {}
        deadline = time.monotonic() + DIGEST_SECONDS + remote.length / DIGEST_BYTES_PER_SECOND
        seconds = 0.1
        while time.monotonic() < deadline:
            video = self._transport.json("GET", path, headers=headers)
            if video.get(checksum.kind):
                compare(checksum.kind, checksum.result(), video, remote.name)
                return True
            if self._transport.stop.wait(seconds):
                raise Interrupted("Stopped while the server computed its checksum.")
            seconds = min(2.0, seconds * 1.5)
        return False


def _media_path(video_id: str, rendition: int | None) -> str:
    original = f"/media/{video_id}"
    return original if rendition is None else f"{original}/renditions/{rendition}.mp4"


def _check_range(response: requests.Response, step: Span, remote: RemoteFile) -> None:
    if response.headers.get("ETag", remote.etag) == remote.etag:
        wanted = f"bytes {step.start}-{step.end - 1}/{remote.length}"
        if response.status_code == 206 and response.headers.get("Content-Range") == wanted:
            return
        if response.status_code == 200 and step == Span(0, remote.length):
            return
    raise RemoteChanged(f"{remote.name} changed on the server while it was fetched.")


class _StepFetch:
    """Fills the gaps of a part file from several connections."""

    def __init__(
        self, transport: Transport, part: PartFile, meter: Meter, background: BackgroundHash
    ) -> None:
        self._transport = transport
        self._part = part
        self._meter = meter
        self._background = background
        self._patience: Patience = transport.patience()
        self._patience.on_wait = meter.waiting
        size = min(CONNECTIONS, transport.options.parallel)
        self._crew = Crew(size, self._work, transport.stop)
        self._left = Spans()
        self._lock = threading.Lock()

    def run(self, missing: Spans, blocks: Callable[[Span], Iterator[bytes]]) -> None:
        self._left = missing
        self._blocks = blocks
        self._crew.run()

    def _work(self) -> None:
        while (step := self._take()) is not None and not self._crew.is_over:
            self._fetch(step)

    def _take(self) -> Span | None:
        with self._lock:
            for gap in self._left:
                step = Span(gap.start, min(gap.end, gap.start + STEP_BYTES))
                self._left.remove(*step)
                return step
        return None

    def _fetch(self, step: Span) -> None:
        """All of a step; after a dropped connection it continues at the next missing byte."""
        position, failures = step.start, 0
        while position < step.end:
            try:
                for block in self._blocks(Span(position, step.end)):
                    self._part.write(block, position)
                    self._transport.has_kept_bytes = True
                    position += len(block)
                    failures = 0
                    self._meter.moved(len(block))
                    self._patience.progressed()
                    self._background.allow(self._part.done.prefix_end)
            except SluiceError as error:
                failures += 1
                self._patience.wait_after(error, failures)
