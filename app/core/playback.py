"""The states of a video's playback and the steps between them, as one table.

    waiting ----> probed <---> playable <---> ready
       |             |            |             |
       +-------------+----> unplayable <--------+

Beside the upload's own state: a video can be downloaded in all of these. A step may skip states of
the upper line: an index says at once what can be played. One that looks again, at a file that has
arrived meanwhile, or with an ffmpeg that was missing, may find an unplayable one to be a film, or
find that what a film was played from must be made first, or again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from app.core.upload import UploadId


class PlaybackState(StrEnum):
    """How far a video can be played; the value is what the record and the API show."""

    WAITING = "waiting"
    """Nobody has looked at the file yet."""
    PROBED = "probed"
    """What is in the file is known; something has to be made before it plays."""
    PLAYABLE = "playable"
    """Browsers can play it; more is being made."""
    READY = "ready"
    """Everything is made that is made unasked."""
    UNPLAYABLE = "unplayable"
    """It is no film, or a damaged one; the problem says which."""


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

    Staying is legal because a step that a crash interrupted runs again.
    """
    if target is not current and target not in TRANSITIONS[current]:
        raise IllegalPlaybackStep(f"playback cannot go from {current} to {target}")


@dataclass(frozen=True, slots=True)
class PlaybackProblem:
    """What went wrong: a stable code for programs, a sentence for people."""

    code: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Playback:
    """What is known about playing one video. `facts` is what its probe found, as JSON values.

    A problem can also come with a playable film, such as one that is cut off in the middle.
    """

    upload_id: UploadId
    state: PlaybackState
    facts: Mapping[str, Any] | None
    problem: PlaybackProblem | None
    updated_at: datetime


# ---- made files ----------------------------------------------------------------------------------

# Values that describe files made from videos.


@dataclass(frozen=True, slots=True)
class Made:
    """A file as it was found. A replacement of the same name has another `version`.

    `length` in bytes. The version is the same on every machine, and can serve as an entity tag.
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
