"""The connection of a request: headers of proxies, and whether it is kept open."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING, Any

from flask import current_app, request, url_for
from werkzeug.datastructures import EnvironHeaders
from werkzeug.middleware.proxy_fix import ProxyFix

from app.db.this_node import ThisNode
from app.http.context import current_services
from app.ingest.connection import UPGRADED_KEY, close_after_answer, drain_or_close
from app.settings.values import IPNetwork

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication


SIGNS = frozenset({"HTTP_VIA", "HTTP_FORWARDED", "HTTP_X_REAL_IP"})
SIGN_PREFIX = "HTTP_X_FORWARDED_"
"""A request with one of these headers, or with one that begins so, came through a proxy."""


def came_directly(environ: dict[str, Any]) -> bool:
    """Whether there is no sign of a proxy, so that client and service can use all of HTTP/1.1.

    Proxies drop trailers. nginx (1.29) takes any interim response but 103 for the final one, and
    delivers the final one to the next request on the connection.
    """
    if not SIGNS.isdisjoint(environ):
        return False
    for key in environ:  # noqa: SIM110 - a generator would be called for each of thirty keys
        if key.startswith(SIGN_PREFIX):
            return False
    return True


_FIXED_KEY = "werkzeug.proxy_fix.orig"
"""Key under which `ProxyFix` keeps the original environment."""

_URL_KNOWN_KEY = "sluice.url_known"


def host_as_sent(environ: dict[str, Any]) -> str:
    """The `Host` header as received, ignoring X-Forwarded-Host; empty if there is none."""
    sent: str | None = environ.get(_FIXED_KEY, environ).get("HTTP_HOST")
    return sent or ""


def knows_its_url(environ: dict[str, Any]) -> bool:
    """Whether scheme and host are those the client used, as far as the request shows.

    True for direct connections, and behind trusted proxies that forward both.
    """
    return bool(environ.get(_URL_KNOWN_KEY))


def is_forwarded(environ: dict[str, Any]) -> bool:
    """Whether the request came through a trusted proxy."""
    return _FIXED_KEY in environ and "HTTP_X_FORWARDED_FOR" in environ


def absolute_url(endpoint: str, **values: str) -> str:
    """The URL of an endpoint for people to share, below `SLUICE_PUBLIC_URL` if that is set.

    Otherwise it has the request's scheme and host, if they are known: the client chooses the host,
    so such a URL must not be sent by mail.
    """
    if public := current_services().settings.public_url:
        path = current_app.url_map.bind("", "/").build(endpoint, values)
        return f"{public}{path}"
    return url_for(endpoint, **values, _external=_is_absolute_possible())


def location_of(endpoint: str, upload_id: str) -> str:
    """The URL of an upload at an endpoint for a `Location`, whole or as a path.

    Some clients accept only absolute URLs; a path is correct behind any proxy. Both include the
    prefix that a trusted proxy sends; the absolute URL also uses its scheme and host. If these
    cannot be part of a URL, the result is a path.
    """
    choice, environ = current_services().settings.location, request.environ
    # A client with its key in the URL, as in http://:KEY@host/tus/, keeps it only for a path.
    has_key_in_url = environ.get("HTTP_AUTHORIZATION", "")[:6].lower() == "basic "
    is_sure = choice == "auto" and knows_its_url(environ) and not has_key_in_url
    is_whole = (choice == "url" or is_sure) and _is_absolute_possible()
    return url_for(endpoint, upload_id=upload_id, _external=is_whole)


def _is_absolute_possible() -> bool:
    return request.host != "" and request.scheme in {"http", "https"}


class ConnectionMiddleware:
    """Applies the headers of trusted proxies, and decides whether the connection stays open.

    `X-Forwarded-` headers are trusted from the addresses of `proxies` alone. A connection over a
    Unix socket has no address and is trusted too: permissions on the socket protect it. Limits, the
    audit log and the access log then see the client's address in `REMOTE_ADDR`.
    """

    def __init__(
        self, app: WSGIApplication, proxies: tuple[IPNetwork, ...], node: ThisNode
    ) -> None:
        self._app = app
        self._behind_proxy = ProxyFix(app, x_for=0, x_proto=1, x_host=1, x_prefix=1)
        self._proxies = proxies
        self._node = node

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Run the application; its views may leave a body unread."""
        app = self._app
        # By default nginx (before 1.29.7) uses HTTP/1.0, puts its own name for the service into
        # Host, and leaves no other trace.
        is_url_known = environ.get("SERVER_PROTOCOL") != "HTTP/1.0"
        if not came_directly(environ):
            is_trusted = self._trusts(environ.get("REMOTE_ADDR", ""))
            is_url_known = is_url_known and is_trusted and self._is_url_forwarded(environ)
            if is_trusted:
                app = self._behind_proxy
                environ["REMOTE_ADDR"] = self._client(environ)
        environ[_URL_KNOWN_KEY] = is_url_known
        answer = app(environ, start_response)
        # The client's next request should go to another node, or cannot follow at all.
        if self._node.is_leaving or UPGRADED_KEY in environ:
            close_after_answer(start_response)
        drain_or_close(environ, start_response)  # No part of the response has been sent yet.
        return answer

    def _client(self, environ: dict[str, Any]) -> str:
        """The last address in `X-Forwarded-For` that is not a trusted proxy's.

        Each proxy appends the address that it was connected from. Anything left of the rightmost
        address that is not trusted may be forged by the client.
        """
        client: str = environ.get("REMOTE_ADDR", "")
        for hop in reversed(environ.get("HTTP_X_FORWARDED_FOR", "").split(",")):
            address = _address_in(hop)
            if address is None or not self._trusts(client):
                break
            client = str(address)
        return client

    def _is_url_forwarded(self, environ: dict[str, Any]) -> bool:
        """Whether the nearest proxy forwards scheme and host, and each proxy named is trusted.

        AWS load balancers keep Host unchanged. A proxy that changes it replaces it with an address
        or a one-word name. Some proxies add themselves to `Via` or `Forwarded`.
        """
        headers = EnvironHeaders(environ)
        host = headers.get("Host", "")
        name = host.rpartition(":")[0] or host
        is_public_name = "." in name and not name.rpartition(".")[2].isdigit()
        is_host_known = is_public_name or bool(headers.get("X-Forwarded-Host"))
        _client, *proxies = headers.get("X-Forwarded-For", "").split(",")
        others = max(headers.get(name, "").count(",") for name in ("Via", "Forwarded"))
        is_trusted = others <= len(proxies) and all(self._trusts(hop) for hop in proxies)
        return bool(headers.get("X-Forwarded-Proto")) and is_host_known and is_trusted

    def _trusts(self, address: str) -> bool:
        if not address:
            return True
        found = _address_in(address)
        return found is not None and any(found in network for network in self._proxies)


def _address_in(hop: str) -> IPv4Address | IPv6Address | None:
    """The address in one item of `X-Forwarded-For`; some proxies add a port, as in "[::1]:80"."""
    text = hop.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ip_address(text)
    except ValueError:
        return None
    # A dual-stack socket shows 127.0.0.1 as ::ffff:127.0.0.1.
    return getattr(found, "ipv4_mapped", None) or found
