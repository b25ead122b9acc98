"""The states of a video's playback and the steps between them, as one table.

    waiting ----> probed <---> playable <---> ready
       |             |            |             |
       +-------------+----> unplayable <--------+

Separate from the upload's state: a video can be downloaded in all of these. A step may skip states
of the upper line: an index shows at once what can be played. A later probe, of a file that has
arrived since, or with an ffmpeg that was missing, may find that an unplayable file is a video, or
that the file a video was played from must be made first, or again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from app.core.upload import UploadId


class PlaybackState(StrEnum):
    """How far a video can be played.

    The value is used in records and the API.
    """

    WAITING = "waiting"
    """The file has not been probed yet."""
    PROBED = "probed"
    """The file's contents are known; a derived file must be made before it plays."""
    PLAYABLE = "playable"
    """Browsers can play it; more derived files are being made."""
    READY = "ready"
    """All derived files that are not made on demand exist."""
    UNPLAYABLE = "unplayable"
    """It is not a video, or a damaged one; the problem says which."""


TRANSITIONS: dict[PlaybackState, frozenset[PlaybackState]] = {
    PlaybackState.WAITING: frozenset(
        {
            PlaybackState.PROBED,
            PlaybackState.PLAYABLE,
            PlaybackState.READY,
            PlaybackState.UNPLAYABLE,
        }
    ),
    PlaybackState.PROBED: frozenset(
        {PlaybackState.PLAYABLE, PlaybackState.READY, PlaybackState.UNPLAYABLE}
    ),
    PlaybackState.PLAYABLE: frozenset(
        {PlaybackState.PROBED, PlaybackState.READY, PlaybackState.UNPLAYABLE}
    ),
    PlaybackState.READY: frozenset(
        {PlaybackState.PROBED, PlaybackState.PLAYABLE, PlaybackState.UNPLAYABLE}
    ),
    PlaybackState.UNPLAYABLE: frozenset(
        {PlaybackState.PROBED, PlaybackState.PLAYABLE, PlaybackState.READY}
    ),
}


class IllegalPlaybackStep(ValueError):
    """A step that is not in the table; the record is unchanged."""


def check_transition(current: PlaybackState, target: PlaybackState) -> None:
    """Raise `IllegalPlaybackStep` unless `target` is `current` or the table has the step.

    Staying is legal, because a step interrupted by a crash runs again.
    """
    if target is not current and target not in TRANSITIONS[current]:
        raise IllegalPlaybackStep(f"playback cannot go from {current} to {target}")


@dataclass(frozen=True, slots=True)
class PlaybackProblem:
    """A problem with playback: a stable code for programs, a sentence for people."""

    code: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Playback:
    """The playback record of one video. `facts` is the result of its probe, as JSON values.

    A playable video can have a problem, too, for example if it is truncated.
    """

    upload_id: UploadId
    state: PlaybackState
    facts: Mapping[str, Any] | None
    problem: PlaybackProblem | None
    updated_at: datetime


# ---- derived files -------------------------------------------------------------------------------

# Values that describe derived files of videos.


@dataclass(frozen=True, slots=True)
class Made:
    """A derived file as it was found. A replacement of the same name has another `version`.

    `length` in bytes. The version is the same on every machine, and can be used as an entity tag.
    """

    upload_id: UploadId
    name: str
    length: int
    made_at: datetime
    version: str


@dataclass(frozen=True, slots=True)
class Bundle:
    """Files that are discarded together; `used_at` in seconds since 1970, `size` in bytes."""

    upload_id: UploadId
    name: str
    size: int
    used_at: float


class Outdated(Exception):
    """The file that a new one belongs to has been discarded or replaced."""
