"""The rules of webhooks."""

from __future__ import annotations

import base64
from datetime import timedelta

import pytest

from app.access.webhooks import (
    PAUSES,
    SECRET_BYTES,
    SECRET_PREFIX,
    SUBSCRIBABLE,
    EventType,
    check_url,
    is_public,
    new_secret,
    parse_events,
    pause_after,
)
from app.core.errors import InvalidRequest

PUBLIC = [
    "8.8.8.8",
    "100.63.255.255",
    "172.32.0.1",
    "2606:4700::1111",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",  # 8.8.8.8 behind NAT64.
    "2002:808:808::1",  # 8.8.8.8 by 6to4.
]

PRIVATE = [
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "192.0.0.192",
    "169.254.169.254",
    "100.64.0.1",
    "100.100.100.200",
    "168.63.129.16",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::a00:1",
    "2002:7f00:1::1",
    "2002:c0a8:101::1",
    "2001:0:7f00:1::",
    "2001:db8::1",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "fc00::1",
    "fd00:ec2::254",
    "ff02::1",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_allowed(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("address", PRIVATE)
def test_private_and_special_addresses_are_not(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "url",
    ["https://hooks.example/a?b=c", "http://hooks.example:8080", "https://[2606:4700::1]:8443/"],
)
def test_events_go_to_web_addresses_with_any_port(url: str) -> None:
    assert check_url(url).hostname


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hooks.example",
        "//hooks.example/",
        "ftp://hooks.example/",
        "file:///etc/passwd",
        "gopher://hooks.example/",
        "https://",
        "https:///path",
        "https://:443/",
        "https://ann:secret@hooks.example/",
        "https://ann@hooks.example/",
        "https://hooks.example:0/",
        "https://hooks.example:65536/",
        "https://hooks.example:x/",
        "https://[::1/",
        "https://hooks.example/a b",
        "https://hooks.example/\r\nHost: other",
        "https://hööks.example/",
        "https://hooks.example/" + "x" * 2000,
    ],
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(InvalidRequest):
        check_url(url)


def test_events_are_known_ones_each_once() -> None:
    assert parse_events(["video.ready", "upload.completed"]) == (
        EventType.UPLOAD_COMPLETED,
        EventType.VIDEO_READY,
    )
    assert parse_events(list(SUBSCRIBABLE)) == SUBSCRIBABLE
    bad: list[object] = [[], ["video"], ["webhook.test"], [1], ["video.ready"] * 2, [None], "x", {}]
    for names in bad:
        with pytest.raises(InvalidRequest):
            parse_events(names)


def test_it_is_tried_for_three_days_with_growing_pauses() -> None:
    pauses = [pause_after(attempts) for attempts in range(1, len(PAUSES) + 1)]
    assert pauses == sorted(PAUSES)
    assert pauses[0] == timedelta(seconds=5)
    assert timedelta(days=2.5) < sum(PAUSES, timedelta()) <= timedelta(days=3)
    assert pause_after(len(PAUSES) + 1) is None


def test_a_secret_is_written_as_the_specification_says() -> None:
    secret = new_secret()
    assert secret.startswith(SECRET_PREFIX)
    assert len(base64.b64decode(secret.removeprefix(SECRET_PREFIX))) == SECRET_BYTES
    assert secret != new_secret()
