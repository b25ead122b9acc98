"""Files whose ranges go to several nodes at the same time, and all else that a fleet makes hard."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from random import Random
from typing import Any
from urllib.parse import urlsplit

from tests.dropzone_client import ChunkedFile, crc32c_of, form_headers
from tests.hostile.senders import (
    BUSY,
    CHUNK_BYTES,
    CUT_SHARE,
    MOST_BYTES,
    PROTOCOLS,
    Draft,
    Line,
    Sender,
    Tus,
)
from tests.ietf_client import Answer

MIB = 1024 * 1024
CELL_BYTES = 20 * MIB
THREADS = 3
SPOILT_SHARE = 0.2
"""Share of the requests, or files, whose bytes are not those that their digest promises."""


class Deferred(Tus):
    """tus without a length until all bytes are there."""

    def create(self) -> None:
        """Defer the length."""
        answer = self.ask("POST", "/tus/", Tus_Resumable=Tus.VERSION, Upload_Defer_Length="1")
        if answer is not None:
            self.id = answer.upload_id

    def look(self) -> int | None:
        """HEAD; it has the length if an earlier request told it, though its answer was lost."""
        answer = self.ask("HEAD", f"/tus/{self.id}", Tus_Resumable=self.VERSION)
        if answer is not None and "upload-length" in answer.headers:
            self.expect_file()
        return None if answer is None else int(answer.headers["upload-offset"])

    def send(self, offset: int) -> None:
        """Tell the length once all has arrived, in a request without bytes."""
        if offset < len(self.content):
            super().send(offset)
            return
        answer = self.ask(
            "PATCH",
            f"/tus/{self.id}",
            Tus_Resumable=Tus.VERSION,
            Upload_Offset=str(offset),
            Upload_Length=str(offset),
            Content_Type="application/offset+octet-stream",
        )
        if answer is not None:
            self.expect_file()

    def acknowledge(self, offset: int) -> None:
        """Without its length a file is not complete."""
        self.acknowledged = max(self.acknowledged, offset)


class Concatenated(Sender):
    """tus: parts sent side by side, then the file made of them."""

    def __init__(self, line: Line, seed: int) -> None:
        super().__init__(line, seed)
        cuts = self.draw_cuts()
        bounds = zip([0, *cuts], [*cuts, len(self.content)], strict=True)
        self.parts = [_Part(line, self.rng, self.content[start:end]) for start, end in bounds]

    def draw_cuts(self) -> list[int]:
        """Where the parts but the first begin."""
        return sorted(self.rng.randrange(len(self.content) + 1) for _ in range(THREADS - 1))

    def step(self) -> None:
        """The next request of each part; once they are there, the file."""
        unfinished = [part for part in self.parts if not part.is_complete]
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(_Part.step, unfinished))
        if not unfinished:
            self.create()

    def create(self) -> None:
        """Ask for the file made of the parts; again, if there was no answer."""
        urls = " ".join(f"/tus/{part.id}" for part in self.parts)
        answer = self.ask("POST", "/tus/", Tus_Resumable=Tus.VERSION, Upload_Concat=f"final;{urls}")
        if answer is not None:
            self.id = answer.upload_id
            self.expect_file()


class LongConcatenated(Concatenated):
    """The same with parts that are longer than a piece of the bucket."""

    def draw_cuts(self) -> list[int]:
        """Two parts."""
        lengths = [CELL_BYTES + self.rng.randrange(5 * MIB) for _ in range(2)]
        self.content = self.rng.randbytes(sum(lengths))
        return lengths[:1]


class _Part(Tus):
    def __init__(self, line: Line, rng: Random, content: bytes) -> None:
        super().__init__(line, rng.getrandbits(64))
        self.content = content
        self.longest_body = max(self.longest_body, len(content) // 2)

    def create(self) -> None:
        length = str(len(self.content))
        answer = self.ask(
            "POST",
            "/tus/",
            Tus_Resumable=Tus.VERSION,
            Upload_Length=length,
            Upload_Concat="partial",
        )
        if answer is not None:
            self.id = answer.upload_id


class Scattered(Sender):
    """Chunks of a form in any order, side by side; the file has several cells of the bucket."""

    LONGEST_BYTES = 45 * MIB
    CHUNK_MIB: Sequence[int] = (6, 10, 20)
    """How long its chunks may be."""

    def __init__(self, line: Line, seed: int) -> None:
        super().__init__(line, seed)
        self.content = self.rng.randbytes(self.rng.randrange(CELL_BYTES, self.LONGEST_BYTES))
        self.file = ChunkedFile(self.content, self.rng.choice(self.CHUNK_MIB) * MIB)
        self.missing = [*range(self.file.count)]

    def step(self) -> None:
        """Some of the missing chunks at once; the server must have all those it acknowledged."""
        self.check_received()
        chosen = self.rng.sample(self.missing, min(THREADS, len(self.missing)))
        with ThreadPoolExecutor(THREADS) as pool:
            answers = list(pool.map(self.post, chosen))
        for index, answer in zip(chosen, answers, strict=True):
            if answer is not None:
                self.id = answer.json()["id"]
                self.missing.remove(index)
        if not self.missing:
            self.expect_file()

    def post(self, index: int) -> Answer | None:
        """One chunk, to any node."""
        return self.ask("POST", "/upload", self.file.body(index), **form_headers())

    def check_received(self) -> None:
        """Assert that no acknowledged chunk is missing."""
        answer = self.ask("GET", f"/api/uploads/{self.id}") if self.id else None
        if answer is None:
            return
        for start, end in answer.json()["missing"]:
            lost = {*range(self.file.count)} - {*self.missing}
            size = self.file.chunk_bytes
            assert not any(start < (i + 1) * size and i * size < end for i in lost), str(self)


class Direct(Scattered):
    """Whole cells: some go to the bucket, at URLs that any node signs, some to a node.

    Like the page and the client, it sends a cell to the bucket once: the bucket keeps nothing of a
    request that breaks off, and a node keeps what has arrived.
    """

    LONGEST_BYTES = CELL_BYTES + 5 * MIB
    CHUNK_MIB = (CELL_BYTES // MIB,)

    def __init__(self, line: Line, seed: int) -> None:
        super().__init__(line, seed)
        self.stored = set[int]()
        self.taken = set[int]()

    def step(self) -> None:
        """Create first: URLs need an id."""
        if self.id:
            super().step()
            return
        document = {"name": "film.mp4", "size": len(self.content)}
        answer = self.ask_json("/api/uploads", document)
        if answer is not None:
            self.id = self.file.key = answer.json()["id"]

    def post(self, index: int) -> Answer | None:
        """One cell, one way or the other."""
        is_direct = index not in self.taken and self.rng.random() < 2 / 3
        return self.store(index) if is_direct else super().post(index)

    def store(self, index: int) -> Answer | None:
        """Promise, store, and tell what the bucket has confirmed."""
        cell = self.file.chunk(index)
        place = {"start": index * CELL_BYTES, "length": len(cell), "crc32c": crc32c_of(cell)}
        path, promised = f"/api/uploads/{self.id}/cells", {"cells": [place]}
        if index not in self.stored:
            answer = self.ask_json(path, promised)
            if answer is None:
                return None
            (target,) = answer.json()["cells"]
            if not target["stored"] and "url" not in target:
                self.taken.add(index)
                return super().post(index)
            if not target["stored"] and not self.is_put(index, target, cell):
                return None
        return self.ask_json(f"{path}/stored", promised)

    def is_put(self, index: int, target: dict[str, Any], cell: bytes) -> bool:
        """Whether the bucket has confirmed a cell; sometimes it must refuse other bytes."""
        is_spoilt = self.rng.random() < SPOILT_SHARE
        status = self.put(target, spoilt(cell) if is_spoilt else cell)
        assert not (is_spoilt and status == 200), f"{self}: cell {index} has other bytes"
        (self.stored if status == 200 else self.taken).add(index)
        return status == 200

    def ask_json(self, path: str, document: dict[str, Any]) -> Answer | None:
        """POST a document."""
        body = json.dumps(document).encode()
        return self.ask("POST", path, body, Content_Type="application/json")

    def put(self, target: dict[str, Any], body: bytes) -> int | None:
        """The bucket's status; None if the connection broke, as a bad line's sometimes does."""
        url = urlsplit(target["url"])
        is_cut = self.line.is_bad and self.rng.random() < CUT_SHARE
        sent = body[: self.rng.randrange(len(body))] if is_cut else body
        bucket = HTTPConnection(url.netloc, timeout=60)
        with closing(bucket), suppress(OSError, HTTPException):
            bucket.putrequest("PUT", f"{url.path}?{url.query}")
            for name, text in {**target["headers"], "Content-Length": str(len(body))}.items():
                bucket.putheader(name, text)
            bucket.endheaders(sent)
            return None if is_cut else bucket.getresponse().status
        return None


class Checked(Tus):
    """tus with a checksum of each request."""

    def __init__(self, line: Line, seed: int) -> None:
        super().__init__(line, seed)
        self.content = content_for(self.rng)

    def send(self, offset: int) -> None:
        """PATCH; bytes that do not match their checksum must be refused."""
        body = self.content[offset : offset + drawn_length(self.rng)]
        checksum = b64encode(hashlib.sha1(body, usedforsecurity=False).digest()).decode()
        headers = {
            "Tus-Resumable": self.VERSION,
            "Upload-Offset": str(offset),
            "Upload-Checksum": f"sha1 {checksum}",
            "Content-Type": "application/offset+octet-stream",
        }
        if self.rng.random() < SPOILT_SHARE:
            answer = self.line.ask(self.rng, "PATCH", self.path, spoilt(body), **headers)
            check_refused(self, 460, answer)
            return
        answer = self.ask("PATCH", self.path, body, **headers)
        if answer is not None:
            self.acknowledge(int(answer.headers["upload-offset"]))

    @property
    def path(self) -> str:
        """Of the upload."""
        return f"/tus/{self.id}"


class Digested(Draft):
    """The IETF's uploads with digests of the file and of each request; some files do not match."""

    def __init__(self, line: Line, seed: int) -> None:
        super().__init__(line, seed)
        self.content = content_for(self.rng)
        self.is_doomed = self.rng.random() < SPOILT_SHARE

    def create(self) -> None:
        """Without bytes, with the digest of the whole file."""
        answer = self.ask(
            "POST",
            "/resumable/",
            Upload_Complete="?0",
            Upload_Length=str(len(self.content)),
            Repr_Digest=digest(spoilt(self.content) if self.is_doomed else self.content),
        )
        if answer is not None:
            self.id = answer.upload_id

    def look(self) -> int | None:
        """HEAD; a file that does not match may be gone."""
        if not self.is_doomed:
            return super().look()
        answer = self.line.ask(self.rng, "HEAD", self.path)
        is_there = answer is not None and not self.is_refused(answer) and answer.status == 204
        return int(answer.headers["upload-offset"]) if answer and is_there else None

    def send(self, offset: int) -> None:
        """PATCH; bytes that do not match their digest must be refused."""
        end = offset + drawn_length(self.rng)
        body = self.content[offset:end]
        headers = {
            "Upload-Offset": str(offset),
            "Upload-Complete": "?1" if end >= len(self.content) else "?0",
            "Content-Type": "application/partial-upload",
            "Content-Digest": digest(body),
        }
        if self.is_doomed:
            self.is_refused(self.line.ask(self.rng, "PATCH", self.path, body, **headers))
        elif self.rng.random() < SPOILT_SHARE:
            answer = self.line.ask(self.rng, "PATCH", self.path, spoilt(body), **headers)
            check_refused(self, 400, answer)
        elif self.ask("PATCH", self.path, body, **headers) is not None:
            self.acknowledge(min(end, len(self.content)))

    def acknowledge(self, offset: int) -> None:
        """All bytes of a file that does not match may be there, but it is never complete."""
        if self.is_doomed:
            self.acknowledged = max(self.acknowledged, offset)
        else:
            super().acknowledge(offset)

    def is_refused(self, answer: Answer | None) -> bool:
        """Whether an answer about a file that does not match says that it has ended."""
        if answer is None or answer.status in {204, *BUSY}:
            return False
        assert answer.status in {400, 410}, f"{self}: {answer}"
        media = self.line.ask(self.rng, "GET", f"/media/{self.id}")
        assert media is None or media.status in {404, 410, *BUSY}, f"{self}: {media}"
        self.is_complete = True
        return True

    @property
    def path(self) -> str:
        """Of the upload."""
        return f"/resumable/{self.id}"


def content_for(rng: Random) -> bytes:
    """Mostly short, now and then of two cells; never empty."""
    return rng.randbytes(rng.randint(1, rng.choice([*3 * [MOST_BYTES], CELL_BYTES + 5 * MIB])))


def drawn_length(rng: Random) -> int:
    """How long a request with a digest may be: mostly short, and as long as a file now and then."""
    return rng.randint(1, rng.choice([2 * CHUNK_BYTES, 2 * CELL_BYTES]))


def spoilt(content: bytes) -> bytes:
    """The same but for the last byte."""
    return content[:-1] + bytes([content[-1] ^ 1])


def digest(content: bytes) -> str:
    """The value of a digest field (RFC 9530)."""
    return f"sha-256=:{b64encode(hashlib.sha256(content).digest()).decode()}:"


def check_refused(sender: Sender, status: int, answer: Answer | None) -> None:
    """Assert that bytes that do not match their digest were refused with this status."""
    assert answer is None or answer.status in {status, *BUSY}, f"{sender}: {answer}"


KINDS = (
    *PROTOCOLS,
    Deferred,
    Concatenated,
    LongConcatenated,
    Scattered,
    Direct,
    Checked,
    Digested,
)
"""Every protocol, and what only a fleet makes hard."""
