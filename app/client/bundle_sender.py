"""Sends bundles over several connections, each file stored once whatever breaks."""

from __future__ import annotations

import hashlib
import threading
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from app.client.bundles import Bundle, BundleBody, make_bundles
from app.client.crew import Crew
from app.client.errors import (
    ConnectionFailed,
    ContentMismatch,
    FileProblem,
    Interrupted,
    Refused,
    SluiceError,
    problem_of,
)
from app.client.local_file import READ_BYTES, LocalFile, read_at
from app.client.progress import Meter, Phase
from app.client.resume_store import UploadRecord
from app.client.retry import Patience, waiting_note
from app.client.transport import json_object
from app.client.uploader import UploadContext, Uploaded

CONNECTIONS = 4
"""Most bundles at once. What a server gains from more (it waits for its disk) is little, and a
bundle takes the whole line."""

QUIET_SECONDS = 1.0
QUIET_LOOKS = 15
"""After a cut the server still stores what had reached it. Only when the list of files has stood
still for a second is it known what has to be sent again, and what would be there twice."""

Outcome = Uploaded | SluiceError
OnOutcome = Callable[[LocalFile, Outcome], None]
"""Called from several threads, one at a time."""


StoredKey = tuple[str, int, str | None]
"""Name, size in bytes and SHA-256 of a stored file."""


class BundleSender:
    """Sends many small files. Those the server will not take in a bundle are in `left_over`."""

    def __init__(
        self,
        context: UploadContext,
        files: Sequence[LocalFile],
        *,
        meter: Meter,
        on_outcome: OnOutcome,
    ) -> None:
        self.left_over: list[LocalFile] = []
        self._context = context
        self._transport = context.transport
        self._queue = make_bundles(files)
        self._meter = meter
        self._on_outcome = on_outcome
        self._claimed: set[str] = set()
        self._lock = threading.Lock()
        self._patience: Patience = self._transport.patience()
        self._patience.on_wait = lambda seconds, error: meter.report(
            Phase.WAITING, waiting_note(error, seconds)
        )
        size = min(CONNECTIONS, self._transport.options.parallel, max(1, len(self._queue)))
        self._crew = Crew(size, self._work, self._transport.stop)
        self._began = ""

    def send(self) -> None:
        """Return once every file has its outcome or is left over; raises what ends them all."""
        server, now = (
            self._transport.base_url,
            str(self._transport.json("GET", "/api/server")["time"]),
        )
        self._began = self._context.store.begin_bundles(server, now)
        if self._began < now:
            self._claim_of_killed_run()
        self._crew.run()
        self._context.store.end_bundles(server)

    def _work(self) -> None:
        while not self._crew.is_over and (bundle := self._take()) is not None:
            self._send(bundle)

    def _take(self) -> Bundle | None:
        with self._lock:
            return self._queue.pop(0) if self._queue else None

    def _send(self, bundle: Bundle) -> None:
        failures = 0
        while bundle.files:
            try:
                self._settle(bundle, self._post(bundle))
                self._patience.progressed()
                return
            except Refused as error:
                if not error.retryable:
                    self._refused(bundle, error)
                    return
                failures += 1
                self._patience.wait_after(error, failures)
            except (FileProblem, ContentMismatch) as error:
                self._drop_broken(bundle, error)
            except ConnectionFailed as error:
                failures += 1
                self._patience.wait_after(error, failures)
            self._claim_stored(bundle, self._stored_when_quiet())

    def _post(self, bundle: Bundle) -> list[dict[str, Any]]:
        sent = 0

        def count(block: int) -> None:
            nonlocal sent
            sent += block
            self._meter.moved(block)

        body = BundleBody(bundle, is_over=lambda: self._crew.is_over, on_sent=count)
        try:
            answer = self._transport.request(
                "POST", "/batch", data=body, headers={"Content-Type": body.content_type}
            )
            receipts = json_object(answer).get("files")
            if not isinstance(receipts, list) or len(receipts) != len(bundle.files):
                raise ConnectionFailed("The server's answer does not fit the files that were sent.")
            return receipts
        except SluiceError:
            self._meter.moved(-sent)
            raise

    def _settle(self, bundle: Bundle, receipts: list[dict[str, Any]]) -> None:
        for file, receipt in zip(bundle.files, receipts, strict=True):
            if "error" in receipt:
                status = int(receipt["error"].get("status", 400))
                self._report(file, Refused(status, **problem_of(receipt["error"], status)))
            elif receipt.get("sha256") != bundle.sha256[file]:
                self._report(file, self._mismatch(file, str(receipt["id"])))
            else:
                self._stored(file, str(receipt["id"]), bundle.sha256[file])
        bundle.files.clear()

    def _mismatch(self, file: LocalFile, video_id: str) -> ContentMismatch:
        self._transport.patiently(
            lambda: self._transport.request("DELETE", f"/api/videos/{video_id}")
        )
        return ContentMismatch(f"{file.path}: other bytes arrived than were sent.")

    def _stored(self, file: LocalFile, video_id: str, sha256: str) -> None:
        server = self._transport.base_url
        # It is stored, whatever has become of the file here since.
        with suppress(FileProblem), file.open() as descriptor:
            fingerprint = file.fingerprint(descriptor)
            path = str(file.path.absolute())
            self._context.store.save(
                UploadRecord(server, fingerprint, video_id, path, file.size, sha256)
            )
        self._report(file, uploaded(server, file, video_id, sha256, sent=file.size))

    def _refused(self, bundle: Bundle, error: Refused) -> None:
        """Not in one request, then: in two; and a single file in chunks, which can be smaller."""
        with self._lock:
            if error.is_body_too_large and len(bundle.files) > 1:
                self._queue[:0] = bundle.halves()
            else:
                self.left_over.extend(bundle.files)

    def _drop_broken(self, bundle: Bundle, error: SluiceError) -> None:
        """Take the file that was being read when it failed out: the first one without a sum."""
        broken = next(file for file in bundle.files if file not in bundle.sha256)
        bundle.files.remove(broken)
        self._report(broken, error)

    def _claim_of_killed_run(self) -> None:
        stored = self._stored_when_quiet()
        for bundle in self._queue:
            bundle.sha256 = {file: sha256_of(file) for file in bundle.files}
            self._claim_stored(bundle, stored)

    def _claim_stored(self, bundle: Bundle, stored: dict[StoredKey, str]) -> None:
        """Take out what an attempt without an answer stored all the same: once is enough."""
        for file in list(bundle.files):
            sha256 = bundle.sha256.pop(file, None)
            if sha256 is None:
                continue
            name = unicodedata.normalize("NFC", file.name)
            video_id = stored.get((name, file.size, sha256))
            if video_id is not None and self._claim(video_id):
                bundle.files.remove(file)
                self._meter.moved(file.size)
                self._stored(file, video_id, sha256)

    def _stored_when_quiet(self) -> dict[StoredKey, str]:
        """What is stored once the server has worked off what had reached it before the cut."""
        stored = self._stored_since_begin()
        for _ in range(QUIET_LOOKS):
            if self._transport.stop.wait(QUIET_SECONDS):
                raise Interrupted("Stopped while the server worked.")
            before, stored = stored, self._stored_since_begin()
            if stored == before:
                break
        return stored

    def _stored_since_begin(self) -> dict[StoredKey, str]:
        return {
            (video["filename"], video["length"], video["sha256"]): str(video["id"])
            for video in self._transport.patiently(lambda: list(self._recent()), self._patience)
        }

    def _claim(self, video_id: str) -> bool:
        with self._lock:
            is_new = video_id not in self._claimed
            self._claimed.add(video_id)
            return is_new

    def _recent(self) -> Iterator[dict[str, Any]]:
        """The videos published since this sender began, newest first."""
        query = "?limit=200"
        while True:
            answer = self._transport.request("GET", f"/api/videos{query}")
            page = json_object(answer)
            for video in page["videos"]:
                if video["published"] < self._began:
                    return
                yield video
            if not page.get("next"):
                return
            query = f"?limit=200&cursor={page['next']}"

    def _report(self, file: LocalFile, outcome: Outcome) -> None:
        with self._lock:
            if isinstance(outcome, Uploaded):
                self._claimed.add(outcome.id)
            self._on_outcome(file, outcome)


def uploaded(server: str, file: LocalFile, video_id: str, sha256: str, *, sent: int) -> Uploaded:
    """A verified file on the server."""
    return Uploaded(
        path=str(file.path),
        name=file.name,
        id=video_id,
        length=file.size,
        sha256=sha256,
        media=f"/media/{video_id}",
        url=f"{server}/media/{video_id}",
        sent=sent,
        is_verified=True,
    )


def sha256_of(file: LocalFile) -> str:
    """Of the whole file, in steps."""
    digest = hashlib.sha256()
    with file.open() as descriptor:
        position = 0
        while position < file.size:
            block = read_at(descriptor, READ_BYTES, position)
            digest.update(block)
            position += len(block)
    return digest.hexdigest()
