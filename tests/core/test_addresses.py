"""What limits count as one client."""

import pytest

from app.core.addresses import network_of


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("::1", "::1"),
        ("unix:", "unix:"),
        ("", ""),
    ],
)
def test_an_ipv6_network_is_one_client(address: str, network: str) -> None:
    assert network_of(address) == network
