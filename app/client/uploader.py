"""One file from this machine to the server: found or created, sent, compared."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from app.client.chunk_sender import ChunkSender, OpenedFile
from app.client.errors import (
    ContentMismatch,
    FileChanged,
    Interrupted,
    Refused,
    ServerUnreachable,
    SluiceError,
)
from app.client.hashing import BackgroundHash
from app.client.local_file import LocalFile
from app.client.pace import Pace
from app.client.progress import Meter, Phase, ProgressListener
from app.client.resume_store import ResumeStore, UploadRecord
from app.client.spans import Spans
from app.client.transport import Transport

ROUNDS = 5
"""Chunks that were acknowledged and are missing after all (the server lost power, and was set not
to wait for its disk) are sent again, so often."""

DIGEST_GRACE_SECONDS = 60.0
DIGEST_BYTES_PER_SECOND = 20_000_000
"""How long to wait for the server's own checksum: a minute, and what a slow disk needs."""


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A file that is on the server. `is_verified` is False where the server had no checksum yet;
    `sent` is the number of bytes this run sent, 0 where the server had the file already."""

    path: str
    name: str
    id: str
    length: int
    sha256: str
    media: str
    sent: int
    is_verified: bool


class Uploader:
    """Uploads single files; one for all files of a run, as they share what is learned."""

    def __init__(self, transport: Transport, store: ResumeStore, pace: Pace) -> None:
        self._transport = transport
        self._store = store
        self._pace = pace

    def upload(self, file: LocalFile, listener: ProgressListener | None = None) -> Uploaded:
        """The file on the server, whole and compared; raises any `SluiceError`."""
        meter = Meter(file.name, file.size, listener)
        with file.open() as descriptor:
            background = BackgroundHash(descriptor, file.size, self._transport.stop)
            try:
                job = _Job(self, OpenedFile(file, descriptor, background), meter)
                return job.run()
            finally:
                background.close()

    # What `_Job` needs of its uploader.

    @property
    def transport(self) -> Transport:
        """The connections to use."""
        return self._transport

    @property
    def store(self) -> ResumeStore:
        """Where uploads under way are remembered."""
        return self._store

    @property
    def pace(self) -> Pace:
        """What the line bears."""
        return self._pace
