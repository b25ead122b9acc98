"""POST /batch: many whole files in one multipart request, each with a receipt of its own.

Files are received one after the other and published in groups, because syncing a hundred files
takes a disk hardly longer than syncing one. A file that is refused for its name, type or size is
skipped, and its receipt says why. If the body itself breaks, the files that arrived completely
before are stored, and the response has their receipts together with the problem.

Two fields may precede a file. `fingerprint` identifies its content: a client that lost the response
retries with the same one, and a file that is already stored is not stored twice. With `length`, in
bytes, the file is not scanned for its end, and its bytes never leave the kernel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from flask import Blueprint, Response, jsonify, request

from app.core import errors
from app.core.access import Action
from app.core.chunk_signs import chunk_signs
from app.core.json_types import (
    FIELD_NAMES,
    Count,
    Crc32c,
    Filename,
    Fingerprint,
    Id,
    MediaPath,
    Sha256,
    keywords,
)
from app.core.lifecycle import UploadState
from app.core.numbers import parse_bounded
from app.core.policy import check_fingerprint
from app.http.access import requires
from app.http.bodies import open_form
from app.http.context import ViewContext
from app.http.digests import CRC32C, wanted_digests
from app.http.openapi import WANT_REPR_DIGEST, describes
from app.http.problems import Problem, ProblemDocument, answer_json, report
from app.ingest.form import FilePart
from app.ingest.slots import without_slot
from app.ingest.stages import Stage
from app.uploads.files import Kept, ReceivedFile

blueprint = Blueprint("batch", __name__)

MAX_FILES = 20_000
"""Maximum files in one request; their receipts are held in memory until its end."""

GROUP_FILES = 128
GROUP_BYTES = 32 * 1024 * 1024
GROUP_SECONDS = 0.2
"""The first limit reached ends a group: on a slow link a file does not wait for the next one. A
bundle of our client and page, of 100 files at most, is one group if it comes fast enough. A
group is published while the next one arrives, so a crash loses at most two groups, none of them
acknowledged."""

OWN_FIELDS = {"fingerprint", "length"}

BROKEN_BODY = (errors.BodyStalled, errors.BodyTruncated, errors.ChunkMismatch, errors.MalformedBody)

Outcome = Kept | errors.UploadError
Receipt = dict[str, Any]


class BatchFormDocument(TypedDict):
    """Files, each after its own fields."""

    fingerprint: NotRequired[list[Fingerprint]]
    """Each in front of its file. With the length, it names the file's content."""
    length: NotRequired[list[Count]]
    """Each in front of its file, which then may contain any bytes."""
    file: NotRequired[list[bytes]]


class StoredFileDocument(TypedDict):
    """The receipt of a stored file."""

    name: Filename
    id: Id
    length: Count
    sha256: Sha256 | None
    """Null for files over 32 MiB until the background worker has computed it, and if the request
    wants a CRC32C instead."""
    crc32c: Crc32c | None
    """Only if the request wants it, and of files up to 32 MiB."""
    media: NotRequired[MediaPath]
    known: NotRequired[Literal[True]]
    """An earlier file with this fingerprint stands for it."""


class RefusedFileDocument(TypedDict):
    """The receipt of a file that was refused."""

    name: str
    error: ProblemDocument


class BatchReceiptDocument(TypedDict):
    """A receipt for each file, in the order of the files.

    Example:
        {
            "stored": 1,
            "refused": 1,
            "files": [
                {
                    "name": "a.mp4",
                    "id": "9f86d081884c7d659a2feaa0c55ad015",
                    "length": 3,
                    "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
                    "crc32c": null,
                    "media": "/media/9f86d081884c7d659a2feaa0c55ad015"
                },
                {
                    "name": "b.exe",
                    "error": {
                        "type": "urn:sluice:problem:type_not_allowed",
                        "title": "Files of this type are not accepted",
                        "status": 415,
                        "detail": "This server accepts .mp4 files only.",
                        "code": "type_not_allowed",
                        "retryable": false
                    }
                }
            ]
        }
    """

    stored: Count
    refused: Count
    files: list[StoredFileDocument | RefusedFileDocument]


class BatchProblem(ProblemDocument):
    """A problem, with the receipts of the files that arrived whole before it."""

    stored: NotRequired[Count]
    refused: NotRequired[Count]
    files: NotRequired[list[StoredFileDocument | RefusedFileDocument]]


@blueprint.post("/batch")
@requires(Action.SEND)
@describes(
    "sendBatch",
    {200: BatchReceiptDocument},
    *(errors.MalformedBody, errors.UnknownChunkFields, errors.ChunkMismatch),
    parameters=(WANT_REPR_DIGEST,),
    bodies={
        "multipart/form-data": Annotated[BatchFormDocument, keywords(propertyNames=FIELD_NAMES)]
    },
    problem=BatchProblem,
)
def batch(ctx: ViewContext) -> Response:
    """Send many whole files in one form.

    Each file gets a receipt; one that is refused does not stop the others. If the body breaks off,
    the problem document has the receipts of the files that arrived whole before that.

    Up to 20,000 files. In front of a file may stand its `fingerprint`, so that a file stored before
    is not stored again, and its `length`, so that it need not be searched for its end.
    """
    _refuse_chunk({}, request.headers.keys())
    with ThreadPoolExecutor(1, thread_name_prefix="batch") as publisher:
        files = _Batch(ctx, publisher)
        try:
            files.receive()
        except errors.UploadError as error:
            report(error)
            return answer_json(Problem.of(error), files.to_json())
    return jsonify(files.to_json())


class _Batch:
    """One form: the receipts so far, and the group of files to be published next.

    `publisher` publishes one group while the next one arrives, so disk and network work at the same
    time. It needs no slot: it mostly waits for the disk, and a batch has only one.
    """

    def __init__(self, ctx: ViewContext, publisher: ThreadPoolExecutor) -> None:
        self._ctx = ctx
        self._publisher = publisher
        self._keep_all = ctx.services.whole_files.keep_all
        self._receipts: list[Receipt] = []
        self._group: list[tuple[ReceivedFile, Receipt]] = []
        self._group_began = 0.0
        self._publishing: tuple[list[Receipt], Future[list[Outcome]]] | None = None
        self._fields: dict[str, str] = {}

    def receive(self) -> None:
        """Read the form to its end and publish its files, including those before an error."""
        try:
            for part in open_form(self._ctx).parts():
                if isinstance(part, FilePart):
                    self._take(part)
                else:
                    self._fields[part.name] = part.value
                if self._is_group_full:
                    self._await_published()  # Of the group before.
                    kept = self._publisher.submit(self._keep_all, [file for file, _ in self._group])
                    self._publishing = [receipt for _, receipt in self._group], kept
                    self._group = []
        finally:
            self._publish_rest()

    def to_json(self) -> dict[str, Any]:
        """The receipts so far, and how many files were stored and refused."""
        stored = sum("id" in receipt for receipt in self._receipts)
        refused = len(self._receipts) - stored
        return {"stored": stored, "refused": refused, "files": self._receipts}

    def _take(self, part: FilePart) -> None:
        fields, self._fields = self._fields, {}
        if not part.filename:  # Browsers send an unnamed part for an empty file input.
            return
        if len(self._receipts) == MAX_FILES:
            raise errors.TooLarge(
                f"A batch has at most {MAX_FILES} files; the first {MAX_FILES} are stored."
            )
        if others := fields.keys() - OWN_FIELDS:
            _refuse_chunk({name: fields[name] for name in others})
        receipt: Receipt = {"name": part.filename}
        try:
            file = _received(self._ctx, part, fields)
        except BROKEN_BODY:
            raise
        except errors.UploadError as error:
            receipt["error"] = Problem.of(error).to_json()
        else:
            self._group_began = self._group_began if self._group else time.monotonic()
            self._group.append((file, receipt))
        self._receipts.append(receipt)

    @property
    def _is_group_full(self) -> bool:
        return bool(self._group) and (
            len(self._group) >= GROUP_FILES
            or sum(file.length for file, _ in self._group) >= GROUP_BYTES
            or time.monotonic() - self._group_began >= GROUP_SECONDS
        )

    def _await_published(self) -> None:
        """Wait until the previous group is published."""
        if self._publishing is not None:
            (receipts, kept), self._publishing = self._publishing, None
            with Stage.SYNC, without_slot():
                _fill_in(receipts, kept.result)

    def _publish_rest(self) -> None:
        """Publish the last group in this thread: no more files are being received."""
        try:
            self._await_published()
        finally:
            if self._group:
                files = [file for file, _ in self._group]
                _fill_in([receipt for _, receipt in self._group], lambda: self._keep_all(files))


def _fill_in(receipts: list[Receipt], outcomes: Callable[[], list[Outcome]]) -> None:
    try:
        for receipt, outcome in zip(receipts, outcomes(), strict=True):
            if isinstance(outcome, errors.UploadError):
                receipt["error"] = Problem.of(outcome).to_json()
                continue
            upload = outcome.upload
            receipt |= {
                "id": upload.id,
                "length": upload.length,
                "sha256": upload.sha256,
                "crc32c": upload.crc32c,
            }
            if upload.state is UploadState.COMPLETE:
                receipt["media"] = f"/media/{upload.id}"
            if not outcome.is_new:
                receipt["known"] = True
    except errors.UploadError as error:
        for receipt in receipts:
            receipt["error"] = Problem.of(error).to_json()


def _refuse_chunk(fields: dict[str, str], headers: Iterable[str] = ()) -> None:
    """Raise `UnknownChunkFields` if names of another protocol show that the file is a chunk."""
    if signs := chunk_signs(fields, headers, None):
        raise errors.UnknownChunkFields.of(signs)


def _received(ctx: ViewContext, part: FilePart, fields: dict[str, str]) -> ReceivedFile:
    """Receive a file; its receipt has a SHA-256, or a CRC32C if the request prefers it."""
    fingerprint = fields.get("fingerprint")
    if fingerprint is not None:
        check_fingerprint(fingerprint)
    if "length" not in fields:
        source = part.whole()
    elif (length := parse_bounded(fields["length"])) is not None:
        source = part.exactly(length)
    else:
        raise errors.InvalidRequest("The field length must be a number of bytes.")
    file = ctx.services.whole_files.receive(
        source,
        scope=ctx.scope,
        filename=part.filename,
        algorithm="crc32c" if wanted_digests()[:1] == [CRC32C] else "sha256",
    )
    return replace(file, fingerprint=fingerprint)
