"""The whole document."""

from __future__ import annotations

from functools import cache

from app import __version__
from app.api.openapi import byte_paths, json_paths
from app.api.openapi.answers import Schema
from app.api.openapi.schemas import HEADERS, schemas

DESCRIPTION = """\
Resumable uploads of large files, and the files themselves.

Errors are problem documents (RFC 9457): decide by `code` and `retryable`; the texts are for
people. A request that prefers `text/html` to `application/json`, as those of browsers do, gets
errors as a page instead. Where the operator has named the hosts to answer to, what is addressed to
another one gets 400 `bad_request`. An upload and the video it becomes have the same id. The
addresses `/tus/` and `/resumable/` speak tus 1.0.0 and the IETF's resumable uploads, whose
documents describe them.
"""

TAGS = [
    {"name": "uploads", "description": "Files on their way in."},
    {"name": "videos", "description": "Files that are complete."},
    {"name": "server", "description": "Limits and health."},
]


@cache
def openapi_document() -> Schema:
    """The description of the API; the same for the life of the process."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Sluice",
            "version": __version__,
            "description": DESCRIPTION,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "tags": TAGS,
        "paths": {**json_paths.PATHS, **byte_paths.PATHS},
        "components": {"schemas": schemas(), "headers": HEADERS},
    }
