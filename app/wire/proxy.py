"""What a proxy in front tells of the client: scheme, host, prefix and address."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from werkzeug.middleware.proxy_fix import ProxyFix

from app.settings import IPNetwork

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication


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
