"""POST /batch: many whole files in one multipart request, each with a receipt of its own.

The files are taken one after the other as they come in, and kept in groups, as what a disk needs
to make sixty-four files durable is hardly more than for one. A file that is refused (its name, its
type, its size) is passed over, and says why in its receipt. Where the body itself breaks, the files
that came whole before are stored, and the answer has their receipts beside what is wrong.

Two fields may stand in front of a file. `fingerprint` is the client's name for its content: a
client that has lost the answer sends the same again, and what is stored already is not stored
twice. With its `length` in bytes, a file is not searched for its end, and stays in the kernel.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from flask import Blueprint, Response, jsonify, request

from app.domain.errors import (
    BodyStalled,
    BodyTruncated,
    ChunkMismatch,
    InvalidRequest,
    MalformedBody,
    TooLarge,
    UnknownChunkFields,
    UploadError,
)
from app.domain.lifecycle import UploadState
from app.domain.policy import check_fingerprint
from app.http.bodies import open_form
from app.http.chunk_signs import chunk_signs
from app.http.context import current_owner, current_services
from app.http.problems import Problem, answer_json, report
from app.ingest.form import FilePart
from app.request.slots import without_slot
from app.request.stages import Stage, stage
from app.uploads.whole import Kept, ReceivedFile

blueprint = Blueprint("batch", __name__)

MAX_FILES = 20_000
"""Files in one request; the receipts of all of them are held until its end."""

GROUP_FILES = 64
GROUP_BYTES = 32 * 1024 * 1024
GROUP_SECONDS = 0.2
"""Whichever comes first ends a group: on a slow line a file does not wait for the next one. It is
kept while the next group arrives, so a crash costs two groups of what no receipt tells of yet."""

OWN_FIELDS = {"fingerprint", "length"}

_LENGTH = re.compile(r"[0-9]{1,18}")

BROKEN_BODY = (BodyStalled, BodyTruncated, ChunkMismatch, MalformedBody)

Receipt = dict[str, Any]


@blueprint.post("/batch")
def batch() -> Response:
    """Store every file of the form; receipts in the order of the parts."""
    _refuse_chunk({}, request.headers.keys())
    with ThreadPoolExecutor(1, thread_name_prefix="batch") as keeper:
        files = _Batch(keeper)
        try:
            files.receive()
        except UploadError as error:
            report(error)
            return answer_json(Problem.of(error), files.to_json())
    return jsonify(files.to_json())


class _Batch:
    """One form: the receipts so far, and the files that wait to be kept together.

    `keeper` keeps one group while the next one arrives: the disk and the network work at once. It
    takes no turn, as it mostly waits for the disk, and a batch has only one.
    """

    def __init__(self, keeper: ThreadPoolExecutor) -> None:
        self._keeper = keeper
        self._keep_all = current_services().whole_files.keep_all
        self._receipts: list[Receipt] = []
        self._group: list[tuple[ReceivedFile, Receipt]] = []
        self._group_began = 0.0
        self._keeping: tuple[list[Receipt], Future[list[Kept | UploadError]]] | None = None
        self._fields: dict[str, str] = {}

    def receive(self) -> None:
        """Read the form to its end, and keep its files; also those before an error it raises."""
        try:
            for part in open_form().parts():
                if isinstance(part, FilePart):
                    self._take(part)
                else:
                    self._fields[part.name] = part.value
                if self._is_group_full:
                    self._keep_meanwhile()
        finally:
            self._keep_rest()

    def to_json(self) -> dict[str, Any]:
        """The receipts so far, and how many files are stored and refused."""
        stored = sum("id" in receipt for receipt in self._receipts)
        refused = len(self._receipts) - stored
        return {"stored": stored, "refused": refused, "files": self._receipts}

    def _take(self, part: FilePart) -> None:
        fields, self._fields = self._fields, {}
        if not part.filename:  # A browser sends an unnamed one for an input nothing was chosen in.
            return
        if len(self._receipts) == MAX_FILES:
            raise TooLarge(f"A batch has at most {MAX_FILES} files; this many are stored.")
        if others := fields.keys() - OWN_FIELDS:
            _refuse_chunk({name: fields[name] for name in others})
        receipt: Receipt = {"name": part.filename}
        try:
            file = _received(part, fields)
        except BROKEN_BODY:
            raise
        except UploadError as error:
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

    def _keep_meanwhile(self) -> None:
        """Begin to keep the group, once the one before it is kept."""
        self._await_kept()
        kept = self._keeper.submit(self._keep_all, [file for file, _ in self._group])
        self._keeping = [receipt for _, receipt in self._group], kept
        self._group = []

    def _await_kept(self) -> None:
        if self._keeping is not None:
            (receipts, kept), self._keeping = self._keeping, None
            with stage(Stage.SYNC), without_slot():
                _fill_in(receipts, kept.result)

    def _keep_rest(self) -> None:
        """Keep what has come last, in this thread: nothing more arrives meanwhile."""
        try:
            self._await_kept()
        finally:
            if self._group:
                files = [file for file, _ in self._group]
                _fill_in([receipt for _, receipt in self._group], lambda: self._keep_all(files))


def _fill_in(receipts: list[Receipt], outcomes: Callable[[], list[Kept | UploadError]]) -> None:
    try:
        for receipt, outcome in zip(receipts, outcomes(), strict=True):
            receipt.update(_document(outcome))
    except UploadError as error:
        for receipt in receipts:
            receipt["error"] = Problem.of(error).to_json()


def _refuse_chunk(fields: dict[str, str], headers: Iterable[str] = ()) -> None:
    """Raise `UnknownChunkFields` where names of another protocol tell of a chunk."""
    if signs := chunk_signs(fields, headers, None):
        raise UnknownChunkFields.of(signs)


def _received(part: FilePart, fields: dict[str, str]) -> ReceivedFile:
    fingerprint, length = fields.get("fingerprint"), fields.get("length")
    if fingerprint is not None:
        check_fingerprint(fingerprint)
    source = part.whole() if length is None else part.exactly(_parse_length(length))
    file = current_services().whole_files.receive(
        source, owner=current_owner(), filename=part.filename
    )
    return replace(file, fingerprint=fingerprint)


def _parse_length(text: str) -> int:
    if not _LENGTH.fullmatch(text):
        raise InvalidRequest("The field length is a number of bytes.")
    return int(text)


def _document(outcome: Kept | UploadError) -> Receipt:
    if isinstance(outcome, UploadError):
        return {"error": Problem.of(outcome).to_json()}
    upload = outcome.upload
    document: Receipt = {"id": upload.id, "length": upload.length, "sha256": upload.sha256}
    if upload.state is UploadState.COMPLETE:
        document["media"] = f"/media/{upload.id}"
    if not outcome.is_new:
        document["known"] = True
    return document
