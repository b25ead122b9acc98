"""/s/CODE: the page of a share link.

Nothing is shown before a visit: see `app/access/share_links.py`. A visit is a POST, so that
programs that preview links in messages use up no views.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, TypeVar

from flask import Blueprint, Response, jsonify, redirect, render_template, request, url_for
from werkzeug.wrappers import Response as BaseResponse

from app.access.share_links import (
    DOWNLOAD_TICKET_SECONDS,
    VISIT_TIME,
    ShareLink,
    ShareLinks,
    guest_of,
)
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
from app.http.problems import Problem, answer_json, prefers_html, with_retry_after
from app.video.serve.library import PlaybackView
from app.web.videos import VideoView, view_of

COOKIE = "sluice-visit"

MAX_FORM_BYTES = 4096

AnyResponse = TypeVar("AnyResponse", bound=BaseResponse)

blueprint = Blueprint("shared", __name__, url_prefix="/s/<code>")
blueprint.after_request(widen_policy)


@blueprint.get("")
@requires(Action.VISIT)
def show(ctx: ViewContext, code: str) -> Response:
    """The video or set of videos; before the visit, the form that starts one."""
    link = _links(ctx).opened(code)
    if not _has_visited(ctx, link):
        return _gate(link)
    videos = _videos(ctx, link)
    return _film_page(ctx, link, videos[0]) if len(videos) == 1 else _set_page(ctx, link, videos)


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
    response.set_cookie(
        COOKIE,
        kept,
        max_age=VISIT_TIME,
        path=path,
        secure=request.is_secure,
        httponly=True,
        samesite="Lax",
    )
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
    ticket = _links(ctx).ticket(link, at_least=DOWNLOAD_TICKET_SECONDS)
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
) -> Response:
    problem = Problem.of(error)
    if not prefers_html():
        return answer_json(problem)
    is_link = isinstance(error, errors.LinkClosed | errors.LinkNotFound)
    words = str(error) if is_link else "The video was deleted, or does not belong to this link."
    page = render_template("shared/closed.html", title=problem.title, words=words)
    return _unindexed(Response(page, status=problem.status))


def _gate(link: ShareLink, error: errors.UploadError | None = None) -> Response:
    if link.is_used_up:
        raise errors.LinkClosed("It has been opened as often as it may be.")
    page = render_template("shared/gate.html", link=link, problem=str(error or ""))
    response = _unindexed(Response(page, status=error.status_hint if error else 200))
    return with_retry_after(response, error)


def _film_page(ctx: ViewContext, link: ShareLink, video: Upload) -> Response:
    (playback,) = ctx.services.media.library.playbacks([video])
    view = view_of(note_upload(video), playback, _root(ctx, link, [playback]))
    page = render_template("shared/video.html", link=link, video=view)
    return _unindexed(Response(page))


def _set_page(ctx: ViewContext, link: ShareLink, videos: list[Upload]) -> Response:
    playbacks = ctx.services.media.library.playbacks(videos)
    root = _root(ctx, link, playbacks)
    views: list[VideoView] = [
        view_of(video, playback, root) for video, playback in zip(videos, playbacks, strict=True)
    ]
    page = render_template("shared/set.html", link=link, videos=views, root=root)
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


def _videos(ctx: ViewContext, link: ShareLink) -> list[Upload]:
    """The link's videos that have not been deleted; raises `UploadGone` if there are none."""
    library, scope, found = ctx.services.library, _scope(link), []
    for video in link.videos:
        with suppress(errors.UploadNotFound, errors.UploadGone):
            found.append(library.get(scope, video))
    if not found:
        raise errors.UploadGone("All videos of this link were deleted.")
    return found


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
