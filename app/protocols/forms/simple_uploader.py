"""simple-uploader.js (0.6): the fields of Flow.js without a prefix; see `numbered_chunks.py`.

It takes 200, 201 and 202 for success and gives the upload up on 404, 415, 500 and 501. Its chunks
come to the shared URL; the probe before each of them is its own.
"""

from __future__ import annotations

from flask import Blueprint, Response, request
from werkzeug.exceptions import MethodNotAllowed

from app.core.access import Action
from app.http.access import requires
from app.http.context import ViewContext
from app.protocols.forms.numbered_chunks import answer_probe, numbered_dialect

blueprint = Blueprint("simple_uploader", __name__)

DIALECT = numbered_dialect("")


@blueprint.get("/upload")
@requires(Action.SEND)
def probe(ctx: ViewContext) -> Response:
    """Whether a chunk has been stored."""
    if DIALECT.parse(request.args) is None:
        raise MethodNotAllowed(valid_methods=["POST", "OPTIONS"])
    return answer_probe(ctx, DIALECT)
