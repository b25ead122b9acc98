"""The description of the API, as the tests read it."""

from __future__ import annotations

import re
from typing import Any

from app.run.build import build_services
from app.run.factory import create_app
from app.settings import Settings
from app.web.server import openapi_document

DOCUMENT = openapi_document(create_app(build_services(Settings())))
"""Of the real application; it opens nothing, as no view runs."""

SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]

OPERATIONS: dict[tuple[str, str], dict[str, Any]] = {
    (method, path): operation
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
}
"""By method and path."""


def described_response(method: str, path: str, status: int | str) -> dict[str, Any]:
    """What the document says of that answer."""
    response: dict[str, Any] = OPERATIONS[method, path]["responses"][str(status)]
    return response


def described_codes(method: str, path: str, status: int | str) -> set[str]:
    """The problem codes that the answer's description begins its lines with."""
    response = described_response(method, path, status)
    if "application/problem+json" not in response.get("content", {}):
        return set()
    return set(re.findall(r"^(?:- )?`(\w+)`:", response["description"], re.MULTILINE))
