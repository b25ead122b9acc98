"""So many requests a minute, and when the next one may come."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.access.senders import RequestRate
from app.core.access import Caller, CallerKind
from app.core.errors import TooManyRequests
from app.db.minute_counts import MinuteCounts
from tests.web.application import application

LIMIT = 3
SURELY_TOO_MANY = 2 * LIMIT + 1
"""Even if a new minute begins on the way."""


@pytest.mark.parametrize("access", ["open", "accounts"])
def test_requests_beyond_the_limit_are_told_when_to_come_again(tmp_path: Path, access: str) -> None:
    with application(tmp_path, access=access, requests_per_minute=LIMIT) as app:
        client = app.test_client()
        answers = [client.get("/api/videos") for _ in range(SURELY_TOO_MANY)]
        refused = [answer for answer in answers if answer.status_code == 429]
        assert refused
        assert refused[0].get_json()["code"] == "too_many_requests"
        assert 1 <= int(refused[0].headers["Retry-After"]) <= 60
        assert client.get("/api/videos", environ_base={"REMOTE_ADDR": "10.1.1.1"}).status_code < 429
        answers = [client.get("/healthz") for _ in range(SURELY_TOO_MANY)]
        assert {answer.status_code for answer in answers} == {200}


def test_addresses_of_one_ipv6_network_count_together(tmp_path: Path) -> None:
    with application(tmp_path, requests_per_minute=LIMIT) as app:
        client = app.test_client()
        addresses = [f"2001:db8::{number:x}" for number in range(SURELY_TOO_MANY)]
        answers = [
            client.get("/api/videos", environ_base={"REMOTE_ADDR": address})
            for address in addresses
        ]
        assert 429 in {answer.status_code for answer in answers}


def test_links_that_do_not_exist_cannot_be_guessed_without_end(tmp_path: Path) -> None:
    with application(tmp_path, access="accounts", requests_per_minute=LIMIT) as app:
        client = app.test_client()
        paths = [f"/u/{number:022}/api/uploads" for number in range(SURELY_TOO_MANY)]
        answers = [client.get(path).status_code for path in paths]
        assert set(answers) == {404, 429}


@pytest.mark.parametrize("kind", [CallerKind.UPLOAD_LINK, CallerKind.SHARE_LINK])
def test_who_uses_a_link_is_counted_by_address_there(tmp_path: Path, kind: CallerKind) -> None:
    rate = RequestRate(MinuteCounts(tmp_path / "counts", lambda: 0), per_minute=LIMIT)

    def ask(number: int, address: str, link: str = "a") -> None:
        """As a program without cookies, which is another visitor each time."""
        rate.check(Caller(kind=kind, id=link, visitor=f"visitor-{number}"), address)

    for number in range(LIMIT):
        ask(number, f"2001:db8::{number}")
    with pytest.raises(TooManyRequests):
        ask(LIMIT, "2001:db8::ffff")
    ask(LIMIT, "2001:db8:0:1::1")
    ask(LIMIT, "2001:db8::1", link="b")


def test_without_accounts_nobody_counts(tmp_path: Path) -> None:
    with application(tmp_path) as app:
        client = app.test_client()
        for _ in range(SURELY_TOO_MANY):
            assert client.get("/api/videos").status_code == 200
        assert not (tmp_path / "data" / "minute-counts").exists()
