"""Files whose ranges go to several nodes at the same time, and those whose length comes last."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from random import Random

from tests.dropzone_client import ChunkedFile, form_headers
from tests.hostile.senders import PROTOCOLS, Line, Sender, Tus
from tests.ietf_client import Answer

MIB = 1024 * 1024
THREADS = 3


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
        cuts = sorted(self.rng.randrange(len(self.content) + 1) for _ in range(THREADS - 1))
        bounds = zip([0, *cuts], [*cuts, len(self.content)], strict=True)
        self.parts = [_Part(line, self.rng, self.content[start:end]) for start, end in bounds]

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


class _Part(Tus):
    def __init__(self, line: Line, rng: Random, content: bytes) -> None:
        super().__init__(line, rng.getrandbits(64))
        self.content = content

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

    MOST_BYTES = 45 * MIB

    def __init__(self, line: Line, seed: int) -> None:
        super().__init__(line, seed)
        self.content = self.rng.randbytes(self.rng.randrange(20 * MIB, self.MOST_BYTES))
        self.file = ChunkedFile(self.content, self.rng.choice([6, 10, 20]) * MIB)
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


KINDS = (*PROTOCOLS, Deferred, Concatenated, Scattered)
"""Every protocol, and what only a fleet makes hard."""
