"""The shape of what `GET /api/status` answers."""

from __future__ import annotations

from app.api.openapi.answers import Schema

COUNT: Schema = {"type": "integer", "format": "int64", "minimum": 0}
COUNTS: Schema = {"type": "object", "additionalProperties": COUNT}
SECONDS: Schema = {"type": "number", "minimum": 0}
NULLABLE_SECONDS: Schema = {"anyOf": [SECONDS, {"type": "null"}]}


def _shape(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


STAGE = _shape(
    stage={"enum": ["receive", "hash", "write", "sync", "record", "publish"]},
    count={**COUNT, "description": "Requests that went through it."},
    seconds={**SECONDS, "description": "Of all of them together."},
    median_seconds={**NULLABLE_SECONDS, "description": "About; null before the first request."},
    p95_seconds={**NULLABLE_SECONDS, "description": "What 95 of 100 stay within."},
)

ACTIVE_UPLOAD = _shape(
    id={"type": "string"},
    filename={"type": "string"},
    length={"anyOf": [COUNT, {"type": "null"}]},
    received_bytes=COUNT,
)

STATUS = _shape(
    version={"type": "string"},
    started={"type": "string", "format": "date-time"},
    uptime_seconds=SECONDS,
    requests=_shape(now=COUNT, total=COUNT, by_status=COUNTS, by_protocol=COUNTS),
    transfers=_shape(downloads_now=COUNT, received_bytes=COUNT, sent_bytes=COUNT),
    uploads=_shape(
        under_way=COUNT,
        created=COUNT,
        complete=COUNT,
        cancelled=COUNT,
        expired=COUNT,
        newest={"type": "array", "items": ACTIVE_UPLOAD},
    ),
    errors={**COUNTS, "description": "By code."},
    free_bytes=_shape(staging=COUNT, library=COUNT),
    stages={"type": "array", "items": STAGE},
)
"""Counts and bytes are totals since the start: rates are the differences of two answers."""
