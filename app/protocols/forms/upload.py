"""POST /upload: chunks of every library that needs no URL of its own, and whole files.

A file without any library's fields is stored as a whole file, unless its fields show that it is a
chunk in an unknown dialect. Such a chunk is refused: stored as a file, it would silently be lost.
"""

from __future__ import annotations

from flask import Blueprint, jsonify, redirect, request, url_for
from werkzeug.wrappers import Response as BaseResponse

from app.core.access import Action
from app.http.access import requires
from app.http.context import ViewContext
from app.http.documents import chunk_document
from app.http.problems import prefers_html
from app.protocols.forms.chunk_form import FORM_TYPE, receive_chunk
from app.protocols.forms.dialects import AT_UPLOAD

blueprint = Blueprint("upload", __name__)


@blueprint.post("/upload")
@requires(Action.SEND)
def upload(ctx: ViewContext) -> BaseResponse:
    """Store a chunk, or whole files."""
    uploads = receive_chunk(ctx, *AT_UPLOAD)
    if request.mimetype == FORM_TYPE and prefers_html():
        return redirect(url_for("pages.index", uploaded=len(uploads)), 303)
    first, *others = [chunk_document(upload) for upload in uploads]
    return jsonify({**first, "files": [first, *others]} if others else first)
