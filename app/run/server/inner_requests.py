"""Runs requests that arrive inside another one as if each had arrived on its own connection.

Each is authorized separately, takes a slot, is counted, and has a line in the access log.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import TYPE_CHECKING, Any

from app.ingest.websocket import InnerAnswer, InnerRequest

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

_OF_OUTER = ("HTTP_CONNECTION", "HTTP_UPGRADE", "HTTP_X_REQUEST_ID", "gunicorn.socket")
_OF_HANDSHAKE = "HTTP_SEC_WEBSOCKET_"

LogAccess = Callable[[Any, Any, dict[str, Any], timedelta], None]
"""gunicorn's `Logger.access`: response, request, environment, and duration."""


class _Sent:
    """A response for the access log."""

    status_code = 0
    sent = 0


class RunningInside:
    """Runs the inner requests of one connection; `environ` is the outer request's, as received."""

    def __init__(
        self,
        app: WSGIApplication,
        environ: dict[str, Any],
        *,
        log: LogAccess,
        is_ending: Callable[[], bool],
    ) -> None:
        self._app = app
        self._is_ending = is_ending
        self._outer = {
            key: value
            for key, value in environ.items()
            if key not in _OF_OUTER and not key.startswith(_OF_HANDSHAKE)
        }
        self._log = log

    @property
    def is_ending(self) -> bool:
        """Whether the worker is stopping."""
        return self._is_ending()

    def run(self, inner: InnerRequest) -> InnerAnswer:
        """Run an inner request and return its response."""
        environ = {
            **self._outer,
            **{f"HTTP_{name.upper().replace('-', '_')}": v for name, v in inner.headers.items()},
            "REQUEST_METHOD": "POST",
            "PATH_INFO": inner.path,
            "RAW_URI": f"{inner.path}?{inner.query}",
            "QUERY_STRING": inner.query,
            "CONTENT_TYPE": "application/octet-stream",
            "CONTENT_LENGTH": str(len(inner.body)),
            "HTTP_ACCEPT": "application/json",
            "wsgi.input": BytesIO(inner.body),
        }
        sent = _Sent()
        retry_after: str | None = None

        def start_response(
            status: str, headers: list[tuple[str, str]], _error: object = None, /
        ) -> Callable[[bytes], object]:
            nonlocal retry_after
            sent.status_code = int(status[:3])
            retry_after = next((text for name, text in headers if name == "Retry-After"), None)
            return lambda _data: None

        began_at = datetime.now(UTC)
        parts = self._app(environ, start_response)
        try:
            body = b"".join(parts)
        finally:
            if (close := getattr(parts, "close", None)) is not None:
                close()
        sent.sent = len(body)
        self._log(sent, None, environ, datetime.now(UTC) - began_at)
        return InnerAnswer(sent.status_code, retry_after, body)
