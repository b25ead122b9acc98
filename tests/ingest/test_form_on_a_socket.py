"""A form whose client pauses midway: what has arrived is read without waiting."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.core.ranges import ByteRange
from app.ingest.copy import BodyLimits, FileCopy
from app.ingest.form import FilePart, FormReader
from app.ingest.slots import Slots, holding
from app.ingest.source import BodySource, HashingSource
from tests.ingest.form_bodies import BOUNDARY, DELIMITER, body_of, file
from tests.ingest.test_gunicorn_socket import Connection, post

Ends = tuple[Connection, socket.socket]

PATIENT = BodyLimits(idle_seconds=30.0, minimum_bytes_per_second=0.0)
PAYLOADS = [bytes([number]) * 12_000 for number in range(4)]
"""All of them fit into the socket's buffer."""


@pytest.fixture
def ends() -> Iterator[Ends]:
    """A server's connection and the client's socket; TCP, as only TCP has a low-water mark."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.create_connection(listener.getsockname())
        ours, _ = listener.accept()
    with closing(ours), closing(theirs):
        yield Connection(ours), theirs


class CountedTurns(Slots):
    """Counts how often a thread goes without_slot to wait for its client."""

    def __init__(self) -> None:
        super().__init__(1)
        self.waits = 0

    def release(self) -> None:
        self.waits += 1
        super().release()


def arrived(connection: Connection, client: socket.socket, rest: int) -> FormReader:
    """A form whose files and next delimiter have arrived, and `rest` bytes have not."""
    form = body_of(*map(file, PAYLOADS)).removesuffix(b"--\r\n") + b"\r\n"
    request = post(form, length=len(form) + rest)
    client.sendall(request)
    connection.socket.recv(len(request), socket.MSG_PEEK | socket.MSG_WAITALL)
    return FormReader(connection.gunicorn_source(), BOUNDARY, PATIENT)


def copy_of(source: BodySource, path: Path) -> bytes:
    """The content of a file that the source was copied to."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        span = ByteRange(0, source.remaining or 0)
        FileCopy(descriptor, span, PATIENT).run(source, lambda: None)
        source.finish()
    finally:
        os.close(descriptor)
    return path.read_bytes()


@pytest.mark.parametrize("is_hashed", [True, False])
@pytest.mark.parametrize("rest", [len(b"--") + len(DELIMITER), 100_000, 10_000_000])
def test_files_of_known_length_that_have_arrived_are_read_without_waiting(
    ends: Ends, tmp_path: Path, is_hashed: bool, rest: int
) -> None:
    reader, slots = arrived(*ends, rest), CountedTurns()
    parts = reader.parts()
    with holding(slots):
        for number, payload in enumerate(PAYLOADS):
            part = next(parts)
            assert isinstance(part, FilePart)
            source: BodySource = part.exactly(len(payload))
            source = HashingSource(source) if is_hashed else source
            assert copy_of(source, tmp_path / str(number)) == payload
        assert slots.waits == 0
