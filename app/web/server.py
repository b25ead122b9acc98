"""Server information for clients: /api/server, and the OpenAPI 3.1 document."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from flask import Blueprint, Response, jsonify

from app import __version__
from app.core.access import Action
from app.http.access import requires
from app.http.context import ViewContext
from app.ingest.connection import advice_now

# ---- /api/server ---------------------------------------------------------------------------------

# /api/server: what a client needs to know before it uploads.


blueprint = Blueprint("api_server", __name__)


@blueprint.get("/api/server")
@requires(Action.VISIT, is_below_links=True)
def show(ctx: ViewContext) -> Response:
    """Recommended chunk sizes and connections, the maximum upload size, and the server's time."""
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


# ---- /openapi.json -------------------------------------------------------------------------------

# /openapi.json, /openapi.yaml: the API description (OpenAPI 3.1).
#
# The document is `openapi.yaml` in this folder, written by hand. Tests compare it with the routes,
# the error tree and real responses.


description = Blueprint("api_openapi", __name__)

FILE = Path(__file__).with_name("openapi.yaml")


@cache
def openapi_document() -> dict[str, Any]:
    """The document, parsed once per process at first use (0.06 s)."""
    import yaml  # noqa: PLC0415 - 0.01 s of every start

    # The C loader is five times as fast, but PyYAML can be built without it.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    document: dict[str, Any] = yaml.load(FILE.read_bytes(), Loader=loader)  # noqa: S506 - both are safe
    return document


@description.get("/openapi.json", endpoint="show")
@requires(Action.VISIT)
def describe(ctx: ViewContext) -> Response:
    """The document as JSON."""
    return jsonify(openapi_document())


@description.get("/openapi.yaml", endpoint="show_yaml")
@requires(Action.VISIT)
def describe_yaml(ctx: ViewContext) -> Response:
    """The document as YAML."""
    return Response(FILE.read_bytes(), content_type="application/yaml")
