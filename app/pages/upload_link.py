"""/u/CODE: the page on which strangers send files through an upload link.

What the page itself sends goes to /u/CODE/upload and so on: see `app/http/mounts.py`.
"""

from __future__ import annotations

from flask import Blueprint, Response, make_response, render_template, request

from app.http.context import current_services
from app.http.proxy import absolute_url
from app.identity.upload_links import VISITOR_COOKIE, new_visitor, visitor_in
from app.pages.blueprint import file_size
from app.pages.video_view import date_text
from app.records.identity.upload_links import UploadLink

VISITOR_SECONDS = 365 * 24 * 3600
"""As long as any link is likely to be open."""

blueprint = Blueprint("upload_link", __name__)


@blueprint.get("/u/<code>")
def page(code: str) -> Response:
    """The page of a link, or the error page of one that is closed or does not exist."""
    link = current_services().identity.upload_links.visited(code)
    return _private(make_response(_drop_page(link)), link)


def _drop_page(link: UploadLink) -> str:
    settings = current_services().settings
    most = settings.max_upload_bytes
    return render_template(
        "upload_link/drop.html",
        link=link,
        limits=_in_words(link),
        is_full=link.is_full,
        accept=",".join(f".{each}" for each in link.extensions),
        root=f"{request.script_root}/u/{link.code}",
        url=absolute_url("upload_link.page", code=link.code),
        chunk_bytes=settings.chunk_bytes,
        max_upload_bytes=min(link.max_file_bytes or most, most),
        uploaded=request.args.get("uploaded", default=0, type=int),
    )


def _in_words(link: UploadLink) -> list[str]:
    """What the link still takes."""
    words = []
    if link.files_left is not None:
        words.append("1 more file" if link.files_left == 1 else f"{link.files_left} more files")
    if link.bytes_left is not None:
        words.append(f"{file_size(link.bytes_left)} more in all")
    if link.max_file_bytes is not None:
        words.append(f"Files of up to {file_size(link.max_file_bytes)}")
    if link.extensions:
        words.append(f"Only {', '.join(link.extensions)}")
    if link.expires_at is not None:
        words.append(f"Open until {date_text(link.expires_at)}")
    return words


def _private(response: Response, link: UploadLink) -> Response:
    """Nobody else learns of the address of the page, and its visitor gets a cookie."""
    response.headers["Referrer-Policy"] = "same-origin"
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Robots-Tag"] = "noindex"
    if visitor_in(request.headers.get("Cookie", "")) is None:
        _keep(response, link, VISITOR_COOKIE, new_visitor(), VISITOR_SECONDS)
    return response


def _keep(response: Response, link: UploadLink, name: str, value: str, seconds: int) -> None:
    """Give the visitor a cookie that is sent to this link alone."""
    response.set_cookie(
        name,
        value,
        max_age=seconds,
        path=f"{request.script_root}/u/{link.code}",
        secure=request.is_secure,
        httponly=True,
        samesite="Lax",
    )
