"""Webhooks: what is told, where it may be sent, and when it is tried again. Pure."""

from __future__ import annotations

import base64
import secrets
from datetime import timedelta
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import SplitResult, urlsplit

from app.core.errors import InvalidRequest

MAX_URL_CHARACTERS = 2000

SECRET_PREFIX = "whsec_"
SECRET_BYTES = 32
"""The Standard Webhooks specification allows 24 to 64."""

KEPT = timedelta(days=30)
"""How long events and their deliveries are kept."""

PAUSES = (
    timedelta(seconds=5),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=2),
    timedelta(hours=5),
    timedelta(hours=10),
    timedelta(hours=14),
    timedelta(hours=20),
    timedelta(hours=20),
)
"""Between the attempts of a delivery, three days in all; about as Standard Webhooks recommends."""


class EventType(StrEnum):
    """What happened; receivers rely on these words."""

    UPLOAD_COMPLETED = "upload.completed"
    """All bytes are there, and the video can be downloaded."""
    UPLOAD_CANCELLED = "upload.cancelled"
    UPLOAD_EXPIRED = "upload.expired"
    VIDEO_READY = "video.ready"
    """Everything that players need is made."""
    VIDEO_FAILED = "video.failed"
    """It cannot be played; it can still be downloaded."""
    VIDEO_DELETED = "video.deleted"
    TEST = "webhook.test"
    """Sent when somebody asks for it."""


SUBSCRIBABLE = tuple(event for event in EventType if event is not EventType.TEST)


class DeliveryState(StrEnum):
    """Where one event for one webhook stands."""

    WAITING = "waiting"
    SENDING = "sending"
    DELIVERED = "delivered"
    FAILED = "failed"
    """It was tried for three days."""


UNFINISHED = (DeliveryState.WAITING, DeliveryState.SENDING)


def pause_after(attempts: int) -> timedelta | None:
    """How long to wait after so many failed attempts; None if there is no further one."""
    return PAUSES[attempts - 1] if attempts <= len(PAUSES) else None


def new_secret() -> str:
    """A random key for signatures, as Standard Webhooks writes it."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def check_url(text: str) -> SplitResult:
    """The parts of a URL that events may be sent to; raises `InvalidRequest`."""
    if len(text) > MAX_URL_CHARACTERS or not (text.isascii() and text.isprintable()):
        raise InvalidRequest(f"The URL must be ASCII, at most {MAX_URL_CHARACTERS} characters.")
    try:
        parts, is_spaced = urlsplit(text), " " in text
        is_complete = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError as error:
        raise InvalidRequest("The URL is malformed.") from error
    if not is_complete or is_spaced:
        raise InvalidRequest("The URL must begin with https:// or http:// and a host name.")
    if "@" in parts.netloc:
        raise InvalidRequest("The URL must not contain a user name or password.")
    return parts


def parse_events(names: object) -> tuple[EventType, ...]:
    """The events that a list names; raises `InvalidRequest`."""
    names = names if isinstance(names, list) else []
    wanted = {name for name in names if isinstance(name, str)}
    if not names or len(wanted) != len(names) or not wanted <= {*SUBSCRIBABLE}:
        known = ", ".join(SUBSCRIBABLE)
        raise InvalidRequest(f"The events must be one or more of {known}, each once.")
    return tuple(event for event in SUBSCRIBABLE if event in wanted)


_NAT64 = ip_network("64:ff9b::/96")

_NOT_PUBLIC = (
    ip_network("192.0.0.0/24"),  # For protocols; Oracle's services for its machines.
    ip_network("192.88.99.0/24"),  # Relays of 6to4, which are no more.
    ip_network("168.63.129.16/32"),  # Azure's own services for its machines.
    ip_network("64:ff9b:1::/48"),  # Translated to IPv4 addresses that only the network knows.
    ip_network("::/96"),  # IPv4 addresses as IPv6 once wrote them.
)


def is_public(text: str) -> bool:
    """Whether an IP address belongs to the internet at large.

    An IPv6 address that stands for an IPv4 one is judged by that.
    """
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        address = _inside(address) or address
    is_special = address.is_multicast or address.is_reserved or address.is_unspecified
    is_special = is_special or getattr(address, "is_site_local", False)
    if is_special or any(address in network for network in _NOT_PUBLIC):
        return False
    return address.is_global


def _inside(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 one is mapped or translated to (RFC 4291, 3056 and 6052)."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour
