"""/api/server: what a client should know before it uploads."""

from __future__ import annotations

from datetime import UTC, datetime

from flask import Blueprint, Response, jsonify

from app import __version__
from app.core.access import Action
from app.http.access import requires
from app.http.context import ViewContext
from app.ingest.connection_advice import advice_now

blueprint = Blueprint("api_server", __name__)


@blueprint.get("/api/server")
@requires(Action.VISIT, is_below_links=True)
def show(ctx: ViewContext) -> Response:
    """Chunk sizes and connections to use, the largest upload, and the server's clock."""
    settings = ctx.services.settings
    return jsonify(
        {
            "version": __version__,
            "chunk_bytes": settings.chunk_bytes,
            "least_chunk_bytes": settings.least_chunk_bytes,
            "max_upload_bytes": settings.max_upload_bytes,
            "connections": advice_now(),
            "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }
    )
