"""Many files: small ones in bundles, the others in chunks, two at a time."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from sluice_client.bundle_sender import BundleSender, OnOutcome, uploaded
from sluice_client.crew import Crew
from sluice_client.errors import (
    ContentMismatch,
    FileProblem,
    Interrupted,
    KeyRefused,
    Refused,
    ServerUnreachable,
    SluiceError,
)
from sluice_client.hashing import hash_of, in_transit
from sluice_client.local_file import LocalFile
from sluice_client.progress import Meter, Phase, ProgressListener
from sluice_client.uploader import UploadContext, Uploaded, upload_file

FILES_AT_ONCE = 2
"""While the server verifies one, the next is sent. More gain nothing: the bandwidth or the server's
disk is the limit, and every file uses several connections already."""

IDS_AT_ONCE = 100
"""Most uploads that the server is asked about in one request."""


def upload_many(
    context: UploadContext,
    files: Sequence[LocalFile],
    *,
    on_outcome: OnOutcome,
    listener: ProgressListener | None = None,
) -> None:
    """Report the outcome of each file as soon as it is known.

    Raises `Interrupted` or `ServerUnreachable`, which end all transfers; the next run continues.
    """
    lock = threading.Lock()

    def tell(file: LocalFile, outcome: Uploaded | SluiceError) -> None:
        with lock:
            on_outcome(file, outcome)

    limit = context.transport.options.batch_below_bytes
    small = [file for file in files if file.size < limit]
    if len(small) < 2:
        small = []
    bundled = set(small)
    large = [file for file in files if file not in bundled]
    if small:
        large = [*_in_bundles(context, small, tell, listener), *large]
    _one_by_one(context, large, tell, listener)


def _in_bundles(
    context: UploadContext,
    files: list[LocalFile],
    on_outcome: OnOutcome,
    listener: ProgressListener | None,
) -> list[LocalFile]:
    """Send what the server does not have yet; returns what it does not accept in bundles."""
    fingerprints = _fingerprints(files, on_outcome)
    outcomes = _stored_before(context, fingerprints)
    for file, outcome in outcomes.items():
        on_outcome(file, outcome)
    new = [file for file in fingerprints if file not in outcomes]
    if not new:
        return []
    meter = Meter(f"{len(new)} small files", sum(file.size for file in new), listener)
    meter.start_at(0)
    sender = BundleSender(context, new, fingerprints, meter=meter, on_outcome=on_outcome)
    sender.send()
    meter.report(Phase.DONE)
    return sender.left_over


def _fingerprints(files: Sequence[LocalFile], on_outcome: OnOutcome) -> dict[LocalFile, str]:
    """A distinct fingerprint for each file that can be read.

    Copies given one by one may have the same name, time and bytes; those are numbered.
    """
    fingerprints: dict[LocalFile, str] = {}
    copies: Counter[str] = Counter()
    for file in files:
        try:
            with file.open() as descriptor:
                fingerprint = file.fingerprint(descriptor)
        except FileProblem as error:
            on_outcome(file, error)
            continue
        copies[fingerprint] += 1
        count = copies[fingerprint]
        fingerprints[file] = fingerprint if count == 1 else f"{fingerprint}-{count}"
    return fingerprints


def _stored_before(
    context: UploadContext, fingerprints: Mapping[LocalFile, str]
) -> dict[LocalFile, Uploaded | SluiceError]:
    """The outcomes for files that an earlier run stored, as far as they are there and unchanged."""
    server = context.transport.base_url
    outcomes: dict[LocalFile, Uploaded | SluiceError] = {}
    ids: dict[LocalFile, str] = {}
    for file, fingerprint in fingerprints.items():
        record = context.store.load(server, fingerprint)
        try:
            if record and record.checksum and record.checksum == _checksum_of(file):
                ids[file] = record.id
        except (FileProblem, ContentMismatch) as error:
            outcomes[file] = error
    documents = _stored(context, list(ids.values()))
    for file, upload_id in ids.items():
        if upload_id in documents:
            outcomes[file] = uploaded(server, file, documents[upload_id], sent=0)
        else:
            context.store.forget(server, fingerprints[file])
    return outcomes


def _stored(context: UploadContext, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What the server says of those of the uploads that are still there, complete."""
    documents: dict[str, dict[str, Any]] = {}
    for start in range(0, len(ids), IDS_AT_ONCE):
        query = {"id": ids[start : start + IDS_AT_ONCE]}
        try:
            page = context.transport.json("GET", "/api/uploads", params=query)
        except KeyRefused:
            raise
        except Refused:  # The bundles find them by their fingerprints.
            continue
        found = [each for each in page.get("uploads", []) if each["state"] == "complete"]
        documents |= {str(each["id"]): each for each in found}
    return documents


def _checksum_of(file: LocalFile) -> str:
    with file.open() as descriptor:
        return hash_of(descriptor, 0, file.size, in_transit()).digest_field()


def _one_by_one(
    context: UploadContext,
    files: Sequence[LocalFile],
    on_outcome: OnOutcome,
    listener: ProgressListener | None,
) -> None:
    waiting: queue.SimpleQueue[LocalFile] = queue.SimpleQueue()
    for file in files:
        waiting.put(file)

    def work() -> None:
        while not crew.is_over:
            try:
                file = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                outcome: Uploaded | SluiceError = upload_file(context, file, listener)
            except (Interrupted, ServerUnreachable, KeyRefused):
                raise
            except SluiceError as error:
                outcome = error
            on_outcome(file, outcome)

    crew = Crew(min(FILES_AT_ONCE, len(files)), work, context.transport.stop)
    crew.run()
