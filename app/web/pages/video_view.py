"""A video as the templates show it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from app.access.senders import Sender
from app.core.access import CallerKind
from app.core.lifecycle import UploadState
from app.core.playback import PlaybackState
from app.core.upload import Upload
from app.http.documents import media_path, playback_document
from app.video.serve.library import PlaybackView

WARNED_BEFORE = timedelta(days=7)
"""The library says this long before that a video will be deleted; video_row.js has it too."""

STATE_WORDS = {
    PlaybackState.WAITING: "being prepared",
    PlaybackState.PROBED: "being prepared",
    PlaybackState.UNPLAYABLE: "download only",
}
"""In the library; the others can simply be watched."""


@dataclass(frozen=True, slots=True)
class VideoView:
    """A video with what is shown of it; `source` is what a <video> plays without scripts.

    `arriving` says that it is still being uploaded, perhaps with a length that nobody knows yet.
    """

    id: str
    filename: str
    length: int | None
    content_type: str
    inline: bool
    arriving: bool
    media: str
    published: str
    published_text: str
    expires_text: str
    sender: Sender | None
    sender_text: str
    sha256: str | None
    state: str
    state_text: str
    watchable: bool
    source: str | None
    poster: str | None
    duration: float | None
    width: int | None
    height: int | None
    problem: str | None


def view_of(
    video: Upload,
    playback: PlaybackView,
    root: str = "",
    *,
    expires: datetime | None = None,
    sender: Sender | None = None,
) -> VideoView:
    """What the templates need of a video; its URLs begin with `root`, perhaps a guest's ticket."""
    published = video.published_at
    known, media = playback_document(playback, root), media_path(video.id, root)
    return VideoView(
        id=video.id,
        filename=video.filename,
        length=video.length,
        content_type=video.content_type,
        inline=video.is_playable,
        arriving=_is_arriving(video),
        media=media,
        published=published.isoformat() if published else "",
        published_text=date_text(published) if published else "",
        expires_text=expires_text(expires, datetime.now(UTC)) if expires else "",
        sender=sender,
        sender_text=sender_text(sender) if sender else "",
        sha256=video.sha256,
        state=playback.state.value,
        state_text=STATE_WORDS.get(playback.state, ""),
        watchable=_is_watchable(video, playback.state),
        source=_source(video, playback.state, known["playable"], media),
        poster=known["poster"],
        duration=known["duration"],
        width=known["width"],
        height=known["height"],
        problem=known["problem"] and known["problem"]["detail"],
    )


def _is_watchable(video: Upload, state: PlaybackState) -> bool:
    if state in {PlaybackState.PLAYABLE, PlaybackState.READY}:
        return True
    return video.is_playable and state is not PlaybackState.UNPLAYABLE


def _is_arriving(video: Upload) -> bool:
    return video.state is not UploadState.COMPLETE


def _source(
    video: Upload, state: PlaybackState, playable: dict[str, str | None] | None, media: str
) -> str | None:
    """Until the server has looked at a file, the browser may well play it as it is."""
    if playable is not None:
        return playable["mp4"]
    may_play = video.is_playable and state is PlaybackState.WAITING and not _is_arriving(video)
    return media if may_play else None


def expires_text(expires: datetime, now: datetime) -> str:
    """The warning that a video will be deleted soon; empty while there is plenty of time."""
    left = expires - now
    if left > WARNED_BEFORE:
        return ""
    hours = max(0, round(left.total_seconds() / 3600))
    if hours < 1:
        return "will be deleted within the hour"
    many = f"{round(hours / 24)} days" if hours >= 48 else f"{hours} hours"
    return f"will be deleted in {'1 hour' if hours == 1 else many}"


def sender_text(sender: Sender) -> str:
    """Who sent a file, as "from Aunt Rosa via Wedding films"; words.js has it too."""
    name = f"from {sender.name}" if sender.name else ""
    if sender.kind is not CallerKind.UPLOAD_LINK:
        return name
    return f"{name} via {sender.link or 'an upload link'}".strip()


def date_text(moment: datetime) -> str:
    """A date for people, in the server's words: "3 Nov 2026, 14:05 UTC"."""
    return f"{moment.day} {moment:%b %Y, %H:%M} UTC"
