"""Server information for clients: /api/server, and the OpenAPI 3.1 document."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, TypedDict

from flask import Blueprint, Flask, Response, current_app, jsonify

from app import __version__
from app.core.access import Action
from app.core.json_types import Count, Instant, keywords
from app.core.moments import instant
from app.http.access import requires
from app.http.context import ViewContext
from app.http.openapi import ResponseSpec, describe, describes
from app.ingest.connection import advice_now

# ---- /api/server ---------------------------------------------------------------------------------

# /api/server: what a client needs to know before it uploads.


blueprint = Blueprint("api_server", __name__)


class ServerDocument(TypedDict):
    """What a client should know before it sends anything.

    Example:
        {
            "version": "0.1.0",
            "chunk_bytes": 20971520,
            "least_chunk_bytes": 0,
            "max_upload_bytes": 1099511627776,
            "connections": null,
            "time": "2026-01-01T12:00:00.000Z"
        }
    """

    version: str
    chunk_bytes: Count
    """The chunk size to use."""
    least_chunk_bytes: Count
    """Send smaller chunks only where one of this size would take over ten seconds: each costs the
    server a request to its store. 0 if any size is as good."""
    max_upload_bytes: Count
    """The largest file accepted."""
    connections: Annotated[int, keywords(minimum=1)] | None
    """Use at most so many connections for your uploads now, because many are open; ask again every
    minute. Null for no wish."""
    time: Instant
    """The server's clock."""


@blueprint.get("/api/server")
@requires(Action.VISIT, is_below_links=True)
@describes("showServer", {200: ServerDocument})
def show(ctx: ViewContext) -> Response:
    """Get the server's limits and clock."""
    settings = ctx.services.settings
    document: ServerDocument = {
        "version": __version__,
        "chunk_bytes": settings.chunk_bytes,
        "least_chunk_bytes": settings.least_chunk_bytes,
        "max_upload_bytes": settings.max_upload_bytes,
        "connections": advice_now(),
        "time": instant(datetime.now(UTC)),
    }
    return jsonify(document)


# ---- /openapi.json -------------------------------------------------------------------------------

# /openapi.json, /openapi.yaml: the API description (OpenAPI 3.1).


description = Blueprint("api_openapi", __name__)

INTRODUCTION = """\
Resumable uploads of large files, and the files themselves.

An upload and the video it becomes have the same id. Byte ranges in JSON are half-open: `[0, 10]` is
ten bytes. Times are ISO 8601 in UTC. Later versions may add members to any object: ignore those you
do not know.

Errors are problem documents (RFC 9457). Decide by `code` and `retryable`; the texts are for people.
A client that prefers `text/html` to `application/json`, as browsers do, gets an error page instead.
If the operator has named the hosts the server answers to, a request for any other host gets 400
`bad_request`.

The same uploads can be sent with tus 1.0.0 at `/tus/` and with the IETF's resumable uploads at
`/resumable/`.
"""

TAGS = {
    "uploads": ("Files on their way in.", {"api_uploads", "upload", "batch"}),
    "videos": ("Complete files.", {"api_videos", "delivery", "archive"}),
    "access": (
        "Who may do what.",
        {
            *("api_share_links", "api_upload_links", "api_projects", "api_keys", "api_audit"),
            *("api_webhooks", "api_session"),
        },
    ),
    "server": (
        "Limits, health and metrics.",
        {"api_server", "api_status", "health", "api_openapi"},
    ),
}
"""Each with its description and its blueprints."""


def openapi_document(app: Flask) -> dict[str, Any]:
    """The description of the API that `app` serves."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Sluice",
            "version": __version__,
            "license": {"name": "MIT", "identifier": "MIT"},
            "description": INTRODUCTION,
        },
        "servers": [{"url": "/"}],
        **describe(app, TAGS),
    }


@cache
def _as_json() -> str:
    """The document, made once per process at first use."""
    return current_app.json.dumps(openapi_document(current_app))


@cache
def _as_yaml() -> str:
    import yaml  # noqa: PLC0415 - 0.01 s of every start

    class Dumper(yaml.SafeDumper):
        """Writes texts of several lines as such."""

    def text(dumper: Dumper, value: str) -> yaml.ScalarNode:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style)

    Dumper.add_representer(str, text)
    document = json.loads(_as_json())
    written: str = yaml.dump(
        document, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100
    )
    return written


@description.get("/openapi.json", endpoint="show")
@requires(Action.VISIT)
@describes("describe", {200: ResponseSpec("OpenAPI 3.1.", dict[str, Any])})
def describe_json(ctx: ViewContext) -> Response:
    """Get this document as JSON."""
    return Response(_as_json(), content_type="application/json")


@description.get("/openapi.yaml", endpoint="show_yaml")
@requires(Action.VISIT)
@describes(
    "describeAsYaml", {200: ResponseSpec("OpenAPI 3.1.", {"application/yaml": dict[str, Any]})}
)
def describe_yaml(ctx: ViewContext) -> Response:
    """Get this document as YAML."""
    return Response(_as_yaml(), content_type="application/yaml")
