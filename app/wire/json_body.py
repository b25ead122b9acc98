"""JSON request bodies, read with a limit and checked member by member."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from flask import request

from app.domain.errors import InvalidRequest, TooLarge
from app.wire.request_body import read_small_body

MAX_JSON_BYTES = 64 * 1024
"""No request of the API comes near; a larger one is refused with 413 unread."""

_REQUIRED = object()

T = TypeVar("T")


def json_object() -> dict[str, Any]:
    """The request's body as an object; raises `InvalidRequest` or `TooLarge`."""
    if (request.content_length or 0) > MAX_JSON_BYTES:
        raise TooLarge(f"The JSON body is over {MAX_JSON_BYTES} bytes.")
    text = read_small_body(MAX_JSON_BYTES)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("The body is not JSON.") from error
    if not isinstance(value, dict):
        raise InvalidRequest("The body is not a JSON object.")
    return value


def member(body: dict[str, Any], *names: str, kind: type[T], default: Any = _REQUIRED) -> T:
    """The first of `names` that the object has, checked to be of `kind`."""
    for name in names:
        value = body.get(name)
        if value is None:
            continue
        if kind is int and isinstance(value, float) and value.is_integer():
            value = int(value)  # JSON has one kind of number: 3.0 is 3.
        if not isinstance(value, kind) or isinstance(value, bool):
            raise InvalidRequest(f"The member {name} must be {_KIND_NAMES[kind]}.")
        return value
    if default is _REQUIRED:
        raise InvalidRequest(f"The member {names[0]} is missing.")
    return default  # type: ignore[no-any-return]


_KIND_NAMES: dict[type, str] = {str: "a string", int: "a whole number"}
