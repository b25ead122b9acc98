"""Many uploads at once from one process, each at a bounded rate, over plain sockets."""

from __future__ import annotations

import re
import selectors
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlencode

TICK_SECONDS = 0.1
CONNECT_TIMEOUT_SECONDS = 60.0
_BLOCK = memoryview(bytes(1024 * 1024))


@dataclass
class SlowUpload:
    """One file in one raw chunk, sent a little every tick."""

    connection: socket.socket
    waiting: memoryview
    body_left: int
    answer: bytearray = field(default_factory=bytearray)
    has_failed: bool = False

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left to wait for."""
        return self.has_failed or _is_whole(self.answer)

    @property
    def is_stored(self) -> bool:
        """Whether the server took it."""
        return self.answer.startswith(b"HTTP/1.1 200 ") and b'"complete":true' in self.answer

    def send(self, count: int) -> None:
        """Send at most `count` bytes of the body, or what is left of the headers."""
        try:
            if self.waiting:
                self.waiting = self.waiting[self.connection.send(self.waiting) :]
            elif self.body_left:
                self.body_left -= self.connection.send(_BLOCK[: min(count, self.body_left)])
        except BlockingIOError:
            pass  # The server has not taken what the kernel holds; next tick.
        except OSError:
            self.has_failed = True

    def receive(self) -> None:
        """Read what has arrived of the answer."""
        try:
            data = self.connection.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.answer += data
        self.has_failed = self.has_failed or not data


def upload_slowly(
    port: int,
    *,
    count: int,
    length: int,
    bytes_per_second: int,
    deadline_seconds: float,
    each_tick: Callable[[], None] = lambda: None,
) -> list[SlowUpload]:
    """`count` uploads of `length` bytes at once; those unfinished at the deadline fail."""
    return send_slowly(
        [begin(port, length) for _ in range(count)],
        bytes_per_second=bytes_per_second,
        deadline_seconds=deadline_seconds,
        each_tick=each_tick,
    )


def send_slowly(
    uploads: list[SlowUpload],
    *,
    bytes_per_second: int,
    deadline_seconds: float,
    each_tick: Callable[[], None] = lambda: None,
) -> list[SlowUpload]:
    """Send what was begun, each at this rate; those unfinished at the deadline fail."""
    deadline = time.monotonic() + deadline_seconds
    with selectors.DefaultSelector() as selector:
        for upload in uploads:
            selector.register(upload.connection, selectors.EVENT_READ, upload)
        tick_at = time.monotonic()
        while selector.get_map() and time.monotonic() < deadline:
            for upload in uploads:
                upload.send(int(bytes_per_second * TICK_SECONDS))
            each_tick()
            tick_at += TICK_SECONDS
            _collect(selector, tick_at)
    for upload in uploads:
        upload.has_failed = upload.has_failed or not upload.is_over
        upload.connection.close()
    return uploads


def _is_whole(answer: bytearray) -> bool:
    """Whether the headers and the body they announce have arrived."""
    head, _, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)^content-length: (\d+)", head, re.MULTILINE)
    return length is not None and len(body) >= int(length[1])


def begin(port: int, length: int, *, address: str = "127.0.0.1") -> SlowUpload:
    """Connect from an address of this machine; nothing is sent yet."""
    connection = socket.create_connection(
        ("127.0.0.1", port), timeout=CONNECT_TIMEOUT_SECONDS, source_address=(address, 0)
    )
    connection.setblocking(False)
    # Otherwise the kernel takes megabytes at once, and the rate is not the client's.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
    fields = {
        "dzuuid": str(uuid.uuid4()),
        "dzchunkindex": 0,
        "dztotalfilesize": length,
        "dzchunksize": length,
        "dztotalchunkcount": 1,
        "dzchunkbyteoffset": 0,
        "filename": "slow.mp4",
    }
    head = (
        f"POST /upload?{urlencode(fields)} HTTP/1.1\r\nHost: localhost\r\n"
        "Accept: application/json\r\n"
        f"Content-Type: application/octet-stream\r\nContent-Length: {length}\r\n\r\n"
    )
    return SlowUpload(connection, memoryview(head.encode()), length)


def _collect(selector: selectors.BaseSelector, until: float) -> None:
    """Read answers until that time."""
    while True:
        for key, _ in selector.select(max(0.0, until - time.monotonic())):
            upload: SlowUpload = key.data
            upload.receive()
            if upload.is_over:
                selector.unregister(upload.connection)
        if time.monotonic() >= until:
            return
