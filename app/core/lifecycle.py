"""The states of an upload and the steps between them, as one table.

    receiving ----> verifying ----> complete ----> deleted
      ^ |     <----     |
      | |               |
      | +---------------+----> cancelled, expired
      v |
     held

A crash may leave an upload in `verifying`; any process may finish it. An upload goes back to
`receiving` if a power cut has lost bytes that were never synced. `held` is for uploads that are one
part of a file: they wait there for the others and never become a video.
"""

from __future__ import annotations

from enum import StrEnum


class UploadState(StrEnum):
    """The state of an upload.

    The value is used in records and the API.
    """

    RECEIVING = "receiving"
    """Bytes are missing; chunks are accepted."""
    HELD = "held"
    """Every byte of a part has arrived; it is waiting to be concatenated with others."""
    VERIFYING = "verifying"
    """Every byte has arrived; the file is being published."""
    COMPLETE = "complete"
    """The file is published and readable under the upload's id."""
    CANCELLED = "cancelled"
    """Ended by the client before it was complete."""
    EXPIRED = "expired"
    """Ended by the server: it was idle for too long, or its bytes were lost."""
    DELETED = "deleted"
    """It was complete; its file was deleted on request."""


TRANSITIONS: dict[UploadState, frozenset[UploadState]] = {
    UploadState.RECEIVING: frozenset(
        {
            UploadState.VERIFYING,
            UploadState.HELD,
            UploadState.CANCELLED,
            UploadState.EXPIRED,
        }
    ),
    UploadState.HELD: frozenset(
        {UploadState.RECEIVING, UploadState.CANCELLED, UploadState.EXPIRED}
    ),
    UploadState.VERIFYING: frozenset(
        {
            UploadState.COMPLETE,
            UploadState.RECEIVING,
            UploadState.CANCELLED,
            UploadState.EXPIRED,
        }
    ),
    UploadState.COMPLETE: frozenset({UploadState.DELETED}),
    UploadState.CANCELLED: frozenset(),
    UploadState.EXPIRED: frozenset(),
    UploadState.DELETED: frozenset(),
}

ACTIVE = frozenset({UploadState.RECEIVING, UploadState.HELD, UploadState.VERIFYING})
"""States in which the upload takes space in the staging folder."""

GONE = frozenset({UploadState.CANCELLED, UploadState.EXPIRED, UploadState.DELETED})
"""States in which only the record is left."""


class IllegalTransition(ValueError):
    """A step that is not in the table; the upload is unchanged."""


def check_transition(current: UploadState, target: UploadState) -> None:
    """Raise `IllegalTransition` unless the table has the step from `current` to `target`."""
    if target not in TRANSITIONS[current]:
        raise IllegalTransition(f"an upload cannot go from {current} to {target}")
