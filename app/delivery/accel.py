"""Leaves the bytes to an nginx in front: X-Accel-Redirect.

nginx throws the body of such an answer away and sends the file of an internal location instead.
It looks at Range and If-Range itself; whatever it would take otherwise than this package does is
not left to it. `deploy/nginx.conf` has its side, with the headers it would drop.
"""

from __future__ import annotations

import re

from werkzeug.datastructures import Headers

ACCEL_HEADER = "X-Accel-Redirect"

_OURS_ALONE = ("If-Match", "If-Unmodified-Since")
"""nginx would compare them with what it knows of the file, which is not what we told the client."""

_PLAIN_RANGE = re.compile("bytes=([0-9]{1,18}-[0-9]{0,18}|-[0-9]{1,18})", re.IGNORECASE)
"""One range. Of several, nginx sends overlapping bytes twice; a malformed one or a number beyond 63
bits it answers with 416."""


def nginx_decides_alike(headers: Headers, *, has_range: bool) -> bool:
    """Whether nginx, left alone with these request headers, sends what we would.

    `has_range` says whether a Range was asked for that applies and has bytes of the file.
    """
    if any(name in headers for name in _OURS_ALONE):
        return False
    asked = headers.get("Range")
    return asked is None or (has_range and _PLAIN_RANGE.fullmatch(asked) is not None)
