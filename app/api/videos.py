"""/api/videos: list, look at, rename, delete."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify, request

from app.domain.errors import InvalidRequest
from app.domain.numbers import parse_digits
from app.domain.upload import Upload, parse_upload_id
from app.domain.video_list import VideoList, VideoOrder
from app.http.bodies import json_object, member
from app.http.context import current_owner, current_services, note_upload
from app.http.documents import video_document

blueprint = Blueprint("api_videos", __name__, url_prefix="/api/videos")

DEFAULT_PAGE = 50


@blueprint.get("")
def index() -> Response:
    """A page of the videos that `q` and `sort` ask for; `next` is the following page's `cursor`."""
    limit = parse_digits(request.args.get("limit", str(DEFAULT_PAGE)))
    if limit is None:
        raise InvalidRequest("The limit must be a whole number.")
    wanted = VideoList.parse(request.args.get("q", ""), request.args.get("sort", VideoOrder.NEWEST))
    services = current_services()
    page = services.library.page(
        current_owner(), wanted, limit=limit, cursor=request.args.get("cursor")
    )
    views = services.media.library.playbacks(page.videos)
    documents = list(map(video_document, page.videos, views))
    return jsonify({"videos": documents, "next": page.next_cursor})


@blueprint.get("/<upload_id>")
def show(upload_id: str) -> Response:
    """One video."""
    video = current_services().library.get(current_owner(), parse_upload_id(upload_id))
    return _document(video)


@blueprint.patch("/<upload_id>")
def rename(upload_id: str) -> Response:
    """Give a video another name; answers as `show` does."""
    filename = member(json_object(), "filename", kind=str)
    library = current_services().library
    video = library.rename(current_owner(), parse_upload_id(upload_id), filename)
    return _document(video)


@blueprint.delete("/<upload_id>")
def delete(upload_id: str) -> tuple[str, int]:
    """Remove a video and its file."""
    current_services().library.delete(current_owner(), parse_upload_id(upload_id))
    return "", 204


def _document(video: Upload) -> Response:
    (view,) = current_services().media.library.playbacks([note_upload(video)])
    return jsonify(video_document(video, view))
