"""/openapi.json, /openapi.yaml: the API described for programs (OpenAPI 3.1).

The document is `openapi.yaml` beside this file, written by hand. Tests compare it with the routes,
the error tree and real answers.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from flask import Blueprint, Response, jsonify

from app.core.access import Action
from app.http.access import requires
from app.http.context import ViewContext

blueprint = Blueprint("api_openapi", __name__)

FILE = Path(__file__).with_suffix(".yaml")


@cache
def openapi_document() -> dict[str, Any]:
    """The document, parsed once per process at first use (0.06 s)."""
    import yaml  # noqa: PLC0415 - 0.01 s of every start

    # The C loader is five times as fast, but PyYAML can be built without it.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    document: dict[str, Any] = yaml.load(FILE.read_bytes(), Loader=loader)  # noqa: S506 - both are safe
    return document


@blueprint.get("/openapi.json")
@requires(Action.VISIT)
def show(ctx: ViewContext) -> Response:
    """The document as JSON."""
    return jsonify(openapi_document())


@blueprint.get("/openapi.yaml")
@requires(Action.VISIT)
def show_yaml(ctx: ViewContext) -> Response:
    """The document as it was written."""
    return Response(FILE.read_bytes(), content_type="application/yaml")
