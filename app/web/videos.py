"""Videos: /api/videos, the start page with the library, and the page of each."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, TypedDict

from flask import Blueprint, Response, jsonify, render_template, request, url_for
from msgspec import Struct

from app.access import audit
from app.access.senders import Sender
from app.core.access import Action, CallerKind
from app.core.errors import InvalidRequest, NotMade, RenditionsOff, TypeNotAllowed
from app.core.json_types import Filename, keywords
from app.core.lifecycle import UploadState
from app.core.numbers import parse_digits
from app.core.playback import PlaybackState
from app.core.upload import Upload, parse_upload_id
from app.core.video_list import MAX_SEARCH_CHARACTERS, VideoList, VideoOrder
from app.http.access import requires
from app.http.bodies import takes
from app.http.context import ViewContext, note_upload
from app.http.digests import wants_sha256
from app.http.documents import (
    PlayableDocument,
    RenditionDocument,
    VideoDocument,
    media_path,
    playback_document,
    rendition_document,
    video_document,
)
from app.http.openapi import WANT_REPR_DIGEST, ResponseSpec, describes, query
from app.http.origins import widen_policy
from app.uploads.library import MAX_PAGE
from app.video.serve.library import PlaybackView
from app.web.project import kept_project
from app.web.templating import date_text

# ---- view for templates --------------------------------------------------------------------------

# A video as shown by the templates.


WARNED_BEFORE = timedelta(days=7)
"""How early the library warns that a video will be deleted; video_row.js has the same value."""

STATE_WORDS = {
    PlaybackState.WAITING: "being prepared",
    PlaybackState.PROBED: "being prepared",
    PlaybackState.UNPLAYABLE: "download only",
}
"""Labels in the library; videos in other states can be watched."""


@dataclass(frozen=True, slots=True)
class VideoView:
    """A video for templates; `source` is the URL that a <video> plays without scripts.

    `arriving` says that it is still being uploaded, perhaps with an unknown length.
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
    """A video for templates; its URLs begin with `root`, for example a link user's ticket."""
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
        problem=known["problem"].detail if known["problem"] else None,
    )


def _is_watchable(video: Upload, state: PlaybackState) -> bool:
    if state in {PlaybackState.PLAYABLE, PlaybackState.READY}:
        return True
    return video.is_playable and state is not PlaybackState.UNPLAYABLE


def _is_arriving(video: Upload) -> bool:
    return video.state is not UploadState.COMPLETE


def _source(
    video: Upload, state: PlaybackState, playable: PlayableDocument | None, media: str
) -> str | None:
    """The URL for <video>: until a file is probed, the browser may be able to play the original."""
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
    """The sender of a file, as in "from Aunt Rosa via Wedding films"; also in words.js."""
    name = f"from {sender.name}" if sender.name else ""
    if sender.kind is not CallerKind.UPLOAD_LINK:
        return name
    return f"{name} via {sender.link or 'an upload link'}".strip()


# ---- JSON ----------------------------------------------------------------------------------------

# /api/videos: list, show, rename, delete.


api = Blueprint("api_videos", __name__, url_prefix="/api/videos")

DEFAULT_PAGE = 50


class VideosDocument(TypedDict):
    """A page of videos."""

    videos: list[VideoDocument]
    next: str | None
    """The `cursor` of the next page, if there is one."""


class NewNameDocument(Struct):
    """The new name of a video.

    Example:
        {"filename": "holiday.mp4"}
    """

    filename: Annotated[Filename, keywords(allOf=[{"pattern": r"\S"}])]


@api.get("")
@requires(Action.BROWSE)
@describes(
    "listVideos",
    {200: VideosDocument},
    InvalidRequest,
    parameters=(
        query(
            "q",
            "Words that the name contains, all of them, in any order. Case, accents and width do "
            "not matter: `ete` finds `Été.mp4`.",
            maxLength=MAX_SEARCH_CHARACTERS,
            pattern=r"^[^\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]*$",
        ),
        query(
            "sort",
            "What comes first: the newest, the oldest, names from A to Z or with `-` from Z to A, "
            "the smallest or with `-` the largest. Numbers in names sort by value.",
            enum=[*VideoOrder],
            default=VideoOrder.NEWEST,
        ),
        query(
            "limit",
            f"Videos on a page. Taken as 1 if it is less, and as {MAX_PAGE} if it is more.",
            int,
            minimum=0,
            default=DEFAULT_PAGE,
        ),
        query(
            "cursor",
            "The `next` of the page before, with the same `q` and `sort`.",
            pattern=r"^[0-9a-f]{8}\.[A-Za-z0-9_-]{0,160}\.[0-9a-f]{32}$",
        ),
    ),
)
def index(ctx: ViewContext) -> Response:
    """List, search and sort videos.

    Page by page every video is listed once, even if others are added or deleted at the same time.
    """
    limit = parse_digits(request.args.get("limit", str(DEFAULT_PAGE)))
    if limit is None:
        raise InvalidRequest("The limit must be a whole number.")
    wanted = VideoList.parse(request.args.get("q", ""), request.args.get("sort", VideoOrder.NEWEST))
    services = ctx.services
    page = services.library.page(ctx.scope, wanted, limit=limit, cursor=request.args.get("cursor"))
    views = services.media.library.playbacks(page.videos)
    expires, senders = services.video_expiry.expires, services.identity.senders.of(page.videos)
    documents = [
        video_document(video, view, expires=expires(video), sender=senders.get(video.sender))
        for video, view in zip(page.videos, views, strict=True)
    ]
    return jsonify({"videos": documents, "next": page.next_cursor})


@api.get("/<upload_id>")
@requires(Action.BROWSE)
@describes("showVideo", {200: VideoDocument}, parameters=(WANT_REPR_DIGEST,))
def show(ctx: ViewContext, upload_id: str) -> Response:
    """Get a video's details."""
    video = _video(ctx, upload_id)
    if wants_sha256():
        ctx.services.library.want_sha256(video)
    return _document(ctx, video)


@api.patch("/<upload_id>")
@requires(Action.CHANGE)
@takes(NewNameDocument)
@describes("renameVideo", {200: VideoDocument}, TypeNotAllowed)
def rename(ctx: ViewContext, new: NewNameDocument, upload_id: str) -> Response:
    """Rename a video.

    Its `content_type` follows from its new name.
    """
    library = ctx.services.library
    before = library.get(ctx.scope, parse_upload_id(upload_id))
    video = note_upload(library.rename(ctx.scope, before.id, new.filename))
    audit.note_rename(ctx, before, video.filename)
    return _document(ctx, video)


@api.delete("/<upload_id>")
@requires(Action.CHANGE)
@describes("deleteVideo", {204: "Deleted."})
def delete(ctx: ViewContext, upload_id: str) -> tuple[str, int]:
    """Delete a video and its file."""
    audit.note_removal(ctx, ctx.services.library.delete(ctx.scope, parse_upload_id(upload_id)))
    return "", 204


@api.post("/<upload_id>/renditions/<int:height>")
@requires(Action.CHANGE)
@describes(
    "orderRendition",
    {
        200: ResponseSpec("It is ready.", RenditionDocument),
        202: ResponseSpec("It is being made.", RenditionDocument),
    },
    *(NotMade, RenditionsOff),
)
def order_rendition(ctx: ViewContext, upload_id: str, height: int) -> tuple[Response, int]:
    """Have a video made in another quality, as a file to download.

    Get the video to follow its progress. Players need not ask for this: segments are made while
    they are watched.
    """
    video = _video(ctx, upload_id)
    view = ctx.services.media.renditions.order(video, height)
    return jsonify(rendition_document(video, view)), 200 if view.state == "ready" else 202


@api.delete("/<upload_id>/renditions/<int:height>")
@requires(Action.CHANGE)
@describes("removeRendition", {204: "Removed."}, NotMade)
def remove_rendition(ctx: ViewContext, upload_id: str, height: int) -> tuple[str, int]:
    """Stop making a rendition, and delete it.

    The original stays. Segments that are watched are made again.
    """
    ctx.services.media.renditions.remove(_video(ctx, upload_id), height)
    return "", 204


def _video(ctx: ViewContext, upload_id: str) -> Upload:
    return note_upload(ctx.services.library.get(ctx.scope, parse_upload_id(upload_id)))


def _document(ctx: ViewContext, video: Upload) -> Response:
    services = ctx.services
    media, expires = services.media, services.video_expiry.expires(video)
    (view,) = media.library.playbacks([video])
    renditions, texts = media.renditions.of(video), media.text_files.of(video)
    sender = services.identity.senders.of([video]).get(video.sender)
    return jsonify(video_document(video, view, renditions, texts, expires=expires, sender=sender))


# ---- pages ---------------------------------------------------------------------------------------

# The start page with the library, and one page for each video.


LIBRARY_PAGE_SIZE = 50
"""Videos per page; more are loaded on request."""

pages = Blueprint("pages", __name__)
pages.after_request(widen_policy)


@pages.get("/", endpoint="index")
@requires(Action.BROWSE)
def index_page(ctx: ViewContext) -> str:
    """The start page: the drop area, the uploads and the first page of the library."""
    services = ctx.services
    search = request.args.get("q", "").strip()
    wanted = VideoList.parse(search, request.args.get("sort") or VideoOrder.NEWEST)
    cursor = request.args.get("cursor")
    page = services.library.page(ctx.scope, wanted, limit=LIBRARY_PAGE_SIZE, cursor=cursor)
    playbacks = services.media.library.playbacks(page.videos)
    expires, senders = services.video_expiry.expires, services.identity.senders.of(page.videos)
    return render_template(
        "upload.html",
        videos=[
            view_of(video, playback, expires=expires(video), sender=senders.get(video.sender))
            for video, playback in zip(page.videos, playbacks, strict=True)
        ],
        next_cursor=page.next_cursor,
        search=search,
        order=wanted.order.value,
        upload_url=url_for("upload.upload", project=kept_project()),
        batch_url=url_for("batch.batch", project=kept_project()),
        chunk_bytes=services.settings.chunk_bytes,
        least_chunk_bytes=services.settings.least_chunk_bytes,
        max_upload_bytes=services.settings.max_upload_bytes,
        uploaded=request.args.get("uploaded", default=0, type=int),
    )


@pages.get("/watch/<upload_id>")
@requires(Action.BROWSE)
def watch(ctx: ViewContext, upload_id: str) -> str:
    """The page of one video, also during its upload."""
    films = ctx.services.media.library
    video = films.watched(ctx.scope, parse_upload_id(upload_id))
    (playback,) = films.playbacks([video])
    sender = ctx.services.identity.senders.of([video]).get(video.sender)
    return render_template("watch.html", video=view_of(video, playback, sender=sender))
