"""The errors that this protocol adds to the tree, and its problem types (draft -12, section 7)."""

from __future__ import annotations

from dataclasses import replace

from app.core.errors import (
    ChunkMismatch,
    InvalidRequest,
    OffsetMismatch,
    UploadComplete,
    UploadError,
    UploadGone,
)
from app.http.problems import Problem
from app.protocols.ietf.versions import PARTIAL_UPLOAD, InteropVersion

PROBLEM_TYPES = "https://iana.org/assignments/http-problem-types#"

Members = dict[str, object]


class InconsistentLength(InvalidRequest):
    """A request contradicts itself or an earlier one about the length of the upload."""

    code = "inconsistent_upload_length"
    title = "The upload lengths are inconsistent"


class NotPartialUpload(InvalidRequest):
    """The content type of an append is not that of a partial upload."""

    code = "not_partial_upload"
    title = f"The content is not {PARTIAL_UPLOAD}"
    status_hint = 415


def problem_of(error: UploadError, version: InteropVersion) -> tuple[Problem, Members]:
    """The problem with the status for that version, and the members of its type."""
    problem = Problem.of(error)
    if isinstance(error, OffsetMismatch):
        offsets = {"expected-offset": error.expected, "provided-offset": error.provided}
        return problem, {**_type("mismatching-upload-offset"), **offsets}
    if isinstance(error, InconsistentLength | ChunkMismatch):
        return problem, _type("inconsistent-upload-length")
    if isinstance(error, UploadComplete) and version.completed_upload_status is not None:
        return replace(problem, status=version.completed_upload_status), _type("completed-upload")
    if isinstance(error, UploadGone):
        return replace(problem, status=version.gone_status), {}
    return problem, {}


def _type(name: str) -> Members:
    return {"type": PROBLEM_TYPES + name, "title": _REGISTERED_TITLES[name]}


_REGISTERED_TITLES = {
    "mismatching-upload-offset": "Mismatching Upload Offset",
    "inconsistent-upload-length": "Inconsistent Upload Length Values",
    "completed-upload": "Upload Is Completed",
}
