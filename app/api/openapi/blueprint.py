"""GET /openapi.json."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify

from app.api.openapi.document import openapi_document

blueprint = Blueprint("api_openapi", __name__)


@blueprint.get("/openapi.json")
def show() -> Response:
    """The description of the API."""
    return jsonify(openapi_document())
