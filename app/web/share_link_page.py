"""/s/CODE: the page of a share link.

Nothing is shown before a visit: see `app/access/share_links.py`. A visit is a POST, so that
programs that preview links in messages use up no views.
"""

from __future__ import annotations

from typing import Any, TypeVar

from flask import Blueprint, Response, jsonify, redirect, render_template, request, url_for
from werkzeug.wrappers import Response as BaseResponse

from app.access import share_links
from app.access.share_links import ShareLink, ShareLinks, guest_of
from app.core import errors
from app.core.access import Action, Scope, scope_of
from app.core.upload import Upload, parse_upload_id
from app.http.access import requires
from app.http.bodies import form_fields
from app.http.context import ViewContext, note_upload
from app.http.documents import (
    VideoDocument,
    media_path,
    plays_original,
    signed_media,
    video_document,
)
from app.http.origins import widen_policy
from app.video.serve.library import PlaybackView
from app.web.pages import closed_page, form_page, set_link_cookie
from app.web.share_links import present_videos
from app.web.videos import VideoView, view_of

COOKIE = "sluice-visit"

MAX_FORM_BYTES = 4096

AnyResponse = TypeVar("AnyResponse", bound=BaseResponse)

blueprint = Blueprint("shared", __name__, url_prefix="/s/<code>")
blueprint.after_request(widen_policy)


@blueprint.get("")
@requires(Action.VISIT)
def show(ctx: ViewContext, code: str) -> BaseResponse:
    """The video or set of videos; before the visit, the form that starts one."""
    link = _links(ctx).opened(code)
    if not _has_visited(ctx, link):
        return _gate(link)
    videos = list(present_videos(ctx, link, _scope(link)))
    if not videos:
        raise errors.UploadGone("All videos of this link were deleted.")
    if len(videos) == 1:
        return _film_page(ctx, link, videos[0])
    playbacks = ctx.services.media.library.playbacks(videos)
    root = _root(ctx, link, playbacks)
    views: list[VideoView] = [
        view_of(video, playback, root) for video, playback in zip(videos, playbacks, strict=True)
    ]
    page = render_template("shared/set.html", link=link, videos=views, root=root)
    return _unindexed(Response(page))


@blueprint.post("")
@requires(Action.VISIT)
def visit(ctx: ViewContext, code: str) -> BaseResponse:
    """Start a visit, with the link's password if it has one."""
    link = _links(ctx).opened(code)
    try:
        password = (
            form_fields(ctx, MAX_FORM_BYTES).get("password", "") if link.password_hash else ""
        )
        kept = _links(ctx).visit(link, password, address=request.remote_addr or "")
    except (errors.InvalidField, errors.TooManyAttempts, errors.ServerBusy) as error:
        return _gate(link, error)
    path = url_for("shared.show", code=code)
    response = redirect(path, 303)
    set_link_cookie(response, COOKIE, kept, path=path, lifetime=share_links.VISIT_TIME)
    return response


@blueprint.get("/<upload_id>")
@requires(Action.VISIT)
def film(ctx: ViewContext, code: str, upload_id: str) -> BaseResponse:
    """One video of a set."""
    link = _links(ctx).opened(code)
    if not _has_visited(ctx, link):
        return redirect(url_for("shared.show", code=code), 303)
    return _film_page(ctx, link, _video(ctx, link, upload_id))


@blueprint.get("/<upload_id>/download")
@requires(Action.VISIT)
def download(ctx: ViewContext, code: str, upload_id: str) -> BaseResponse:
    """Redirect to the file with a new ticket: the page may have been open for hours."""
    link = _visited(ctx, code)
    scope = scope_of(guest_of(link), Action.DOWNLOAD)
    video = ctx.services.library.get(scope, parse_upload_id(upload_id))
    ticket = _links(ctx).ticket(link, at_least=share_links.DOWNLOAD_TICKET_SECONDS)
    path = media_path(video.id, _root_of(ticket))
    return _unindexed(redirect(signed_media(ctx, note_upload(video), path, is_download=True), 303))


@blueprint.get("/<upload_id>/state")
@requires(Action.VISIT)
def state(ctx: ViewContext, code: str, upload_id: str) -> Response:
    """The video with renewed URLs; the player polls this."""
    link = _visited(ctx, code)
    video = note_upload(_video(ctx, link, upload_id))
    media = ctx.services.media
    (playback,) = media.library.playbacks([video])
    known = video_document(
        video,
        playback,
        media.renditions.of(video),
        media.text_files.of(video),
        root=_root(ctx, link, [playback]),
    )
    shown: dict[str, Any] = {**known} if link.can_download else _to_watch(known, video, playback)
    if shown["media"]:
        shown["media"] = signed_media(ctx, video, shown["media"])
    return _unindexed(jsonify(shown))


@blueprint.errorhandler(errors.LinkClosed)
@blueprint.errorhandler(errors.LinkNotFound)
@blueprint.errorhandler(errors.UploadNotFound)
@blueprint.errorhandler(errors.UploadGone)
def _closed(
    error: errors.LinkClosed | errors.LinkNotFound | errors.UploadNotFound | errors.UploadGone,
) -> BaseResponse:
    is_link = isinstance(error, errors.LinkClosed | errors.LinkNotFound)
    words = str(error) if is_link else "The video was deleted, or does not belong to this link."
    return _unindexed(closed_page(error, words))


def _gate(link: ShareLink, error: errors.UploadError | None = None) -> BaseResponse:
    if link.is_used_up:
        raise errors.LinkClosed("It has been opened as often as it may be.")
    return _unindexed(form_page("shared/gate.html", error, link=link, problem=str(error or "")))


def _film_page(ctx: ViewContext, link: ShareLink, video: Upload) -> Response:
    (playback,) = ctx.services.media.library.playbacks([video])
    view = view_of(note_upload(video), playback, _root(ctx, link, [playback]))
    page = render_template("shared/video.html", link=link, video=view)
    return _unindexed(Response(page))


def _to_watch(known: VideoDocument, video: Upload, playback: PlaybackView) -> dict[str, Any]:
    """The document without URLs and checksums for downloads."""
    renditions = [{**each, "mp4": None} for each in known["playback"]["renditions"]]
    return {
        **known,
        "media": known["media"] if plays_original(video, playback) else None,
        "sha256": None,
        "crc32c": None,
        "playback": {**known["playback"], "renditions": renditions},
    }


def _root(ctx: ViewContext, link: ShareLink, playbacks: list[PlaybackView]) -> str:
    """The URL prefix of the link's media, valid for the duration of the longest video."""
    seconds = (view.facts.duration or 0 for view in playbacks if view.facts)
    return _root_of(_links(ctx).ticket(link, max(seconds, default=0)))


def _root_of(ticket: str) -> str:
    return f"{request.script_root}/t/{ticket}"


def _video(ctx: ViewContext, link: ShareLink, upload_id: str) -> Upload:
    return ctx.services.library.get(_scope(link), parse_upload_id(upload_id))


def _scope(link: ShareLink) -> Scope:
    return scope_of(guest_of(link), Action.WATCH)


def _visited(ctx: ViewContext, code: str) -> ShareLink:
    """The link, for requests from its page; raises `LinkNotFound` if the visit is over."""
    link = _links(ctx).opened(code)
    if not _has_visited(ctx, link):
        raise errors.LinkNotFound("The visit is over. Load the page again.")
    return link


def _has_visited(ctx: ViewContext, link: ShareLink) -> bool:
    return _links(ctx).is_visited(link, request.cookies.get(COOKIE, ""))


def _links(ctx: ViewContext) -> ShareLinks:
    return ctx.services.identity.share_links


def _unindexed(response: AnyResponse) -> AnyResponse:
    response.headers["X-Robots-Tag"] = "noindex"
    return response
