"""The addresses of clients, as limits count them."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address

NETWORK_BITS = 64
"""Whoever has an IPv6 address has as many as differ in the rest: homes and servers get at least a
/64 (RFC 6177)."""


@lru_cache(maxsize=1024)
def network_of(address: str) -> str:
    """The IPv4 address, or the network of the IPv6 address; what is neither stays as it is.

    An IPv4 address is the same one inside IPv6, and this machine stays itself ("::1").
    """
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    found = getattr(found, "ipv4_mapped", None) or found
    if isinstance(found, IPv6Address) and not found.is_loopback:
        found = IPv6Address(int(found) >> NETWORK_BITS << NETWORK_BITS)
    return str(found)
