"""/api/videos: list, look at, rename, delete."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify, request

from app.core.access import Action
from app.core.errors import InvalidRequest
from app.core.numbers import parse_digits
from app.core.upload import Upload, parse_upload_id
from app.core.video_list import VideoList, VideoOrder
from app.http.access import requires
from app.http.audited import audit_removal, audit_rename
from app.http.bodies import json_object, member
from app.http.context import ViewContext, note_upload
from app.http.digests import wants_sha256
from app.http.documents import rendition_document, video_document

blueprint = Blueprint("api_videos", __name__, url_prefix="/api/videos")

DEFAULT_PAGE = 50


@blueprint.get("")
@requires(Action.BROWSE)
def index(ctx: ViewContext) -> Response:
    """A page of the videos that `q` and `sort` ask for; `next` is the following page's `cursor`."""
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


@blueprint.get("/<upload_id>")
@requires(Action.BROWSE)
def show(ctx: ViewContext, upload_id: str) -> Response:
    """One video; its SHA-256 will be computed if the request wants it."""
    video = _video(ctx, upload_id)
    if wants_sha256():
        ctx.services.library.want_sha256(video)
    return _document(ctx, video)


@blueprint.patch("/<upload_id>")
@requires(Action.CHANGE)
def rename(ctx: ViewContext, upload_id: str) -> Response:
    """Give a video another name; answers as `show` does."""
    filename = member(json_object(ctx), "filename", kind=str)
    library = ctx.services.library
    before = library.get(ctx.scope, parse_upload_id(upload_id))
    video = note_upload(library.rename(ctx.scope, before.id, filename))
    audit_rename(ctx, before, video.filename)
    return _document(ctx, video)


@blueprint.delete("/<upload_id>")
@requires(Action.CHANGE)
def delete(ctx: ViewContext, upload_id: str) -> tuple[str, int]:
    """Remove a video and its file."""
    audit_removal(ctx, ctx.services.library.delete(ctx.scope, parse_upload_id(upload_id)))
    return "", 204


@blueprint.post("/<upload_id>/renditions/<int:height>")
@requires(Action.CHANGE)
def order_rendition(ctx: ViewContext, upload_id: str, height: int) -> tuple[Response, int]:
    """Have the film made in another quality, as a file to download; 202 until it is there."""
    video = _video(ctx, upload_id)
    view = ctx.services.media.renditions.order(video, height)
    return jsonify(rendition_document(video, view)), 200 if view.state == "ready" else 202


@blueprint.delete("/<upload_id>/renditions/<int:height>")
@requires(Action.CHANGE)
def remove_rendition(ctx: ViewContext, upload_id: str, height: int) -> tuple[str, int]:
    """Stop making it, and remove what was made."""
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
