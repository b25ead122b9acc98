"""All errors of the client, each with the exit code of the command line.

    SluiceError                   1
    |-- Refused                   1   the server said no; has `status`, `code`, `retryable`
    |   `-- KeyRefused            1   no API key, or one that does not work; ends all transfers
    |-- ConnectionFailed          3   no answer, or the connection broke
    |   `-- ServerUnreachable     3   given up; a transfer can be resumed
    |-- Interrupted               4   Ctrl-C or `Client.stop`; a transfer can be resumed
    |-- FileProblem               1   a local file cannot be used
    |-- RenditionFailed           1   the server could not make a rendition of a film
    `-- ContentMismatch           5   the bytes here and on the server differ
        `-- FileChanged           5   the local file changed while it was sent

`str()` of each is a sentence for people.
"""

from __future__ import annotations

from typing import Any, ClassVar


class SluiceError(Exception):
    """Base of the tree."""

    exit_code: ClassVar[int] = 1


class Refused(SluiceError):
    """An answer of 300 or above; `retry_after` is in seconds if the server named a time."""

    def __init__(
        self,
        status: int,
        *,
        code: str,
        detail: str,
        retryable: bool,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.retryable = retryable
        self.retry_after = retry_after

    @property
    def is_missing(self) -> bool:
        """Whether there is no such thing on the server, or no longer."""
        return self.status in {404, 410}

    @property
    def is_body_too_large(self) -> bool:
        """Whether the *request*, not the file, is too large for a proxy in between."""
        return self.status == 413 and self.code != "too_large"

    @property
    def is_busy(self) -> bool:
        """Whether the server asks for less at once."""
        return self.status in {429, 503}


class KeyRefused(Refused):
    """The server wants an API key, or another one. Nothing else would get through either."""

    def __init__(self, status: int, *, detail: str, had_key: bool, **members: Any) -> None:
        hint = f"Run `sluice login`{' with another key' if had_key else ''}, or set SLUICE_API_KEY."
        super().__init__(status, detail=f"{detail} {hint}", **members)


class ConnectionFailed(SluiceError):
    """A connection could not be made, broke, or stalled. Worth another try."""

    exit_code = 3


class ServerUnreachable(ConnectionFailed):
    """Tried for as long as the settings allow."""


class Interrupted(SluiceError):
    """Stopped on request. The same call continues where this one stopped."""

    exit_code = 4


class FileProblem(SluiceError):
    """A local file is missing, unreadable or not a regular file, or the disk is full."""


class RenditionFailed(SluiceError):
    """The server could not make a rendition, or it was cancelled."""


class ContentMismatch(SluiceError):
    """The SHA-256 of the file here and of the one on the server differ."""

    exit_code = 5


class FileChanged(ContentMismatch):
    """The local file is no longer what it was when its upload began."""


def problem_of(document: Any, status: int) -> dict[str, Any]:
    """The members of a problem document; for any other body, what its status suggests."""
    known = document if isinstance(document, dict) else {}
    return {
        "code": str(known.get("code", f"http_{status}")),
        "detail": str(known.get("detail") or known.get("title") or _unexplained(status)),
        "retryable": bool(known.get("retryable", status in RETRYABLE_STATUSES)),
    }


def _unexplained(status: int) -> str:
    return f"The server, or a proxy in front of it, answered with status {status}."


RETRYABLE_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Used for answers that do not say whether to retry, such as those of proxies."""
