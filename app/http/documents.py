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
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from app.access.keys import ApiKey
from app.access.senders import Sender
from app.access.upload_links import UploadLink
from app.core.lifecycle import UploadState
from app.core.moments import instant, optional_instant
from app.core.playback import PlaybackProblem, PlaybackState
from app.core.ranges import RangeSet
from app.core.upload import Upload, UploadId
from app.http.context import ViewContext
from app.records.uploads import Sent
from app.video.serve.facts import MANIFEST, PLAY_FILE, SOUND_FILE, plays_audio
from app.video.serve.library import PlaybackView, TextFile, subtitles_of
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

# The JSON documents of uploads, videos and keys; each is defined only here.
#
# `root` is the prefix of media URLs for a link user: a ticket, as in `/t/TICKET`, preceded by the
# prefix that a proxy has stripped.


def upload_document(
    upload: Upload, expiry_seconds: float, playback: PlaybackView
) -> dict[str, Any]:
    """An upload with everything needed to resume it; ranges are half-open.

    `playback` is included once something is known about it: a video may play while it arrives.
    """
    expires = upload.active_at + timedelta(seconds=expiry_seconds)
    return {
        "id": upload.id,
        "filename": upload.filename,
        "length": upload.length,
        "offset": upload.offset,
        "received": _pairs(upload.received),
        "missing": _pairs(upload.missing),
        "state": upload.state.value,
        "expires": None if upload.state is UploadState.COMPLETE else instant(expires),
        "created": instant(upload.created_at),
        "active": instant(upload.active_at),
        "fingerprint": upload.fingerprint,
        **_result(upload),
        "playback": playback_document(playback) if playback.facts else None,
    }


def chunk_document(upload: Upload) -> dict[str, Any]:
    """The upload's progress; `media` once it is complete, and each checksum once it is known."""
    document: dict[str, Any] = {
        "id": upload.id,
        "filename": upload.filename,
        "received": upload.received.total,
        "length": upload.length,
        "complete": upload.state is UploadState.COMPLETE,
        "state": upload.state.value,
    }
    if upload.state is UploadState.COMPLETE:
        document["media"] = media_path(upload.id)
    if upload.sha256:
        document["sha256"] = upload.sha256
    if upload.crc32c:
        document["crc32c"] = upload.crc32c
    return document


def video_document(  # noqa: PLR0913 - what only some callers know has a name
    video: Upload,
    playback: PlaybackView,
    renditions: Sequence[RenditionView] | None = None,
    texts: Sequence[TextFile] = (),
    *,
    root: str = "",
    expires: datetime | None = None,
    sender: Sender | None = None,
) -> dict[str, Any]:
    """A published file; `inline` says whether a browser may play it in place.

    The sender is not shown to link users.

    Lists omit `renditions` and `texts` (files of external subtitles): each would double the cost.
    """
    media = media_path(video.id, root)
    known = playback_document(playback, root)
    known["subtitles"] += [_subtitles(text.subtitles, media) for text in texts]
    if renditions is not None:
        known["renditions"] = [rendition_document(video, view, root) for view in renditions]
    return {
        "id": video.id,
        "filename": video.filename,
        "length": video.length,
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


def sent_document(sent: Sent, link: UploadLink | None = None) -> dict[str, Any]:
    """The files of one sender, and what its link still accepts; sizes in bytes."""
    return {
        "files": [
            {
                "id": upload.id,
                "filename": upload.filename,
                "length": upload.length,
                "arrived": optional_instant(upload.published_at),
            }
            for upload in sent.files
        ],
        "count": sent.count,
        "bytes": sent.bytes,
        "unfinished": sent.unfinished,
        "link": link and {"files_left": link.files_left, "bytes_left": link.bytes_left},
    }


def sender_document(sender: Sender | None) -> dict[str, Any] | None:
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


def rendition_document(video: Upload, view: RenditionView, root: str = "") -> dict[str, Any]:
    """A rendition of a video; `mp4` is for downloads."""
    is_ready = view.state == "ready"
    return {
        "height": view.quality,
        "state": view.state,
        "progress": view.progress,
        "mp4": f"{media_path(video.id, root)}/renditions/{view.quality}.mp4" if is_ready else None,
        "problem": _problem(view.problem),
    }


def playback_document(view: PlaybackView, root: str = "") -> dict[str, Any]:
    """How a video can be played, and what is known about it. Times in seconds."""
    facts, media = view.facts, media_path(view.upload_id, root)
    known = {} if facts is None else facts.to_json()
    return {
        "state": view.state.value,
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
        "problem": _problem(view.problem),
    }


def _problem(problem: PlaybackProblem | None) -> dict[str, str] | None:
    return None if problem is None else {"code": problem.code, "detail": problem.detail}


_PLAYS = frozenset({PlaybackState.PLAYABLE, PlaybackState.READY})


def _made(view: PlaybackView, media: str, name: str, url: str | None = None) -> str | None:
    return f"{media}/{url or name}" if name in view.made else None


def _subtitles(found: Subtitles, media: str) -> dict[str, Any]:
    url = f"{media}/{found.name}.vtt"
    return {"language": found.language, "title": found.title, "url": url}


def _playable(view: PlaybackView, media: str) -> dict[str, Any] | None:
    """Where a player finds the video besides its original: as one MP4 file, and in segments."""
    mp4 = _made(view, media, PLAY_FILE, "play.mp4")
    hls = _made(view, media, MANIFEST, "hls/master.m3u8")
    if mp4 is None and hls is None and view.state not in _PLAYS:
        return None
    needs_hls = mp4 is None or _is_sound_only_in_segments(view)
    return {"from": "hls" if hls and needs_hls else "original", "mp4": mp4, "hls": hls}


def plays_original(video: Upload, view: PlaybackView) -> bool:
    """Whether players get the original file, because there is no derived one."""
    may_play = view.state in {PlaybackState.WAITING, *_PLAYS}
    return video.is_playable and may_play and view.made.isdisjoint({PLAY_FILE, MANIFEST})


def _is_sound_only_in_segments(view: PlaybackView) -> bool:
    """Whether browsers can play the sound only as encoded for HLS."""
    sounds = view.facts.of_kind("audio") if view.facts else []
    return SOUND_FILE in view.made and not all(plays_audio(sound.codec) for sound in sounds)


def _result(upload: Upload) -> dict[str, Any]:
    if upload.state is not UploadState.COMPLETE:
        return {}
    checksums = {"sha256": upload.sha256, "crc32c": upload.crc32c}
    return {"media": media_path(upload.id), **checksums}


def _pairs(ranges: RangeSet) -> list[list[int]]:
    return [[item.start, item.end] for item in ranges]


def key_document(key: ApiKey) -> dict[str, Any]:
    """A key without its secret; `hint` is its beginning."""
    return {
        "id": key.id,
        "name": key.name,
        "role": key.role,
        "hint": key.hint,
        "created": instant(key.created_at),
        "expires": optional_instant(key.expires_at),
        "used": optional_instant(key.used_at),
    }
