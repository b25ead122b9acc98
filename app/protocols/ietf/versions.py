"""The drafts, as a table of differences.

A client names the interop version of its draft in the request. Each version here is written as its
differences from the next one. iOS 17 sends 3, iOS 18.0 sends 5, iOS 18.1 and later 6, iOS 26 8;
macOS 14, 15.0, 15.1 and 26 send the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

UPLOAD_COMPLETE = "Upload-Complete"
UPLOAD_INCOMPLETE = "Upload-Incomplete"

PARTIAL_UPLOAD = "application/partial-upload"


@dataclass(frozen=True, slots=True, kw_only=True)
class InteropVersion:
    """What one interop version requires."""

    number: int
    completeness_header: str = UPLOAD_COMPLETE
    """`Upload-Incomplete` has the opposite meaning."""
    default_completeness: bool | None = None
    """What an append without that header means; None if the header is required."""
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
"""Drafts from -12 on, as far as is known: see docs/protocols.md."""

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
"""By the number in `Upload-Draft-Interop-Version`. A request without a known number is read as the
newest draft, and gets no interim response."""
