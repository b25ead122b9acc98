"""Sends bundles over several connections; each file is stored once, whatever breaks.

If an answer is lost, the bundle is sent again. The server recognizes by its fingerprint a file that
it has stored or is storing, and gives the receipt of the first time. Whether that is the same file
is told by its SHA-256: anybody may have stored another one under that fingerprint.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from sluice_client.bundles import Bundle, BundleBody, make_bundles
from sluice_client.crew import Crew
from sluice_client.errors import (
    ConnectionFailed,
    ContentMismatch,
    FileProblem,
    KeyRefused,
    Refused,
    SluiceError,
    problem_of,
)
from sluice_client.hashing import Kind, hash_of, in_transit
from sluice_client.local_file import LocalFile
from sluice_client.progress import Meter
from sluice_client.resume_store import UploadRecord
from sluice_client.retry import Patience
from sluice_client.transport import Transport, json_object
from sluice_client.uploader import UploadContext, Uploaded, await_sha256

CONNECTIONS = 4
"""Maximum number of bundles at once. A server that waits for its disk gains little from more, and
one bundle uses all the bandwidth."""

Outcome = Uploaded | SluiceError
OnOutcome = Callable[[LocalFile, Outcome], None]
"""Called from several threads, one at a time."""


class BundleSender:
    """Sends many small files, each under its fingerprint.

    Files that the server does not accept in a bundle, or confuses with an earlier one, are in
    `left_over`.
    """

    def __init__(
        self,
        context: UploadContext,
        files: Sequence[LocalFile],
        fingerprints: Mapping[LocalFile, str],
        *,
        meter: Meter,
        on_outcome: OnOutcome,
    ) -> None:
        self.left_over: list[LocalFile] = []
        self._context = context
        self._transport = context.transport
        self._queue = make_bundles(files)
        self._fingerprints = fingerprints
        self._meter = meter
        self._on_outcome = on_outcome
        self._lock = threading.Lock()
        self._patience: Patience = self._transport.patience()
        self._patience.on_wait = meter.waiting
        size = min(CONNECTIONS, self._transport.options.parallel, max(1, len(self._queue)))
        self._crew = Crew(size, self._work, self._transport.stop)

    def send(self) -> None:
        """Return once every file has an outcome or is left over; raises what ends all of them."""
        self._crew.run()

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
            except KeyRefused:
                raise
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

    def _post(self, bundle: Bundle) -> list[dict[str, Any]]:
        sent = 0

        def count(block: int) -> None:
            nonlocal sent
            sent += block
            self._meter.moved(block)

        bundle.checksums.clear()
        body = BundleBody(
            bundle, self._fingerprints, is_over=lambda: self._crew.is_over, on_sent=count
        )
        try:
            headers = {"Content-Type": body.content_type}
            if in_transit() is Kind.CRC32C:
                headers["Want-Repr-Digest"] = "crc32c=1"
            answer = self._transport.request("POST", "/batch", data=body, headers=headers)
            receipts = json_object(answer).get("files")
            if not isinstance(receipts, list) or len(receipts) != len(bundle.files):
                raise ConnectionFailed(
                    "The server's answer does not match the files that were sent."
                )
            return receipts
        except SluiceError:
            self._meter.moved(-sent)
            raise

    def _settle(self, bundle: Bundle, receipts: list[dict[str, Any]]) -> None:
        """Files that the server cannot take yet stay in the bundle; raises its reason for one."""
        known = {
            file: str(receipt["id"])
            for file, receipt in zip(bundle.files, receipts, strict=True)
            if receipt.get("known")
        }
        same = find_same(self._transport, known)
        not_yet: dict[LocalFile, Refused] = {}
        stored: dict[LocalFile, dict[str, Any]] = {}
        for file, receipt in zip(bundle.files, receipts, strict=True):
            if "error" in receipt:
                status = int(receipt["error"].get("status", 400))
                refused = Refused(status, **problem_of(receipt["error"], status))
                if refused.retryable:
                    not_yet[file] = refused
                else:
                    self._report(file, refused)
            elif file in same or (file not in known and bundle.checksums[file].is_in(receipt)):
                stored[file] = same.get(file, receipt)
            elif file in known:
                self._leave_over([file])
            else:
                self._remember(stored)  # Removing the wrong file may fail.
                stored.clear()
                self._report(file, self._mismatch(file, str(receipt["id"])))
        self._remember(stored)
        bundle.files[:] = not_yet
        if not_yet:
            self._meter.moved(-sum(file.size for file in not_yet))
            raise next(iter(not_yet.values()))

    def _mismatch(self, file: LocalFile, video_id: str) -> ContentMismatch:
        self._transport.patiently(
            lambda: self._transport.request("DELETE", f"/api/videos/{video_id}")
        )
        return ContentMismatch(f"{file.path}: the bytes that arrived differ from those sent.")

    def _remember(self, stored: Mapping[LocalFile, dict[str, Any]]) -> None:
        """Record what is stored, at once for a bundle, and report it."""
        if not stored:
            return
        server = self._transport.base_url
        self._context.store.save(
            *(
                UploadRecord(
                    server,
                    self._fingerprints[file],
                    str(receipt["id"]),
                    str(file.path.absolute()),
                    file.size,
                    is_stored=True,
                )
                for file, receipt in stored.items()
            )
        )
        self._transport.has_kept_bytes = True
        for file, receipt in stored.items():
            self._report(file, uploaded(server, file, receipt, sent=file.size))

    def _refused(self, bundle: Bundle, error: Refused) -> None:
        """Try two smaller requests instead; a single file goes in chunks, which can be smaller."""
        if error.is_body_too_large and len(bundle.files) > 1:
            with self._lock:
                self._queue[:0] = bundle.halves()
        else:
            self._leave_over(bundle.files)

    def _leave_over(self, files: Sequence[LocalFile]) -> None:
        with self._lock:
            self.left_over.extend(files)

    def _drop_broken(self, bundle: Bundle, error: SluiceError) -> None:
        """Take out the file that was being read at the failure: the first without a checksum."""
        broken = next(file for file in bundle.files if file not in bundle.checksums)
        bundle.files.remove(broken)
        self._report(broken, error)

    def _report(self, file: LocalFile, outcome: Outcome) -> None:
        with self._lock:
            self._on_outcome(file, outcome)


def find_same(
    transport: Transport, ids: Mapping[LocalFile, str]
) -> dict[LocalFile, dict[str, Any]]:
    """Of files and the uploads that may be theirs: those that are, as the server describes them."""
    documents = await_sha256(transport, list(ids.values()))
    same = {}
    for file, upload_id in ids.items():
        document = documents.get(upload_id)
        with suppress(FileProblem, ContentMismatch):  # It is reported once it is sent.
            if document and document[Kind.SHA256] == _sha256_of(file, transport.stop):
                same[file] = document
    return same


def _sha256_of(file: LocalFile, stop: threading.Event) -> str:
    with file.open() as descriptor:
        return hash_of(descriptor, 0, file.size, Kind.SHA256, stop=stop).result()


def uploaded(server: str, file: LocalFile, document: Mapping[str, Any], *, sent: int) -> Uploaded:
    """A verified file, as the server's `document` describes it."""
    video_id = str(document["id"])
    return Uploaded(
        path=str(file.path),
        name=file.name,
        id=video_id,
        length=file.size,
        sha256=document.get("sha256"),
        crc32c=document.get("crc32c"),
        media=f"/media/{video_id}",
        url=f"{server}/media/{video_id}",
        sent=sent,
        is_verified=True,
    )
