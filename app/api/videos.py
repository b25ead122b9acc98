"""/api/videos: list, look at, rename, delete."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify, request

from app.domain.errors import InvalidRequest
from app.domain.numbers import parse_digits
from app.domain.upload import parse_upload_id
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
    page = current_services().library.page(
        current_owner(), wanted, limit=limit, cursor=request.args.get("cursor")
    )
    return jsonify(
        {"videos": [video_document(video) for video in page.videos], "next": page.next_cursor}
    )


@blueprint.get("/<upload_id>")
def show(upload_id: str) -> Response:
    """One video."""
    video = current_services().library.get(current_owner(), parse_upload_id(upload_id))
    return jsonify(video_document(note_upload(video)))


@blueprint.patch("/<upload_id>")
def rename(upload_id: str) -> Response:
    """Give a video another name; answers as `show` does."""
    filename = member(json_object(), "filename", kind=str)
    library = current_services().library
    video = library.rename(current_owner(), parse_upload_id(upload_id), filename)
    return jsonify(video_document(note_upload(video)))


@blueprint.delete("/<upload_id>")
def delete(upload_id: str) -> tuple[str, int]:
    """Remove a video and its file."""
    current_services().library.delete(current_owner(), parse_upload_id(upload_id))
    return "", 204
