"""The drafts, as a table of differences.

Each version of the draft has an interop version, which a client names in its request. A version
is written as what it has otherwise than the one after it. iOS 17 sends 3, iOS 18.0 5, iOS 18.1
and later 6, iOS 26 8; macOS 14, 15.0, 15.1 and 26 the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

UPLOAD_COMPLETE = "Upload-Complete"
UPLOAD_INCOMPLETE = "Upload-Incomplete"

PARTIAL_UPLOAD = "application/partial-upload"


@dataclass(frozen=True, slots=True, kw_only=True)
class InteropVersion:
    """What one interop version asks for."""

    number: int
    completeness_header: str = UPLOAD_COMPLETE
    """`Upload-Incomplete` says the opposite."""
    default_completeness: bool | None = None
    """What an append without that header means; None where it must have it."""
    append_type: str | None = PARTIAL_UPLOAD
    """Content-Type of an append; None for any."""
    lifetime_limit: str | None = "max-age"
    """The key for the lifetime in `Upload-Limit`; None where there is no such header."""
    has_progress: bool = True
    """Whether 104s may tell the offset."""
    completed_status: int = 200
    appended_status: int = 204
    gone_status: int = 410
    completed_upload_status: int | None = None
    """For bytes sent to a complete upload, with a problem type of its own, where there is one."""
    bars_state_on_lookup: bool = False
    """Whether a HEAD or DELETE that tells of offset or completeness must be refused."""
    ends_overlong_upload: bool = True
    """Whether bytes beyond the length make the upload invalid, or are just not taken."""
    ignores_malformed_length: bool = True
    """Whether an `Upload-Length` that is no length counts as none, or makes the request invalid."""

    def write_completeness(self, is_complete: bool) -> dict[str, str]:
        """The header that says whether the upload is complete."""
        is_true = is_complete == (self.completeness_header == UPLOAD_COMPLETE)
        return {self.completeness_header: "?1" if is_true else "?0"}


DRAFT_12 = InteropVersion(number=8)
"""Drafts -09 to -12."""

_DRAFT_06 = replace(
    DRAFT_12,
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
    for version in (_DRAFT_01, _DRAFT_02, _DRAFT_03, _DRAFT_05, _DRAFT_06, DRAFT_12)
}
"""By the number in `Upload-Draft-Interop-Version`. Without a known one a request is read as the
newest draft, and gets no interim response."""
