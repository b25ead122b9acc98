"""Many files: small ones in bundles, the others in chunks, two at a time."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Mapping, Sequence

from sluice_client.bundle_sender import BundleSender, OnOutcome, find_same, uploaded
from sluice_client.crew import Crew
from sluice_client.errors import (
    FileProblem,
    Interrupted,
    KeyRefused,
    ServerUnreachable,
    SluiceError,
)
from sluice_client.local_file import LocalFile
from sluice_client.progress import Meter, Phase, ProgressListener
from sluice_client.uploader import UploadContext, Uploaded, upload_file

FILES_AT_ONCE = 2
"""While the server verifies one, the next is sent. More gain nothing: the bandwidth or the server's
disk is the limit, and every file uses several connections already."""


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
) -> dict[LocalFile, Uploaded]:
    """The outcomes for files that an earlier run stored, as far as they are there and the same."""
    server = context.transport.base_url
    known = context.store.load(server, *fingerprints.values())
    ids = {
        file: known[fingerprint].id
        for file, fingerprint in fingerprints.items()
        if fingerprint in known and known[fingerprint].is_stored
    }
    same = find_same(context.transport, ids)
    context.store.forget(server, *(fingerprints[file] for file in ids.keys() - same.keys()))
    return {file: uploaded(server, file, document, sent=0) for file, document in same.items()}


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
