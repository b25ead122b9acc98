"""Requests to other servers, with limits on time and on the size of the response."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import requests
from requests.adapters import HTTPAdapter

CONNECT_SECONDS = 5.0

IDLE_SECONDS = 10.0
"""A server that sends nothing for this long is taken for dead."""

ANSWER_SECONDS = 20.0
"""So long a whole answer may take, however its bytes trickle in."""

MAX_ANSWER_BYTES = 1024 * 1024
"""Sets of keys and ID tokens have a few thousand bytes."""

_BLOCK_BYTES = 16 * 1024


class BoundedAdapter(HTTPAdapter):
    """Reads answers within these limits, or raises `requests.RequestException`."""

    def send(self, request: requests.PreparedRequest, *_: Any, **options: Any) -> requests.Response:
        """Send the request, and read the whole answer."""
        deadline = time.monotonic() + ANSWER_SECONDS
        limits = {"stream": True, "timeout": (CONNECT_SECONDS, IDLE_SECONDS)}
        answer = super().send(request, **{**options, **limits})
        body = bytearray()
        for block in answer.iter_content(_BLOCK_BYTES):
            body += block
            if len(body) > MAX_ANSWER_BYTES or time.monotonic() > deadline:
                answer.close()
                raise requests.exceptions.ContentDecodingError(f"{request.url} sends too much")
        answer._content = bytes(body)  # Where `requests` keeps what it has read.
        return answer


def bound(session: requests.Session) -> None:
    """Let all requests of a session keep to the limits."""
    for prefix in ("https://", "http://"):
        session.mount(prefix, BoundedAdapter())


def get_json(url: str) -> Mapping[str, Any]:
    """The JSON object at `url`; raises `requests.RequestException`, for redirects too."""
    with requests.Session() as session:
        bound(session)
        answer = session.get(url, headers={"Accept": "application/json"}, allow_redirects=False)
        answer.raise_for_status()
        found = answer.json()
    if answer.status_code != 200 or not isinstance(found, dict):
        raise requests.exceptions.InvalidJSONError(f"{url} does not answer with an object")
    return found
