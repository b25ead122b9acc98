"""Parses numbers, words and folders of settings, and finds defaults that depend on the machine.

Parsers raise `ValueError` for invalid values. The message says which values are valid.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Collection
from decimal import Decimal
from email.errors import ObsoleteHeaderDefect
from email.message import EmailMessage
from email.policy import default as email_policy  # EmailMessage would import it in each fork.
from functools import cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from app.core.access import MEMBERS, Role
from app.core.numbers import parse_bytes
from app.core.ranges import MAX_BYTES

MAX_SECONDS = 100 * 365 * 24 * 3600
"""A hundred years, so that subtracting it always gives a valid date."""

_SECRET = re.compile("[A-Za-z0-9]{32,}")

_WHOLE_NUMBER = re.compile("[0-9]{1,30}")

_FRACTION = re.compile(r"[0-9]+\.[0-9]+")
"""A fraction of a byte: not a valid size."""

_TIME = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,9})?|[0-9]{1,3}e[0-9]{1,2}) ?([a-z]*)")

_UNIT_SECONDS = {
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hour", "hours"), 3600),
    **dict.fromkeys(("d", "day", "days"), 86_400),
    **dict.fromkeys(("w", "week", "weeks"), 604_800),
}

_SWITCH = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}

_EXTENSION = re.compile(r"\.?(?:\w|[+-])+")

_MAIL_ADDRESS = re.compile(r"[^@\s<>\"]+@[^@\s<>\"]+")


def default_workers() -> int:
    """The number of cores, but at least two."""
    return max(2, len(os.sched_getaffinity(0)))


def whole(least: int, most: int) -> Callable[[str], int]:
    """A parser of whole numbers from `least` to `most`."""

    def parse(text: str) -> int:
        digits = text.strip()
        value = int(digits) if _WHOLE_NUMBER.fullmatch(digits) else -1
        if not least <= value <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return value

    return parse


count = whole(0, MAX_BYTES)


def optional_count(text: str) -> int | None:
    """Like `count`; empty for None."""
    return count(text) if text.strip() else None


def sizes(least: int, most: int = MAX_BYTES) -> Callable[[str], int]:
    """A parser of sizes from `least` to `most` bytes, as in `20971520`, `20MiB` or `50GB`."""

    def parse(text: str) -> int:
        try:
            value = -1 if _FRACTION.fullmatch(text.strip()) else parse_bytes(text)
        except ValueError:
            value = -1
        if not least <= value <= most:
            raise ValueError(
                f"must be a size from {least} to {most} bytes, as in 20971520, 20MiB or 50GB"
            )
        return value

    return parse


def rate(text: str) -> float:
    """Bytes per second, 0 or more."""
    try:
        return float(sizes(0)(text))
    except ValueError:
        raise ValueError(
            f"must be 0 to {MAX_BYTES} bytes per second, as in 1024, 500KB or 1.5MB"
        ) from None


def seconds_within(least: float, most: float = MAX_SECONDS) -> Callable[[str], float]:
    """A parser of times from `least` to `most` seconds, as in `90`, `10min`, `2h` or `7d`."""

    def parse(text: str) -> float:
        found = _TIME.fullmatch(text.strip().lower())
        unit = _UNIT_SECONDS.get(found[2]) if found else None
        value = float(Decimal(found[1]) * unit) if found and unit else math.nan
        if not least <= value <= most:
            raise ValueError(
                f"must be a time from {least:g} to {most:.0f} seconds, as in 90, 10min, 2h or 7d"
            )
        return value

    return parse


def folder(text: str) -> Path:
    """The absolute path of a folder; `~` is the user's home."""
    if not text.strip() or "\0" in text:
        raise ValueError("must name a folder, as in /srv/sluice")
    if "://" in text or not (text[0] in "/~._" or text[0].isalnum()):
        raise ValueError(
            "is not a folder as in /srv/sluice; begin with ./ if it is really called that"
        )
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError:
        raise ValueError("begins with ~ and a user who is not known here") from None


def one_of(*words: str) -> Callable[[str], str]:
    """A case-insensitive parser of these words only."""

    def parse(text: str) -> str:
        word = text.strip().lower()
        if word not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return word

    return parse


def words_of(*words: str) -> Callable[[str], frozenset[str]]:
    """A case-insensitive parser of any of these words, separated by commas."""

    def parse(text: str) -> frozenset[str]:
        found = frozenset(word.strip().lower() for word in text.split(",") if word.strip())
        if not found <= {*words}:
            raise ValueError(f"must be {', '.join(words)}, one of them, or empty")
        return found

    return parse


def switch(text: str) -> bool:
    """Whether it is on."""
    value = _SWITCH.get(text.strip().lower())
    if value is None:
        raise ValueError("must be 1, true, yes or on, or else 0, false, no or off")
    return value


def extensions(text: str) -> frozenset[str]:
    """File name extensions, separated by commas, without their dots."""
    words = frozenset(word.strip().lower() for word in text.split(",") if word.strip())
    if any(not _EXTENSION.fullmatch(word) for word in words) or (text.strip() and not words):
        raise ValueError("must be extensions separated by commas, as in mp4,mov; empty for all")
    return frozenset(word.removeprefix(".") for word in words)


def link_secret(text: str) -> str:
    """Letters and digits, which need no quotes in an nginx configuration; may be empty."""
    if text and not _SECRET.fullmatch(text):
        raise ValueError("must be 32 letters and digits, or more")
    return text


def secret(text: str) -> str:
    """A secret of an OAuth client (RFC 6749, appendix A.2)."""
    if not (text.isascii() and text.isprintable()):
        raise ValueError("must be printable ASCII characters")
    return text


def joining(text: str) -> tuple[tuple[str, Role], ...]:
    """E-mail domains and groups, each with a role, as in "@example.org, films=editor"."""
    roles = {}
    for word in filter(None, map(str.strip, text.split(","))):
        name, role = word.rsplit("=", 1) if "=" in word else (word, Role.UPLOADER)
        name, role = name.strip(), role.strip().lower()
        if role not in MEMBERS or not name or not name.isprintable():
            raise ValueError(
                "must be domains and groups with roles, as in @example.org, films=editor; a role "
                f"is one of {', '.join(MEMBERS)}"
            )
        if name.startswith("@"):
            name = name.lower()
            if name[1:2] == "." or not _HOST_NAME.fullmatch(name[1:]):
                raise ValueError(f"{name!r} is not an e-mail domain, as in @example.org")
        roles[name] = Role(role)
    return tuple(roles.items())


@cache
def mail_sender(text: str) -> str:
    """The sender of mail, as in `Sluice <films@example.org>`.

    Cached, as every process parses the default: Python's parser is slow, and touches much memory.
    """
    address = _mail_address(text)
    if address is None or not (text.isprintable() and _MAIL_ADDRESS.fullmatch(address)):
        raise ValueError(
            "must be one e-mail address, as in films@example.org or Sluice <films@example.org>"
        )
    return text.strip()


def _mail_address(sender: str) -> str | None:
    """The address alone; None if there are several, or if it is not valid."""
    message = EmailMessage(email_policy)
    try:
        message["From"] = sender
        header = message["From"]
        (address,) = header.addresses
        is_right = all(isinstance(found, ObsoleteHeaderDefect) for found in header.defects)
        return str(address.addr_spec) if is_right else None
    except Exception:  # noqa: BLE001 - Python's parser fails in many ways, as with TypeError.
        return None


# ---- addresses -----------------------------------------------------------------------------------

# Parses settings that name servers, hosts and networks.
#
# Parsers raise `ValueError` for invalid values.


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
    """An address of this machine, or a name that resolves to one."""
    host = text.strip()
    try:
        ip_address(host[1:-1] if host.startswith("[") and host.endswith("]") else host)
    except ValueError:
        # A host that ends in a number is an address (WHATWG URL, "ends in a number checker"), so
        # "0" or "8000" would be an unintended address.
        is_name = _HOST.fullmatch(host) and len(host) <= 253
        if not is_name or host.rstrip(".").rpartition(".")[2].isdigit():
            raise ValueError(
                "must be an address or a host name, as in 127.0.0.1, ::1 or localhost; 0.0.0.0 and "
                ":: are all addresses of this machine"
            ) from None
    return host


def origins(text: str) -> frozenset[str]:
    """Origins, as in "https://a.example, https://b.example", or "*"."""
    words = text.lower().split(",")  # Browsers send them in lower case.
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


def mail_url(text: str) -> str:
    """The URL of a mail server; may be empty."""
    if text and _url_parts(text, {"smtp", "smtps"}) is None:
        raise ValueError("is not a URL such as smtps://name:password@mail.example")
    return text


def _url_parts(text: str, schemes: Collection[str]) -> SplitResult | None:
    """The parts of a URL; None unless it has one of the schemes, a host, and a valid port or none.

    Errors of `urlsplit` quote parts of the text, perhaps of a password: they are not raised.
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
        is_valid = parts.port != 0  # Raises if the port is not a number.
    except ValueError:  # As above.
        return False
    return is_valid and bool(parts.path.strip("/")) and not parts.netloc.endswith(":")


def database_server(text: str) -> str:
    """The URL of a PostgreSQL database, with the driver in use; may be empty.

    Without a host after the `@`, libpq finds the server: a socket, or the PG* variables.
    """
    scheme, separator, rest = text.partition("://")
    if text and not (separator and scheme in _POSTGRESQL and _names_database(text)):
        raise ValueError("is not a URL such as postgresql://user:password@host/name")
    return f"postgresql+psycopg://{rest}" if text else ""


def bucket_url(text: str) -> str:
    """A bucket and a folder in it, as in "s3://bucket/folder"; empty for the local disk."""
    if text and not _BUCKET.fullmatch(text):
        raise ValueError("is not a bucket such as s3://videos/sluice")
    return text.rstrip("/")


def server_url(text: str) -> str:
    """The URL of a server, without a path; may be empty."""
    if not text:
        return ""
    parts = _url_parts(text, {"http", "https"})
    if parts is None:
        raise ValueError("is not a URL such as https://s3.example:9000")
    if parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError("must have neither a path nor a password, as in https://s3.example:9000")
    return text.rstrip("/")


def public_url(text: str) -> str:
    """The URL at which people open this server, perhaps with a path; may be empty."""
    parts = _url_parts(text, {"http", "https"}) if text else None
    is_plain = parts and not (parts.query or parts.fragment or "@" in parts.netloc)
    if text and not (is_plain and text.isascii() and text.isprintable() and " " not in text):
        raise ValueError("is not a URL such as https://videos.example")
    return text.rstrip("/")


def region(text: str) -> str:
    """The region of an object store."""
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
    """An internal nginx location that ends in a slash; may be empty."""
    if text and not _LOCATION.fullmatch(text):
        raise ValueError("must be a path such as /protected/")
    return text


def issuer(text: str) -> str:
    """The issuer URL of an OpenID provider; may be empty.

    An attacker who could modify its responses could impersonate any person here, so it must use
    HTTPS, except on this machine.
    """
    if not text:
        return ""
    parts = _url_parts(text, {"http", "https"})
    is_safe = parts and (parts.scheme == "https" or is_local(parts.hostname or ""))
    if parts is None or not is_safe or parts.query or parts.fragment or not text.isprintable():
        raise ValueError("is not a URL such as https://login.example.org")
    return text


def is_local(host: str) -> bool:
    """Whether the address is reachable only from this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def local_url(host: str, port: int) -> str:
    """A URL that opens, on this machine, a server that listens on that address."""
    name = _ANY_ADDRESS.get(host.strip("[]"), host.strip("[]"))
    return f"http://{f'[{name}]' if ':' in name else name}:{port}"


def port_number(text: str) -> int:
    """A TCP port."""
    return whole(1, 65535)(text)
