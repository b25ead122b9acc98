"""The connection of a request: what a proxy in front tells of it, and whether it is kept."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from flask import request, url_for
from werkzeug.datastructures import EnvironHeaders, Headers
from werkzeug.middleware.proxy_fix import ProxyFix

from app.http.context import current_services
from app.ingest.gunicorn_socket.connection import drain_or_close
from app.settings import IPNetwork

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication


SIGNS = ("HTTP_VIA", "HTTP_FORWARDED", "HTTP_X_REAL_IP")
SIGN_PREFIX = "HTTP_X_FORWARDED_"
"""A request with one of these headers, or with one that begins so, came through a proxy."""


def came_directly(environ: dict[str, Any]) -> bool:
    """Whether no proxy shows itself, so that all of HTTP/1.1 passes between client and service.

    Proxies drop trailers. nginx (1.29) takes any interim response but 103 for the final one, and
    gives the final one to whoever comes next on the connection.
    """
    if any(sign in environ for sign in SIGNS):
        return False
    return not any(key.startswith(SIGN_PREFIX) for key in environ)


_FIXED_KEY = "werkzeug.proxy_fix.orig"
"""Where `ProxyFix` keeps what the environment was before it."""

_URL_KNOWN_KEY = "sluice.url_known"


def host_as_sent(environ: dict[str, Any]) -> str:
    """The `Host` of the request as it came in, whatever a proxy has told of it; empty if none."""
    sent: str | None = environ.get(_FIXED_KEY, environ).get("HTTP_HOST")
    return sent or ""


def knows_its_url(environ: dict[str, Any]) -> bool:
    """Whether scheme and host are those the client has used, as far as the request shows.

    They are where nothing stands between, and behind trusted proxies alone that tell them.
    """
    return bool(environ.get(_URL_KNOWN_KEY))


def is_forwarded(environ: dict[str, Any]) -> bool:
    """Whether the request came through a trusted proxy, and not past it."""
    return _FIXED_KEY in environ and "HTTP_X_FORWARDED_FOR" in environ


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


class ConnectionMiddleware:
    """Around the application: what a proxy tells before it, and the connection's fate after it.

    `X-Forwarded-` headers count from the addresses of `proxies` alone. A connection over a Unix
    socket has no address, and counts as a proxy's: only who may open the socket gets there.
    """

    def __init__(self, app: WSGIApplication, proxies: tuple[IPNetwork, ...]) -> None:
        self._app = app
        self._behind_proxy = ProxyFix(app, x_for=1, x_proto=1, x_host=1, x_prefix=1)
        self._proxies = proxies

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Pass the request on; no view needs to think of what it leaves unread of the body."""
        app = self._app
        # nginx (before 1.29.7) that is not told otherwise speaks HTTP/1.0, puts its own address of
        # the service into Host, and shows itself by nothing else.
        is_url_known = environ.get("SERVER_PROTOCOL") != "HTTP/1.0"
        if not came_directly(environ):
            is_trusted = self._trusts(environ.get("REMOTE_ADDR", ""))
            is_url_known = is_url_known and is_trusted and self._is_url_told(environ)
            app = self._behind_proxy if is_trusted else app
        environ[_URL_KNOWN_KEY] = is_url_known
        answer = app(environ, start_response)
        drain_or_close(environ, start_response)  # Nothing of the answer has been sent yet.
        return answer

    def _is_url_told(self, environ: dict[str, Any]) -> bool:
        headers = EnvironHeaders(environ)
        return _tells_url(headers) and self._came_by_trusted_alone(headers)

    def _came_by_trusted_alone(self, headers: Headers) -> bool:
        """Whether all that the request tells of who passed it on are trusted addresses.

        The first address is the client's. Some proxies add themselves to `Via` or `Forwarded`.
        """
        _client, *proxies = headers.get("X-Forwarded-For", "").split(",")
        others = max(headers.get(name, "").count(",") for name in ("Via", "Forwarded"))
        return others <= len(proxies) and all(self._trusts(hop.strip()) for hop in proxies)

    def _trusts(self, address: str) -> bool:
        if not address:
            return True
        try:
            found = ip_address(address)
        except ValueError:
            return False
        # A socket for both versions of IP shows 127.0.0.1 as ::ffff:127.0.0.1.
        found = getattr(found, "ipv4_mapped", None) or found
        return any(found in network for network in self._proxies)


def _tells_url(headers: Headers) -> bool:
    """Whether the nearest proxy tells scheme and host; AWS's load balancers leave Host as it was.

    A proxy that does not would put its own address of the service there, or a name of one word.
    """
    if not headers.get("X-Forwarded-Proto"):
        return False
    host = headers.get("Host", "")
    name = host.rpartition(":")[0] or host
    is_public_name = "." in name and not name.rpartition(".")[2].isdigit()
    return bool(headers.get("X-Forwarded-Host")) or is_public_name
