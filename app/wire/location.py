"""Where a new upload is found."""

from __future__ import annotations

from flask import request, url_for

from app.domain.upload import UploadId
from app.wire.context import current_services


def location_of(endpoint: str, upload_id: UploadId) -> str:
    """The URL of an upload at an endpoint, as a path or whole, as the settings say.

    Both hold the prefix, and the whole one the scheme and host, that a trusted proxy tells. It is
    a path where the host is none that a URL can have.
    """
    is_whole = current_services().settings.location == "url" and request.host != ""
    return url_for(endpoint, upload_id=upload_id, _external=is_whole)
