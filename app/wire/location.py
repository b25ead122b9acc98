"""Where a new upload is found."""

from __future__ import annotations

from flask import request, url_for

from app.wire.context import current_services
from app.wire.proxy import knows_its_url


def location_of(endpoint: str, upload_id: str) -> str:
    """The URL of an upload at an endpoint for a `Location`, whole or as a path.

    Some clients take only whole URLs; a path is right behind any proxy. Both hold the prefix, and
    the whole one the scheme and host, that a trusted proxy tells. It is a path where scheme or
    host are none that a URL can have.
    """
    is_possible = request.host != "" and request.scheme in {"http", "https"}
    return url_for(endpoint, upload_id=upload_id, _external=is_possible and _is_wanted())


def _is_wanted() -> bool:
    choice = current_services().settings.location
    return choice == "url" or (choice == "auto" and knows_its_url(request.environ))
