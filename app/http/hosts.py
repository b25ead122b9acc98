"""Which names the service answers to."""

from __future__ import annotations

from flask import Flask, request
from werkzeug.exceptions import SecurityError
from werkzeug.sansio.utils import host_is_trusted

from app.http.context import current_services
from app.http.proxy import host_as_sent

ASKED_BY_ADDRESS = frozenset({"/healthz", "/readyz"})
"""Load balancers and container engines know an address and no name."""


def init_app(app: Flask) -> None:
    """Refuse requests that are addressed to a name which is not one of the settings.

    A hostile page can let its own name point to this machine (DNS rebinding): to the browser the
    service is then a part of that page's site, whatever the origins say. Such a page can send any
    header but `Host`, and comes from where a trusted proxy may be: so the name that a proxy tells
    of must be one of the settings, and the one in `Host` too.
    """
    app.before_request(_refuse_other_names)


def _refuse_other_names() -> None:
    allowed = current_services().settings.allowed_hosts
    if not allowed or request.path in ASKED_BY_ADDRESS:
        return
    for host in (host_as_sent(request.environ), request.environ.get("HTTP_HOST", "")):
        if not host_is_trusted(host.lower(), allowed):
            raise SecurityError(f"This server does not answer to the name {host!r}.")
