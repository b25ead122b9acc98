"""Leaves the bytes to an nginx in front: X-Accel-Redirect.

nginx drops the body of such an answer and sends a file from an internal location instead. It
evaluates Range and If-Range itself; requests it would treat differently from this package are not
left to it. `deploy/nginx.conf` has its side, with the headers it would drop.
"""

from __future__ import annotations

import re

from werkzeug.datastructures import Headers

ACCEL_HEADER = "X-Accel-Redirect"

_OURS_ALONE = ("If-Match", "If-Unmodified-Since")
"""nginx would compare them with its own validators, which the client has never seen."""

_PLAIN_RANGE = re.compile("bytes=([0-9]{1,18}-[0-9]{0,18}|-[0-9]{1,18})", re.IGNORECASE)
"""One range. Of several, nginx sends overlapping bytes twice; it answers malformed ranges and
numbers beyond 63 bits with 416."""


def nginx_decides_alike(headers: Headers, *, has_range: bool) -> bool:
    """Whether nginx, left alone with these request headers, sends what we would.

    `has_range` says whether a Range was asked for that applies and has bytes of the file.
    """
    if any(name in headers for name in _OURS_ALONE):
        return False
    asked = headers.get("Range")
    return asked is None or (has_range and _PLAIN_RANGE.fullmatch(asked) is not None)
