"""The start page with the library, and one page for each video."""

from __future__ import annotations

from flask import Blueprint, render_template, request, url_for

from app.core.access import Action, Reach, reach_of
from app.core.upload import parse_upload_id
from app.core.video_list import VideoList, VideoOrder
from app.http.access import requires
from app.http.context import ViewContext, current_caller
from app.http.page_policy import style_nonce, widen_policy
from app.web.pages.project import kept_project
from app.web.pages.video_view import date_text, view_of

LIBRARY_PAGE_SIZE = 50
"""Videos a page shows; more follow on request."""

SIZE_STEP = 1000
SIZE_UNITS = ("bytes", "KB", "MB", "GB", "TB", "PB")

blueprint = Blueprint("pages", __name__)
blueprint.context_processor(lambda: {"style_nonce": style_nonce, "may": may})
blueprint.after_request(widen_policy)
blueprint.add_app_template_filter(date_text, "date")


@blueprint.get("/")
@requires(Action.BROWSE)
def index(ctx: ViewContext) -> str:
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


def may(action: str) -> bool:
    """Whether the caller may do this to anything in the project; for templates."""
    return reach_of(Action(action), current_caller().role) is not Reach.NONE


@blueprint.get("/watch/<upload_id>")
@requires(Action.BROWSE)
def watch(ctx: ViewContext, upload_id: str) -> str:
    """The page of one video, also while it is being uploaded."""
    films = ctx.services.media.library
    video = films.watched(ctx.scope, parse_upload_id(upload_id))
    (playback,) = films.playbacks([video])
    sender = ctx.services.identity.senders.of([video]).get(video.sender)
    return render_template("watch.html", video=view_of(video, playback, sender=sender))


@blueprint.app_template_filter("file_size")
def file_size(length: int) -> str:
    """A size in bytes as "20 MB" or "1.4 GB", in decimal units."""
    value = float(length)
    unit = 0
    while value >= 999.5 and unit < len(SIZE_UNITS) - 1:
        value /= SIZE_STEP
        unit += 1
    if length == 1:
        return "1 byte"
    text = f"{value:.1f}" if unit and value < 9.95 else f"{value:.0f}"
    return f"{text.removesuffix('.0')} {SIZE_UNITS[unit]}"


@blueprint.app_template_filter("duration")
def duration(seconds: float) -> str:
    """The length of a film as "0:05", "12:34" or "1:02:03"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
