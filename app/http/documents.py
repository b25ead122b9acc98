"""Signed URLs of files that nginx serves by itself until they expire; JSON documents.

nginx checks the signature (its `secure_link` module) without a request to Sluice. For an expired
URL, or one for which it is not configured, it passes the request on, and Sluice authorizes it as
usual. `deploy/nginx-secure-link.conf` has nginx's configuration.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal, NotRequired, TypedDict
from urllib.parse import quote

from app.access.keys import ApiKey
from app.access.senders import Sender
from app.core.json_types import (
    Count,
    Crc32c,
    DerivedPath,
    Filename,
    Fraction,
    Id,
    Instant,
    MediaPath,
    MemberRole,
    Seconds,
    Sha256,
    keywords,
)
from app.core.lifecycle import UploadState
from app.core.moments import instant, optional_instant
from app.core.playback import PlaybackProblem, PlaybackState
from app.core.upload import Upload, UploadId
from app.http.context import ViewContext
from app.video.serve.facts import MANIFEST, PLAY_FILE, SOUND_FILE, Chapter, TrackFacts, plays_audio
from app.video.serve.library import PlaybackView, subtitles_of
from app.video.serve.playlists import Subtitles
from app.video.serve.renditions import RenditionView

PERIOD_SECONDS = 600
"""URLs change this often, and are valid for one to two such periods."""


def signed_media(ctx: ViewContext, video: Upload, path: str, *, is_download: bool = False) -> str:
    """The URL of a video's bytes, signed if the operator has configured it."""
    question = "?download" if is_download else ""
    secret = ctx.settings.secure_link_secret
    if not secret or not ctx.services.library.hand_over(video):
        return path + question
    name = quote(video.filename.rpartition("/")[2], safe="") if is_download else ""
    expires = (int(time.time()) // PERIOD_SECONDS + 2) * PERIOD_SECONDS
    signature = sign(path, video.content_type, name, expires=expires, secret=secret)
    separator = "&" if question else "?"
    return (
        f"{path}{question}{separator}expires={expires}&type={video.content_type}"
        f"&name={name}&signature={signature}"
    )


def sign(path: str, content_type: str, name: str, *, expires: int, secret: str) -> str:
    """Signs a URL as nginx does with `secure_link_md5`; nginx supports no digest but MD5."""
    signed = f"{expires} {path} {content_type} {name} {secret}".encode()
    digest = hashlib.md5(signed, usedforsecurity=False).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


# ---- documents -----------------------------------------------------------------------------------

# The JSON documents of uploads, videos and keys; each is defined only here, and describes itself
# for the API's description (app/http/openapi.py).
#
# `root` is the prefix of media URLs for a link user: a ticket, as in `/t/TICKET`, preceded by the
# prefix that a proxy has stripped.


class SenderDocument(TypedDict):
    """The sender of a file."""

    kind: Annotated[str, keywords(enum=["person", "key", "upload_link"])]
    id: str
    """Of the person, key or upload link."""
    name: str | None
    """Of the person or key; of a link, the name that its visitor has entered."""
    link: str | None
    """The title of the upload link."""


class RenditionDocument(TypedDict):
    """Another quality of a video. It can be watched in every state."""

    height: int
    """Pixels of the picture's shorter side."""
    state: Annotated[str, keywords(enum=["on_demand", "making", "ready", "failed"])]
    """Of the file to download. `on_demand`: it is made on request. `making`: if it has to wait,
    `problem` says for what. `failed`: `problem` says why; it can be ordered again."""
    progress: Fraction
    mp4: DerivedPath | None
    """The file, once it is ready."""
    problem: PlaybackProblem | None


class SubtitlesDocument(TypedDict):
    """Subtitles of a video."""

    language: str
    title: str | None
    url: DerivedPath
    """WebVTT."""


_FROM = keywords(
    description="What to play first. `hls` where browsers do not play the sound of the original, "
    "or not its picture; then `mp4` is for those that do."
)

PlayableDocument = TypedDict(  # `from` is a word of Python.
    "PlayableDocument",
    {
        "from": Annotated[Literal["original", "hls"], _FROM],
        "mp4": Annotated[DerivedPath | None, keywords(description="One file.")],
        "hls": Annotated[DerivedPath | None, keywords(description="A master playlist.")],
    },
)


class PlaybackDocument(TypedDict):
    """How a video can be played, and what is known about it."""

    state: PlaybackState
    duration: Seconds | None
    """Seconds; null while it is not known."""
    width: int | None
    """Pixels, as the picture is shown; null without one."""
    height: int | None
    """Pixels, as the picture is shown."""
    poster: DerivedPath | None
    """A JPEG of the video."""
    rotation: Literal[0, 90, 180, 270, None]
    """Degrees clockwise that players turn the stored picture by."""
    frame_rate: float | None
    """Pictures per second, on average."""
    hdr: Literal["PQ", "HLG", None]
    """How a high dynamic range is coded; null for the standard range."""
    container: str | None
    """The format, such as `mp4`."""
    tracks: list[TrackFacts]
    chapters: list[Chapter]
    thumbnails: DerivedPath | None
    """WebVTT with pictures from the video at regular intervals, for previews."""
    waveform: DerivedPath | None
    """The loudness as JSON."""
    subtitles: list[SubtitlesDocument]
    """Those within the video, and those in files beside it, which lists leave out."""
    playable: PlayableDocument | None
    """Where players find the video; null if browsers cannot play it (yet)."""
    renditions: NotRequired[list[RenditionDocument]]
    """Other qualities, the best first. Lists of videos leave this out."""
    progress: Fraction | None
    """In the state `probed`, how much is made of what must be; null until it begins."""
    problem: PlaybackProblem | None
    """Why the video does not play, or not yet, or not to its end; null if all is well."""


class StoredUploadDocument(TypedDict):
    """The progress of an upload.

    Example:
        {
            "id": "9f86d081884c7d659a2feaa0c55ad015",
            "filename": "film.mp4",
            "received": 3000,
            "length": 3000,
            "complete": true,
            "state": "complete",
            "media": "/media/9f86d081884c7d659a2feaa0c55ad015"
        }
    """

    id: Id
    filename: Filename
    received: Count
    """Bytes that have arrived, in any order."""
    length: Count | None
    complete: bool
    state: UploadState
    media: NotRequired[MediaPath]
    """Only once complete."""
    sha256: NotRequired[Sha256]
    """Only once computed."""
    crc32c: NotRequired[Crc32c]
    """Only once complete, if every chunk came with a digest."""


def chunk_document(upload: Upload) -> StoredUploadDocument:
    """The upload's progress; `media` once it is complete, and each checksum once it is known."""
    document: StoredUploadDocument = {
        "id": upload.id,
        "filename": upload.filename,
        "received": upload.received.total,
        "length": upload.length,
        "complete": upload.state is UploadState.COMPLETE,
        "state": upload.state,
    }
    if upload.state is UploadState.COMPLETE:
        document["media"] = media_path(upload.id)
    if upload.sha256:
        document["sha256"] = upload.sha256
    if upload.crc32c:
        document["crc32c"] = upload.crc32c
    return document


class VideoDocument(TypedDict):
    """A complete file.

    Example:
        {
            "id": "9f86d081884c7d659a2feaa0c55ad015",
            "filename": "film.mp4",
            "length": 3000,
            "content_type": "video/mp4",
            "inline": true,
            "published": "2026-01-01T12:05:00.000Z",
            "expires": null,
            "sender": null,
            "media": "/media/9f86d081884c7d659a2feaa0c55ad015",
            "sha256": null,
            "crc32c": null,
            "playback": {
                "state": "playable",
                "duration": 61.2,
                "width": 1920,
                "height": 1080,
                "poster": null,
                "rotation": 0,
                "frame_rate": 25,
                "hdr": null,
                "container": "mp4",
                "tracks": [],
                "chapters": [],
                "thumbnails": null,
                "waveform": null,
                "subtitles": [],
                "playable": {
                    "from": "original",
                    "mp4": "/media/9f86d081884c7d659a2feaa0c55ad015/play.mp4",
                    "hls": "/media/9f86d081884c7d659a2feaa0c55ad015/hls/master.m3u8"
                },
                "progress": null,
                "problem": null,
                "renditions": [
                    {
                        "height": 720,
                        "state": "making",
                        "progress": 0.4,
                        "mp4": null,
                        "problem": null
                    }
                ]
            }
        }
    """

    id: Id
    filename: Filename
    length: Count
    content_type: str
    """Derived from the name, never from what the client sent."""
    inline: bool
    """Whether a browser may play it in place."""
    published: Instant
    expires: Instant | None
    """When the project will delete it; null for never."""
    sender: SenderDocument | None
    """Null on a server without accounts."""
    media: MediaPath
    sha256: Sha256 | None
    """Null until the background worker has computed it: with a `crc32c`, once a request wants it or
    little is to do."""
    crc32c: Crc32c | None
    """Of the whole file. Null unless every chunk came with a digest."""
    playback: PlaybackDocument


def video_document(  # noqa: PLR0913 - what only some callers know has a name
    video: Upload,
    playback: PlaybackView,
    renditions: Sequence[RenditionView] | None = None,
    texts: Sequence[Subtitles] = (),
    *,
    root: str = "",
    expires: datetime | None = None,
    sender: Sender | None = None,
) -> VideoDocument:
    """A published file. The sender is not shown to link users.

    Lists omit `renditions` and `texts` (files of external subtitles): each would double the cost.
    """
    media = media_path(video.id, root)
    known = playback_document(playback, root)
    known["subtitles"] += [_subtitles(text, media) for text in texts]
    if renditions is not None:
        known["renditions"] = [rendition_document(video, view, root) for view in renditions]
    return {
        "id": video.id,
        "filename": video.filename,
        "length": video.known_length,
        "content_type": video.content_type,
        "inline": video.is_playable,
        "published": instant(video.published_at or video.active_at),
        "expires": None if expires is None else instant(expires),
        "sender": sender_document(sender),
        "media": media,
        "sha256": video.sha256,
        "crc32c": video.crc32c,
        "playback": known,
    }


def sender_document(sender: Sender | None) -> SenderDocument | None:
    """The sender of a file; None on a server without accounts."""
    if sender is None:
        return None
    return {
        "kind": sender.kind.value,
        "id": sender.id,
        "name": sender.name or None,
        "link": sender.link or None,
    }


def media_path(upload_id: UploadId, root: str = "") -> str:
    """The path of a video's bytes; its derived files are below it."""
    return f"{root}/media/{upload_id}"


def rendition_document(video: Upload, view: RenditionView, root: str = "") -> RenditionDocument:
    """A rendition of a video; `mp4` is for downloads."""
    is_ready = view.state == "ready"
    return {
        "height": view.quality,
        "state": view.state,
        "progress": view.progress,
        "mp4": f"{media_path(video.id, root)}/renditions/{view.quality}.mp4" if is_ready else None,
        "problem": view.problem,
    }


def playback_document(view: PlaybackView, root: str = "") -> PlaybackDocument:
    """How a video can be played, and what is known about it. Times in seconds."""
    facts, media = view.facts, media_path(view.upload_id, root)
    known = {} if facts is None else facts.to_json()
    return {
        "state": view.state,
        "duration": known.get("duration"),
        "width": known.get("width"),
        "height": known.get("height"),
        "poster": _made(view, media, "poster.jpg"),
        "rotation": known.get("rotation"),
        "frame_rate": known.get("frame_rate"),
        "hdr": known.get("hdr"),
        "container": known.get("container"),
        "tracks": known.get("tracks", []),
        "chapters": known.get("chapters", []),
        "thumbnails": _made(view, media, "thumbs.vtt"),
        "waveform": _made(view, media, "waveform.json"),
        "subtitles": [_subtitles(each, media) for each in subtitles_of(view)],
        "playable": _playable(view, media),
        "progress": view.progress,
        "problem": view.problem,
    }


_PLAYS = frozenset({PlaybackState.PLAYABLE, PlaybackState.READY})


def _made(view: PlaybackView, media: str, name: str, url: str | None = None) -> str | None:
    return f"{media}/{url or name}" if name in view.made else None


def _subtitles(found: Subtitles, media: str) -> SubtitlesDocument:
    url = f"{media}/{found.name}.vtt"
    return {"language": found.language, "title": found.title, "url": url}


def _playable(view: PlaybackView, media: str) -> PlayableDocument | None:
    """Where a player finds the video besides its original: as one MP4 file, and in segments."""
    mp4 = _made(view, media, PLAY_FILE, "play.mp4")
    hls = _made(view, media, MANIFEST, "hls/master.m3u8")
    if mp4 is None and hls is None and view.state not in _PLAYS:
        return None
    # Browsers may play the sound only as encoded for HLS.
    sounds = view.facts.of_kind("audio") if view.facts else []
    has_other_sound = SOUND_FILE in view.made and not all(plays_audio(one.codec) for one in sounds)
    needs_hls = mp4 is None or has_other_sound
    return {"from": "hls" if hls and needs_hls else "original", "mp4": mp4, "hls": hls}


def plays_original(video: Upload, view: PlaybackView) -> bool:
    """Whether players get the original file, because there is no derived one."""
    may_play = view.state in {PlaybackState.WAITING, *_PLAYS}
    return video.is_playable and may_play and view.made.isdisjoint({PLAY_FILE, MANIFEST})


class KeyDocument(TypedDict):
    """An API key, without its secret."""

    id: Id
    name: str
    role: MemberRole | None
    """The one it was given, or that of the person who made it where that is lower by now; null if
    they have none in the project any more."""
    hint: str
    """How the secret begins."""
    created: Instant
    expires: Instant | None
    used: Instant | None
    """When it was last used, to the minute."""


def key_document(key: ApiKey) -> KeyDocument:
    """A key without its secret."""
    return {
        "id": key.id,
        "name": key.name,
        "role": key.role,
        "hint": key.hint,
        "created": instant(key.created_at),
        "expires": optional_instant(key.expires_at),
        "used": optional_instant(key.used_at),
    }
