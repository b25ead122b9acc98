"""The start page with the library, and one page for each video."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from flask import Blueprint, render_template, request

from app.domain.upload import Upload, parse_upload_id
from app.domain.video_list import VideoList, VideoOrder
from app.http.context import current_owner, current_services
from app.http.page_policy import allow_styles_with_nonce, style_nonce

LIBRARY_PAGE_SIZE = 50
"""Videos a page shows; more follow on request."""

SIZE_STEP = 1024
SIZE_UNITS = ("bytes", "KB", "MB", "GB", "TB", "PB")

blueprint = Blueprint("pages", __name__)
blueprint.context_processor(lambda: {"style_nonce": style_nonce})
blueprint.after_request(allow_styles_with_nonce)


@dataclass(frozen=True, slots=True)
class VideoView:
    """A video as the templates show it."""

    id: str
    filename: str
    length: int
    content_type: str
    inline: bool
    media: str
    published: str
    published_text: str
    sha256: str | None
    source: str | None
    """What a <video> of the page without scripts plays."""
    poster: str | None
    problem: str | None


@blueprint.get("/")
def index() -> str:
    """The start page: the drop area, the uploads and the first page of the library."""
    services = current_services()
    search = request.args.get("q", "").strip()
    wanted = VideoList.parse(search, request.args.get("sort") or VideoOrder.NEWEST)
    cursor = request.args.get("cursor")
    page = services.library.page(current_owner(), wanted, limit=LIBRARY_PAGE_SIZE, cursor=cursor)
    return render_template(
        "upload.html",
        videos=[view_of(video) for video in page.videos],
        next_cursor=page.next_cursor,
        search=search,
        order=wanted.order.value,
        upload_url="/upload",
        chunk_bytes=services.settings.chunk_bytes,
        max_upload_bytes=services.settings.max_upload_bytes,
        uploaded=request.args.get("uploaded", default=0, type=int),
    )


@blueprint.get("/watch/<upload_id>")
def watch(upload_id: str) -> str:
    """The page of one video."""
    video = current_services().library.get(current_owner(), parse_upload_id(upload_id))
    return render_template("watch.html", video=view_of(video))


def view_of(video: Upload) -> VideoView:
    """What the templates need of a video."""
    published = video.published_at
    return VideoView(
        id=video.id,
        filename=video.filename,
        length=video.known_length,
        content_type=video.content_type,
        inline=video.is_playable,
        media=f"/media/{video.id}",
        published=published.isoformat() if published else "",
        published_text=date_text(published) if published else "",
        sha256=video.sha256,
        source=f"/media/{video.id}" if video.is_playable else None,
        poster=None,
        problem=None,
    )


def date_text(moment: datetime) -> str:
    """A date for people, in the server's words: "3 Nov 2026, 14:05 UTC"."""
    return f"{moment.day} {moment:%b %Y, %H:%M} UTC"


@blueprint.app_template_filter("file_size")
def file_size(length: int) -> str:
    """A size in bytes as "20 MB" or "1.4 GB", in units of 1024 like the chunk size."""
    value = float(length)
    unit = 0
    while value >= 999.5 and unit < len(SIZE_UNITS) - 1:
        value /= SIZE_STEP
        unit += 1
    if length == 1:
        return "1 byte"
    text = f"{value:.1f}" if unit and value < 9.95 else f"{value:.0f}"
    return f"{text.removesuffix('.0')} {SIZE_UNITS[unit]}"
