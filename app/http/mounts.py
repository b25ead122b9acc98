"""URLs that begin with a link: /u/CODE/tus/ is /tus/, used with that link's access.

The prefix moves to WSGI's SCRIPT_NAME, so that all views work under it and every URL they generate
has it, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

LINK_KEY = "sluice.link"
"""Key of the WSGI environment for the link of a request, as ("u", code)."""

_PREFIX = re.compile(r"/(u|t)/([A-Za-z0-9._~-]{1,1000})(?=/.)")
"""`u` is an upload link; `t` is the ticket of a share link."""


class LinkMiddleware:
    """Moves the prefix of a link from the path to SCRIPT_NAME."""

    def __init__(self, app: WSGIApplication) -> None:
        self._app = app

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Run the application."""
        path = environ["PATH_INFO"]
        if path.startswith(("/u/", "/t/")) and (found := _PREFIX.match(path)):
            environ[LINK_KEY] = (found[1], found[2])
            environ["SCRIPT_NAME"] = environ.get("SCRIPT_NAME", "") + found[0]
            environ["PATH_INFO"] = path[found.end() :]
        return self._app(environ, start_response)
