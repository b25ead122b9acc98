"""/flow: Flow.js, in its multipart form and in its `octet` form; see `numbered_chunks.py`.

Flow.js (2.14) takes 200, 201 and 202 for success and gives the upload up on 404, 413, 415, 500 and
501, in answer to a probe too. It retries anything else as often as its option `maxChunkRetries`
says, by default never.
"""

from __future__ import annotations

from flask import Blueprint, Response

from app.core.access import Action
from app.core.errors import UploadError
from app.http.access import requires
from app.http.context import ViewContext
from app.protocols.forms.numbered_chunks import (
    answer_chunk,
    answer_error,
    answer_probe,
    numbered_dialect,
)

blueprint = Blueprint("flow", __name__)
blueprint.register_error_handler(UploadError, answer_error)

DIALECT = numbered_dialect("flow")


@blueprint.get("/flow")
@requires(Action.SEND)
def probe(ctx: ViewContext) -> Response:
    """Whether a chunk has been stored."""
    return answer_probe(ctx, DIALECT)


@blueprint.post("/flow")
@requires(Action.SEND)
def upload(ctx: ViewContext) -> Response:
    """Store a chunk."""
    return answer_chunk(ctx, DIALECT)
