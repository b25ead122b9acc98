"""Parses settings that name servers, hosts and networks.

Parsers raise `ValueError` for values that cannot be used.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from urllib.parse import SplitResult, urlsplit

from app.settings.values import whole

IPNetwork = IPv4Network | IPv6Network

LOCAL_NAMES = frozenset({"localhost", ".localhost", "127.0.0.1"})
"""Host names that a browser on this machine uses for it; [::1] counts as localhost."""

_LOCATION = re.compile("/([A-Za-z0-9_~-][A-Za-z0-9._~-]*/)+")

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://([\w.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")

_HOST_NAME = re.compile(r"\.?[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})*")

_BUCKET = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._-]*[A-Za-z0-9_-])*/?")
"""A bucket's name as AWS allows it; a prefix of characters that need no quoting in URLs."""

_REGION = re.compile("[a-z0-9-]{1,64}")

_POSTGRESQL = frozenset({"postgresql", "postgres", "postgresql+psycopg"})

_HOST = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9_-]{1,63}(?<!-))*\.?")

_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def listening_address(text: str) -> str:
    """An address of this machine, or a name that leads to one."""
    host = text.strip()
    try:
        ip_address(host[1:-1] if host.startswith("[") and host.endswith("]") else host)
    except ValueError:
        # What ends in a number is an address (WHATWG URL, "ends in a number checker"), so "0" or
        # "8000" would be one that nobody meant.
        is_name = _HOST.fullmatch(host) and len(host) <= 253
        if not is_name or host.rstrip(".").rpartition(".")[2].isdigit():
            raise ValueError(
                "must be an address or a host name, as in 127.0.0.1, ::1 or localhost; 0.0.0.0 and "
                ":: are all addresses of this machine"
            ) from None
    return host


def origins(text: str) -> frozenset[str]:
    """Origins, as in "https://a.example, https://b.example", or "*"."""
    words = text.lower().split(",")  # As browsers write them.
    origins = frozenset(word.strip().rstrip("/") for word in words if word.strip())
    for origin in origins - {"*"}:
        if not _ORIGIN.fullmatch(origin):
            raise ValueError(f"{origin!r} is not an origin, as in https://example.org")
    return origins


def host_names(text: str) -> frozenset[str]:
    """Host names, as in "videos.example, .example"."""
    names = frozenset(word.strip() for word in text.lower().split(",") if word.strip())
    for name in names:
        if not _HOST_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a host name, as in videos.example")
    return names


def domains(text: str) -> frozenset[str]:
    """Domains of e-mail addresses, as in "example.org, example.com"."""
    found = host_names(text)
    if any(name.startswith(".") for name in found):
        raise ValueError("a domain does not begin with a dot, as in example.org")
    return found


def mail_url(text: str) -> str:
    """The URL of a mail server, or nothing."""
    if text and _url_parts(text, {"smtp", "smtps"}) is None:
        raise ValueError("is not a URL such as smtps://name:password@mail.example")
    return text


def _url_parts(text: str, schemes: Collection[str]) -> SplitResult | None:
    """The parts of a URL; None unless it has one of the schemes, a host, and a valid port or none.

    The errors of `urlsplit` quote some of the text, perhaps of a password: they are not raised.
    """
    try:
        parts = urlsplit(text)
        is_valid = parts.scheme in schemes and parts.hostname and parts.port != 0
    except ValueError:
        return None
    return parts if is_valid else None


def _names_database(url: str) -> bool:
    try:
        parts = urlsplit(url)
        is_valid = parts.port != 0  # A port may be no number.
    except ValueError:  # As above.
        return False
    return is_valid and bool(parts.path.strip("/")) and not parts.netloc.endswith(":")


def database_server(text: str) -> str:
    """The URL of a PostgreSQL database with the driver that is used, or nothing.

    Without a host after the `@`, libpq finds the server: a socket, or the PG* variables.
    """
    scheme, separator, rest = text.partition("://")
    if text and not (separator and scheme in _POSTGRESQL and _names_database(text)):
        raise ValueError("is not a URL such as postgresql://user:password@host/name")
    return f"postgresql+psycopg://{rest}" if text else ""


def bucket_url(text: str) -> str:
    """A bucket with a folder in it, as in "s3://bucket/folder", or nothing for the local disk."""
    if text and not _BUCKET.fullmatch(text):
        raise ValueError("is not a bucket such as s3://videos/sluice")
    return text.rstrip("/")


def server_url(text: str) -> str:
    """The URL of a server, without a path, or nothing."""
    if not text:
        return ""
    parts = _url_parts(text, {"http", "https"})
    if parts is None:
        raise ValueError("is not a URL such as https://s3.example:9000")
    if parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError("must have neither a path nor a password, as in https://s3.example:9000")
    return text.rstrip("/")


def public_url(text: str) -> str:
    """The URL at which people open this server, perhaps below a path, or nothing."""
    parts = _url_parts(text, {"http", "https"}) if text else None
    is_plain = parts and not (parts.query or parts.fragment or "@" in parts.netloc)
    if text and not (is_plain and text.isascii() and text.isprintable() and " " not in text):
        raise ValueError("is not a URL such as https://videos.example")
    return text.rstrip("/")


def region(text: str) -> str:
    """The name of a region of an object store."""
    if not _REGION.fullmatch(text):
        raise ValueError("is not a region such as eu-central-1")
    return text


def networks(text: str) -> tuple[IPNetwork, ...]:
    """Addresses and networks, as in "127.0.0.1, 10.0.0.0/8"."""
    return tuple(_network(word.strip()) for word in text.split(",") if word.strip())


def _network(word: str) -> IPNetwork:
    try:
        return ip_network(word)
    except ValueError:
        pass
    try:
        meant = f"; the network is {ip_network(word, strict=False)}"
    except ValueError:
        meant = ", as in 127.0.0.1 or 10.0.0.0/8"
    raise ValueError(f"{word!r} is neither an address nor a network{meant}")


def internal_location(text: str) -> str:
    """A path of nginx that ends in a slash, or nothing."""
    if text and not _LOCATION.fullmatch(text):
        raise ValueError("must be a path such as /protected/")
    return text


def issuer(text: str) -> str:
    """The URL by which an OpenID provider calls itself, or nothing.

    Whoever could change what it says could be anybody here, so it must be HTTPS, except on this
    machine.
    """
    if not text:
        return ""
    parts = _url_parts(text, {"http", "https"})
    is_safe = parts and (parts.scheme == "https" or is_local(parts.hostname or ""))
    if parts is None or not is_safe or parts.query or parts.fragment or not text.isprintable():
        raise ValueError("is not a URL such as https://login.example.org")
    return text


def is_local(host: str) -> bool:
    """Whether only this machine reaches that address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def local_url(host: str, port: int) -> str:
    """A URL that opens, on this machine, a server that listens there."""
    name = _ANY_ADDRESS.get(host.strip("[]"), host.strip("[]"))
    return f"http://{f'[{name}]' if ':' in name else name}:{port}"


def port_number(text: str) -> int:
    """A TCP port."""
    return whole(1, 65535)(text)
