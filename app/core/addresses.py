"""Client addresses and networks, for limits."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

NETWORK_BITS = 64
"""Prefix length by which IPv6 clients are counted: homes and servers get at least a /64 (RFC 6177),
so one client may use any address in it."""

SITE_BITS = 48
"""The largest IPv6 network that one customer usually gets (RFC 6177)."""


@lru_cache(maxsize=1024)
def network_of(address: str) -> str:
    """The IPv4 address, or the network of the IPv6 address; other text is returned unchanged.

    An IPv4-mapped IPv6 address counts as the IPv4 address, and "::1" stays "::1".
    """
    found = _parsed(address)
    if isinstance(found, IPv6Address) and not found.is_loopback:
        return _prefix(found, NETWORK_BITS)
    return address if found is None else str(found)


def site_of(address: str) -> str | None:
    """The /48 of an IPv6 address, as in "2001:db8:1::/48"; None for any other address."""
    found = _parsed(address)
    if not isinstance(found, IPv6Address) or found.is_loopback:
        return None
    return f"{_prefix(found, SITE_BITS)}/{SITE_BITS}"


def is_loopback(address: str) -> bool:
    """Whether it is an address of this machine, or none: a proxy may not name its clients."""
    found = _parsed(address)
    return found is None or found.is_loopback


def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def _prefix(address: IPv6Address, bits: int) -> str:
    rest = address.max_prefixlen - bits
    return str(IPv6Address(int(address) >> rest << rest))
