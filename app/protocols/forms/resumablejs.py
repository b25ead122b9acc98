"""/resumablejs: Resumable.js, in its multipart form and in its `octet` form.

See `numbered_chunks.py` for the fields. Resumable.js (1.1) takes 200 and 201 for success and gives
the upload up on a few statuses. It retries anything else, a hundred times and without a pause.
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

blueprint = Blueprint("resumablejs", __name__)

DIALECT = numbered_dialect("resumable")

ENDS_UPLOAD = frozenset({400, 401, 403, 404, 415, 500, 501})
"""Statuses on which every release gives up; some add 409. Before 1.1 they retry 401 and 403, which
are sent all the same: they say what would help."""


@blueprint.get("/resumablejs")
@requires(Action.SEND)
def probe(ctx: ViewContext) -> Response:
    """Whether a chunk has been stored."""
    return answer_probe(ctx, DIALECT)


@blueprint.post("/resumablejs")
@requires(Action.SEND)
def upload(ctx: ViewContext) -> Response:
    """Store a chunk."""
    return answer_chunk(ctx, DIALECT)


@blueprint.errorhandler(UploadError)
def refuse(error: UploadError) -> Response:
    """The problem; a permanent one with a status that the client does not retry."""
    return answer_error(error, ends_upload=ENDS_UPLOAD)
