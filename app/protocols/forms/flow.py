"""/flow: Flow.js, in its multipart form and in its `octet` form; see `numbered_chunks.py`.

Flow.js (2.14) takes 200, 201 and 202 for success, 404, 413, 415, 500 and 501 for the end of the
upload, in answer to its question too, and anything else for a reason to retry as often as its
`maxChunkRetries` says, which is not at all by default.
"""

from __future__ import annotations

from flask import Blueprint, Response

from app.domain.errors import UploadError
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
def probe() -> Response:
    """Whether a chunk is there."""
    return answer_probe(DIALECT)


@blueprint.post("/flow")
def upload() -> Response:
    """Take a chunk."""
    return answer_chunk(DIALECT)
