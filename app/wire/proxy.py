"""What a proxy in front tells of the client: scheme, host, prefix and address."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from werkzeug.datastructures import Headers
from werkzeug.middleware.proxy_fix import ProxyFix

from app.settings import IPNetwork

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication


SIGNS = ("Via", "Forwarded", "X-Forwarded-For")
"""A request with one of these headers came through a proxy."""


def came_directly(headers: Headers) -> bool:
    """Whether no proxy shows itself, so that all of HTTP/1.1 passes between client and service.

    Proxies drop trailers. nginx (1.29) takes any interim response but 103 for the final one, and
    gives the final one to whoever comes next on the connection.
    """
    return not any(name in headers for name in SIGNS)


_FIXED_KEY = "werkzeug.proxy_fix.orig"
"""Where `ProxyFix` keeps what the environment was before it."""


def host_as_sent(environ: dict[str, Any]) -> str:
    """The `Host` of the request as it came in, whatever a proxy has told of it; empty if none."""
    sent: str | None = environ.get(_FIXED_KEY, environ).get("HTTP_HOST")
    return sent or ""


def is_forwarded(environ: dict[str, Any]) -> bool:
    """Whether the request came through a trusted proxy, and not past it."""
    return _FIXED_KEY in environ and "HTTP_X_FORWARDED_FOR" in environ


class TrustedProxies:
    """Middleware that heeds `X-Forwarded-` headers of known addresses alone.

    A connection over a Unix socket has no address: only who may open the socket gets there.
    """

    def __init__(self, app: WSGIApplication, networks: tuple[IPNetwork, ...]) -> None:
        self._app = app
        self._behind_proxy = ProxyFix(app, x_for=1, x_proto=1, x_host=1, x_prefix=1)
        self._networks = networks

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Pass the request on."""
        is_trusted = self._trusts(environ.get("REMOTE_ADDR", ""))
        return (self._behind_proxy if is_trusted else self._app)(environ, start_response)

    def _trusts(self, address: str) -> bool:
        if not address:
            return True
        try:
            found = ip_address(address)
        except ValueError:
            return False
        # A socket for both versions of IP shows 127.0.0.1 as ::ffff:127.0.0.1.
        found = getattr(found, "ipv4_mapped", None) or found
        return any(found in network for network in self._networks)
