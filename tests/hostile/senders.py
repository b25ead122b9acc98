"""Files sent with each protocol, over connections that break.

Each sender remembers what the server acknowledged, and fails if the server ever knows less.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from random import Random
from threading import Event
from typing import Any
from urllib.parse import urlencode

import requests

from tests.dropzone_client import BOUNDARY, ChunkedFile, form_headers
from tests.hostile.load import working
from tests.ietf_client import Answer, read_answer, request_bytes
from tests.live_server import Server
from tests.waiting import wait_until

MOST_BYTES = 700_000
CHUNK_BYTES = 100_000
CUT_SHARE = 0.3
"""Share of the requests that a bad line cuts."""
STALL_SECONDS = 0.3
FINISH_SECONDS = 120
"""A sender without an answer over a good line for this long is stuck."""

BUSY = {409, 503}
"""An earlier request of the same sender may still be writing."""


@dataclass
class Line:
    """Connections to any of some servers; a bad one breaks off some requests within their body."""

    servers: list[Server]
    is_bad: bool = False
    counts: Counter[str] = field(default_factory=Counter)

    def answers(self) -> int:
        """How many requests were answered."""
        return self.counts["answers"]

    def ask(
        self, rng: Random, method: str, path: str, body: bytes = b"", **headers: str
    ) -> Answer | None:
        """The answer to a request; None if the connection broke, for whatever reason."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        server = rng.choice(self.servers)
        request = request_bytes(server, method, path, body, named)
        is_cut = self.is_bad and rng.random() < CUT_SHARE
        try:
            with server.connect() as connection:
                if is_cut:
                    self.counts["cuts"] += 1
                    connection.sendall(request[: rng.randrange(len(request))])
                    time.sleep(rng.choice([0, rng.uniform(0, STALL_SECONDS)]))
                    return None
                connection.sendall(request)
                answer = read_answer(connection, method)
                self.counts["answers"] += 1
                return answer
        except OSError:
            time.sleep(0.02)
            return None


class Sender:
    """One file, sent a request a `step`; `acknowledged` is its contiguous prefix in bytes."""

    def __init__(self, line: Line, seed: int) -> None:
        self.rng = Random(seed)
        self.line = line
        self.content = self.rng.randbytes(self.rng.randrange(MOST_BYTES))
        self.id = ""
        self.acknowledged = 0
        self.is_complete = False
        self.files: dict[str, str] = {}

    def step(self) -> None:
        """Send the next request, or two."""
        if not self.id:
            self.create()
            return
        offset = self.known_offset()
        if offset is not None and not self.is_complete:
            self.send(offset)

    def create(self) -> None:
        """Ask for an upload."""
        raise NotImplementedError

    def look(self) -> int | None:
        """The offset the server reports; None if it did not answer."""
        raise NotImplementedError

    def send(self, offset: int) -> None:
        """Send bytes from that offset on."""
        raise NotImplementedError

    def known_offset(self) -> int | None:
        """The offset the server reports, which never falls below what was acknowledged."""
        offset = self.look()
        if offset is not None:
            assert offset >= self.acknowledged, f"{self}: {offset} < {self.acknowledged}"
            self.acknowledge(offset)
        return offset

    def acknowledge(self, offset: int) -> None:
        """Note that the server has acknowledged the bytes up to `offset`."""
        self.acknowledged = max(self.acknowledged, offset)
        if offset == len(self.content) and not self.is_complete:
            self.expect_file()

    def expect_file(self) -> None:
        """The server has acknowledged the file."""
        self.is_complete = True
        self.files[self.id] = hashlib.sha256(self.content).hexdigest()

    def forget_unfinished(self) -> None:
        """Expect nothing of an unfinished file: only finished ones were promised to survive."""
        if not self.is_complete:
            self.acknowledged = 0

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer | None:
        """The answer to a request, which must not be a server error."""
        answer = self.line.ask(self.rng, method, path, body, **headers)
        if answer is not None:
            assert answer.status < 400 or answer.status in BUSY, f"{self}: {answer}"
        return answer if answer is not None and answer.status < 400 else None

    def __str__(self) -> str:
        return f"{type(self).__name__} {self.id} of {len(self.content)} bytes"


class Tus(Sender):
    """tus 1.0.0."""

    VERSION = "1.0.0"
    longest_body = 2 * CHUNK_BYTES

    def create(self) -> None:
        """Create without bytes."""
        length = str(len(self.content))
        answer = self.ask("POST", "/tus/", Tus_Resumable=self.VERSION, Upload_Length=length)
        if answer is not None:
            self.id = answer.upload_id

    def look(self) -> int | None:
        """HEAD."""
        answer = self.ask("HEAD", f"/tus/{self.id}", Tus_Resumable=self.VERSION)
        return None if answer is None else int(answer.headers["upload-offset"])

    def send(self, offset: int) -> None:
        """PATCH."""
        end = offset + self.rng.randint(1, self.longest_body)
        answer = self.ask(
            "PATCH",
            f"/tus/{self.id}",
            self.content[offset:end],
            Tus_Resumable=self.VERSION,
            Upload_Offset=str(offset),
            Content_Type="application/offset+octet-stream",
        )
        if answer is not None:
            self.acknowledge(int(answer.headers["upload-offset"]))


class Draft(Sender):
    """The IETF's resumable uploads."""

    def create(self) -> None:
        """Without bytes."""
        length = str(len(self.content))
        answer = self.ask("POST", "/resumable/", Upload_Complete="?0", Upload_Length=length)
        if answer is not None:
            self.id = answer.upload_id

    def look(self) -> int | None:
        """HEAD."""
        answer = self.ask("HEAD", f"/resumable/{self.id}")
        return None if answer is None else int(answer.headers["upload-offset"])

    def send(self, offset: int) -> None:
        """PATCH."""
        end = offset + self.rng.randint(1, 2 * CHUNK_BYTES)
        is_last = end >= len(self.content)
        answer = self.ask(
            "PATCH",
            f"/resumable/{self.id}",
            self.content[offset:end],
            Upload_Offset=str(offset),
            Upload_Complete="?1" if is_last else "?0",
            Content_Type="application/partial-upload",
        )
        if answer is not None:
            self.acknowledge(min(end, len(self.content)))


class Form(Sender):
    """Dropzone's form, one chunk per request."""

    def __init__(self, line: Line, seed: int) -> None:
        super().__init__(line, seed)
        self.file = ChunkedFile(self.content, CHUNK_BYTES)

    def create(self) -> None:
        """The first chunk creates it."""
        self.send(0)

    def look(self) -> int | None:
        """Ask the API, as the page does."""
        answer = self.ask("GET", f"/api/uploads/{self.id}")
        return None if answer is None else int(answer.json()["offset"])

    def send(self, offset: int) -> None:
        """Send the chunk that holds the offset; part of it may be stored already."""
        answer = self.post(offset // CHUNK_BYTES)
        if answer is not None:
            self.id = answer.json()["id"]
            self.acknowledge(answer.json()["received"])

    def post(self, index: int) -> Answer | None:
        """One chunk."""
        return self.ask("POST", "/upload", self.file.body(index), **form_headers())


class Raw(Form):
    """Dropzone's `binaryBody`: fields in the query string, raw bytes."""

    def post(self, index: int) -> Answer | None:
        """One chunk."""
        query = urlencode({**self.file.fields(index), "filename": "film.mp4"})
        return self.ask("POST", f"/upload?{query}", self.file.chunk(index))


class Batch(Sender):
    """Several whole files in one request, sent again until there are receipts."""

    def step(self) -> None:
        """Send all of them."""
        # None is empty: the server takes all empty files of the crowd for the same one.
        starts = range(0, len(self.content), 50_000)
        pieces = [self.content[start : start + 50_000] for start in starts]
        body = b"".join(self.part(number, piece) for number, piece in enumerate(pieces))
        boundary = f"--{BOUNDARY}--\r\n".encode()
        answer = self.ask("POST", "/batch", body + boundary, **form_headers())
        if answer is None:
            return
        receipts = answer.json()["files"]
        assert len(receipts) == len(pieces), json.dumps(receipts)
        stored = [piece for piece in zip(receipts, pieces, strict=True) if self.is_stored(piece[0])]
        for receipt, piece in stored:
            self.files[receipt["id"]] = hashlib.sha256(piece).hexdigest()
        self.is_complete = len(stored) == len(pieces)

    def is_stored(self, receipt: dict[str, Any]) -> bool:
        """Otherwise the server must have been too busy."""
        assert "id" in receipt or receipt["error"]["status"] in BUSY, receipt
        return "id" in receipt

    def part(self, number: int, piece: bytes) -> bytes:
        """A file after its fingerprint, so that a stored one is not stored again."""
        digest = hashlib.sha256(piece).hexdigest()
        disposition = f"--{BOUNDARY}\r\nContent-Disposition: form-data; name="
        fields = f'{disposition}"fingerprint"\r\n\r\n{digest}\r\n'
        file = f'{disposition}"file"; filename="{number}.mp4"\r\n\r\n'
        return (fields + file).encode() + piece + b"\r\n"


PROTOCOLS = (Form, Raw, Tus, Draft, Batch)


@dataclass
class Crowd:
    """Senders of every protocol at once, each sending one file after another."""

    line: Line
    seed: int = 0
    pause_seconds: float = 0
    """Of each sender between two requests, so that a test costs less CPU time."""
    kinds: Sequence[type[Sender]] = PROTOCOLS
    senders: list[Sender] = field(default_factory=list)
    hand_over: Callable[[Sender], None] | None = None
    """Takes each sender whose file is complete; otherwise they stay with the others."""
    failed: Event = field(default_factory=Event)
    """Some sender has found that the server has lost something."""

    def running(self, *, clients: int = len(PROTOCOLS)) -> AbstractContextManager[None]:
        """Senders that run until the context ends and leave some files unfinished."""
        return working(self._send_until, clients)

    def finish(self) -> None:
        """Send the rest of every file over a good line."""
        self.line.is_bad = False
        for sender in [*self.senders]:
            deadline = time.monotonic() + FINISH_SECONDS
            is_new = not sender.is_complete
            while not sender.is_complete:
                assert time.monotonic() < deadline, f"{sender} is stuck at {sender.acknowledged}"
                sender.step()
            if is_new:
                self._count(sender)

    def check(self) -> None:
        """Assert that every file is what was sent."""
        for sender in self.senders:
            for upload_id, sha256 in sender.files.items():
                self.check_file(upload_id, sha256, str(sender))

    def check_file(self, upload_id: str, sha256: str, sender: str) -> None:
        """Assert that a file is what was sent."""
        answer = self._fetch(upload_id)
        assert answer.status_code == 200, f"{sender}: {answer.text}"
        assert hashlib.sha256(answer.content).hexdigest() == sha256, sender

    def _fetch(self, upload_id: str) -> requests.Response:
        """A kill between the last byte and publication leaves publishing to the next request.

        Otherwise the background worker does it, a minute later.
        """
        server = self.line.servers[0]
        answer = when_free(lambda: server.get(f"/media/{upload_id}"))
        if answer.status_code == 404:
            document = server.get(f"/api/uploads/{upload_id}").json()
            assert document["state"] == "verifying", document
            fields = {"Content-Type": "application/offset+octet-stream"}
            fields |= {"Upload-Offset": str(document["length"]), "Tus-Resumable": Tus.VERSION}
            requests.patch(f"{server.url}/tus/{upload_id}", headers=fields, timeout=60)
            wait_until(lambda: self._is_published(upload_id), f"{upload_id} is published")
            answer = when_free(lambda: server.get(f"/media/{upload_id}"))
        return answer

    def _is_published(self, upload_id: str) -> bool:
        document = self.line.servers[0].get(f"/api/uploads/{upload_id}").json()
        return bool(document["state"] == "complete")

    def _send_until(self, stop: Event, number: int) -> None:
        kind, rng = self.kinds[number % len(self.kinds)], Random(f"{self.seed} {number}")
        try:
            while not stop.is_set():
                sender = kind(self.line, rng.getrandbits(64))
                self.senders.append(sender)
                while not stop.is_set() and not sender.is_complete:
                    sender.step()
                    time.sleep(self.pause_seconds)
                if sender.is_complete:
                    self._count(sender)
        except BaseException:
            self.failed.set()
            raise

    def _count(self, sender: Sender) -> None:
        self.line.counts[type(sender).__name__] += 1
        if self.hand_over is not None:
            self.senders.remove(sender)
            self.hand_over(sender)


def when_free(ask: Callable[[], requests.Response]) -> requests.Response:
    """The answer of a server, asked again while it is busy with earlier requests."""
    deadline = time.monotonic() + FINISH_SECONDS
    while (answer := ask()).status_code in BUSY and time.monotonic() < deadline:
        time.sleep(0.1)
    return answer
