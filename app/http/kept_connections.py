"""Whether the connection of an answer can be used for another request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from app.ingest.gunicorn_socket.settle import settle

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication


class KeptConnections:
    """Middleware: no view needs to think of what it has left unread of its request's body."""

    def __init__(self, app: WSGIApplication) -> None:
        self._app = app

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Pass the request on; nothing of its answer has been sent when `settle` looks at it."""
        answer = self._app(environ, start_response)
        settle(environ, start_response)
        return answer
