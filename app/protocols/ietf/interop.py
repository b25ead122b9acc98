"""Versions of the draft, and the headers, errors and responses of each."""

from __future__ import annotations

import mimetypes
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from flask import Response, jsonify
from http_sfv.dictionary import Dictionary
from werkzeug.http import parse_options_header

from app.core.errors import (
    ChunkMismatch,
    InvalidRequest,
    OffsetMismatch,
    UploadComplete,
    UploadError,
    UploadGone,
)
from app.core.lifecycle import UploadState
from app.core.policy import PLAYABLE
from app.core.upload import Upload
from app.http.context import ViewContext
from app.http.digests import (
    ALGORITHMS,
    SHA256,
    known_digest,
    parse_item,
    parse_wanted_digests,
    write_repr_digest,
)
from app.http.documents import chunk_document
from app.http.problems import Problem
from app.ingest.connection import send_interim
from app.ingest.source import BodySource, HashingSource
from app.settings import Settings

UPLOAD_COMPLETE = "Upload-Complete"
UPLOAD_INCOMPLETE = "Upload-Incomplete"

PARTIAL_UPLOAD = "application/partial-upload"


@dataclass(frozen=True, slots=True, kw_only=True)
class InteropVersion:
    """The requirements of one interop version."""

    number: int
    completeness_header: str = UPLOAD_COMPLETE
    """`Upload-Incomplete` has the opposite meaning."""
    default_completeness: bool | None = None
    """The meaning of an append without that header; None if the header is required."""
    append_type: str | None = PARTIAL_UPLOAD
    """Content-Type of an append; None for any."""
    lifetime_limit: str | None = "max-age"
    """The key for the lifetime in `Upload-Limit`; None if the version has no such header."""
    has_progress: bool = True
    """Whether 104 responses may have the offset."""
    completed_status: int = 200
    appended_status: int = 204
    gone_status: int = 410
    completed_upload_status: int | None = None
    """Status for bytes sent to a complete upload; None if there is no problem type for it."""
    bars_state_on_lookup: bool = False
    """Whether a HEAD or DELETE with an offset or completeness must be refused."""
    ends_overlong_upload: bool = True
    """Whether bytes beyond the length end the upload, or are merely refused."""
    ignores_malformed_length: bool = True
    """Whether a malformed `Upload-Length` is ignored, or makes the request invalid."""

    def write_completeness(self, is_complete: bool) -> dict[str, str]:
        """The header that says whether the upload is complete."""
        is_true = is_complete == (self.completeness_header == UPLOAD_COMPLETE)
        return {self.completeness_header: "?1" if is_true else "?0"}


NEWEST = InteropVersion(number=9)
"""Drafts -12 and, as far as is known, later: see docs/protocols.md."""

_DRAFT_09 = replace(NEWEST, number=8)
_DRAFT_06 = replace(
    _DRAFT_09,
    number=7,
    completed_upload_status=400,
    ends_overlong_upload=False,
    ignores_malformed_length=False,
)
_DRAFT_05 = replace(
    _DRAFT_06,
    number=6,
    default_completeness=False,
    lifetime_limit="expires",
    completed_status=201,
    appended_status=201,
    gone_status=404,
    bars_state_on_lookup=True,
)
_DRAFT_03 = replace(
    _DRAFT_05, number=5, append_type=None, lifetime_limit=None, completed_upload_status=None
)
_DRAFT_02 = replace(_DRAFT_03, number=4, has_progress=False)
_DRAFT_01 = replace(
    _DRAFT_02, number=3, completeness_header=UPLOAD_INCOMPLETE, default_completeness=True
)

VERSIONS = {
    version.number: version
    for version in (_DRAFT_01, _DRAFT_02, _DRAFT_03, _DRAFT_05, _DRAFT_06, _DRAFT_09, NEWEST)
}
"""Keyed by the number in `Upload-Draft-Interop-Version`. A request without a known number is parsed
as the newest draft, and gets no interim response."""


# ---- headers -------------------------------------------------------------------------------------

# Codecs of the header fields, which are structured fields (RFC 9651). Pure.


MAX_INTEGER = 999_999_999_999_999
"""The largest Integer (RFC 9651, section 3.3.1); larger limits are announced as this."""

_EXTENDED_NAME = re.compile(r";\s*filename\*\s*=", re.IGNORECASE)


def parse_boolean(text: str, name: str) -> bool:
    """The Boolean in the field `name`; raises `InvalidRequest`."""
    value = parse_item(text, name)
    if not isinstance(value, bool):
        raise InvalidRequest(f"The {name} header must be ?0 or ?1.")
    return value


def parse_length(text: str, name: str) -> int:
    """The Integer in the field `name`, 0 or above; raises `InvalidRequest`."""
    value = parse_item(text, name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidRequest(f"The {name} header must be a whole number of bytes.")
    return value


def write_limits(limits: dict[str, int]) -> str:
    """The value of `Upload-Limit`."""
    dictionary = Dictionary()
    for name, value in limits.items():
        dictionary[name] = min(value, MAX_INTEGER)
    return str(dictionary)


def parse_filename(disposition: str, content_type: str) -> str:
    """The file's name in `Content-Disposition`; without one, "unnamed" with its type's extension.

    `filename*` (RFC 8187) takes precedence over `filename` in either order (RFC 6266, 4.3).
    """
    text = _EXTENDED_NAME.sub("; extended*=", _as_utf8(disposition))
    _, parameters = parse_options_header(text)
    name = parameters.get("extended") or parameters.get("filename")
    return name or "unnamed" + _extension(content_type)


def _extension(content_type: str) -> str:
    for extension, playable_type in PLAYABLE.items():
        if playable_type == content_type:
            return f".{extension}"
    return mimetypes.guess_extension(content_type) or ""


def _as_utf8(text: str) -> str:
    """`text` of clients that send names as raw UTF-8, which WSGI decodes as Latin-1."""
    try:
        return text.encode("latin-1").decode()
    except UnicodeError:
        return text


# ---- errors --------------------------------------------------------------------------------------

# The errors that this protocol adds to the tree, and its problem types (draft -12, section 7).


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


# ---- responses -----------------------------------------------------------------------------------

# Responses: the upload's state in header fields, 104 interim responses, digests.


INTERIM_STATUS = "104 Upload Resumption Supported"

PROGRESS_SECONDS = 1.0
"""Shortest time between two offsets; the core records them about as often."""


def is_complete(upload: Upload) -> bool:
    """Whether every byte has arrived."""
    return upload.state is not UploadState.RECEIVING


def state_headers(ctx: ViewContext, upload: Upload, version: InteropVersion) -> dict[str, str]:
    """Offset, completeness, length if known, and limits."""
    headers = {
        "Upload-Offset": str(upload.offset),
        **version.write_completeness(is_complete(upload)),
        **limit_headers(ctx, version, upload),
        "Cache-Control": "no-store",
    }
    if upload.length is not None:
        headers["Upload-Length"] = str(upload.length)
    return headers


def limit_headers(
    ctx: ViewContext, version: InteropVersion, upload: Upload | None = None
) -> dict[str, str]:
    """`Upload-Limit`, if the version has it; without an upload, for one created now."""
    if version.lifetime_limit is None:
        return {}
    settings = ctx.services.settings
    limits = {"max-size": settings.max_upload_bytes}
    if upload is None or not is_complete(upload):
        limits[version.lifetime_limit] = _lifetime(upload, settings)
    return {"Upload-Limit": write_limits(limits)}


def _lifetime(upload: Upload | None, settings: Settings) -> int:
    """Whole seconds until the upload expires, unless more bytes arrive."""
    lifetime = timedelta(seconds=settings.expiry_seconds)
    if upload is not None:
        idle = datetime.now(UTC) - upload.active_at
        lifetime -= max(idle, timedelta(0))  # Negative where the clock was set back just now.
    return max(0, int(lifetime.total_seconds()))


def acknowledgement(
    ctx: ViewContext, upload: Upload, version: InteropVersion, status: int, *, is_last: bool
) -> Response:
    """The response to a request whose bytes were stored, with a document unless the status is 204.

    A client that announced more bytes gets "incomplete" back, even if the length shows that none
    are missing: it completes the upload with another request (draft -12, section 4.1.3).
    """
    response = Response(status=status) if status == 204 else jsonify(chunk_document(upload))
    response.status_code = status
    response.headers.update(state_headers(ctx, upload, version))
    response.headers.update(version.write_completeness(is_last))
    return response


class Interim:
    """104 (Upload Resumption Supported) interim responses to one request.

    None are sent if `version` is None: the draft forbids them for clients that request no supported
    version (appendix "Draft Version Identification"), and a proxy may not forward them.
    """

    def __init__(self, environ: dict[str, Any], version: InteropVersion | None) -> None:
        self._environ = environ
        self._version = version
        self._offset = 0
        self._told_at = time.monotonic()

    def announce(self, headers: Mapping[str, str]) -> None:
        """Send the URL of the upload resource, and its limits."""
        self._send(headers)

    def progress(self, offset: int) -> None:
        """Report that the bytes before `offset` are durable, unless that was done just now."""
        is_due = time.monotonic() - self._told_at >= PROGRESS_SECONDS
        if is_due and offset > self._offset and self._version and self._version.has_progress:
            self._offset, self._told_at = offset, time.monotonic()
            self._send({"Upload-Offset": str(offset)})

    def _send(self, headers: Mapping[str, str]) -> None:
        if self._version is not None:
            number = str(self._version.number)
            lines = {"Upload-Draft-Interop-Version": number, **headers}
            send_interim(self._environ, INTERIM_STATUS, lines)


class WantedDigest:
    """The file's digest for clients that want it (RFC 9530, section 4).

    Computed for a file that arrives in one request; for others, the recorded digest is used.
    """

    def __init__(self, header: str) -> None:
        self._names = parse_wanted_digests(header)
        self._hashed: HashingSource | None = None

    def watch(self, source: BodySource) -> BodySource:
        """Hash `source`, which must be the whole file, as it passes, if a digest is wanted."""
        if not self._names:
            return source
        self._hashed = HashingSource(source, ALGORITHMS[self._names[0]])
        return self._hashed

    def headers(self, ctx: ViewContext, upload: Upload) -> dict[str, str]:
        """`Repr-Digest`, if it is wanted and known; a wanted SHA-256 will be computed otherwise."""
        if self._hashed is not None:
            digest = bytes.fromhex(self._hashed.hexdigest())
            return {"Repr-Digest": write_repr_digest(self._names[0], digest)}
        for name in self._names:
            if (known := known_digest(name, upload)) is not None:
                return {"Repr-Digest": write_repr_digest(name, known)}
        if SHA256 in self._names:
            ctx.services.library.want_sha256(upload)
        return {}
