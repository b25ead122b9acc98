"""How those who come through an upload link are told apart, and that nobody becomes many."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.access.attempts import AttemptRecords, LinkPasswords, PasswordChecks
from app.access.link_visitors import VISITOR_COOKIE, VISITOR_TIME, LinkVisitors
from app.access.passwords import Passwords
from app.core.access import Caller
from app.core.errors import TooManyRequests
from app.db.minute_counts import MinuteCounts
from app.run.factory import create_app
from tests.access.world import CHEAP
from tests.links.link_requests import HTML, MakeLink, told

PER_MINUTE = 2
ADDRESS = "2001:db8::1"
SAME_NETWORK = "2001:db8::2"
OTHER_NETWORK = "2001:db8:0:1::1"


class Clock:
    """Stands still until it is set."""

    now = datetime(2030, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def seconds(self) -> float:
        return self.now.timestamp()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def visitors(app: Flask, clock: Clock, tmp_path: Path) -> LinkVisitors:
    """As one process of the server has them, with few new ones a minute."""
    services = app.extensions["sluice"]
    passwords = Passwords(CHEAP, slow_seconds=0)
    attempts = AttemptRecords(services.database)
    return LinkVisitors(
        replace(services.context, clock=clock),
        services.identity.signing,
        LinkPasswords(passwords, PasswordChecks(passwords, attempts, clock=clock)),
        MinuteCounts(tmp_path / "counts", clock.seconds),
        new_per_minute=PER_MINUTE,
    )


def caller(visitors: LinkVisitors, code: str, cookie: str, address: str = ADDRESS) -> Caller:
    return visitors.caller(code, cookies=f"{VISITOR_COOKIE}={cookie}", address=address)


def code_of(link: dict[str, str]) -> str:
    return link["path"].removeprefix("/u/")


def test_a_cookie_of_ours_tells_a_visitor_apart(
    visitors: LinkVisitors, make_link: MakeLink
) -> None:
    code = code_of(make_link())
    link = visitors.visited(code)
    ann, bob = (visitors.new_visitor(link, address=ADDRESS) for _ in range(2))
    assert caller(visitors, code, ann.cookie).visitor == ann.id != bob.id
    assert caller(visitors, code, ann.cookie, OTHER_NETWORK).visitor == ann.id
    assert not caller(visitors, code, ann.cookie).is_crowd


def test_whoever_makes_up_cookies_stays_one_visitor(
    visitors: LinkVisitors, make_link: MakeLink
) -> None:
    code, other_code = code_of(make_link()), code_of(make_link())
    ann = visitors.new_visitor(visitors.visited(code), address=ADDRESS)
    of_other_link = visitors.new_visitor(visitors.visited(other_code), address=ADDRESS)
    made_up = [of_other_link.cookie, ann.cookie[:-2], f"x{ann.cookie}", ann.id, "A" * 22, ""]
    callers = [caller(visitors, code, cookie) for cookie in made_up]
    program = visitors.caller(code, address=SAME_NETWORK)
    assert {found.sender for found in callers} == {program.sender}
    assert all(found.is_crowd for found in callers)


def test_a_cookie_of_ours_ends(visitors: LinkVisitors, clock: Clock, make_link: MakeLink) -> None:
    code = code_of(make_link())
    ann = visitors.new_visitor(visitors.visited(code), address=ADDRESS)
    clock.now += VISITOR_TIME
    assert caller(visitors, code, ann.cookie).is_crowd


def test_one_network_gets_so_many_visitors_a_minute(
    visitors: LinkVisitors, clock: Clock, make_link: MakeLink
) -> None:
    first, second = (visitors.visited(code_of(make_link())) for _ in range(2))
    for _ in range(PER_MINUTE):
        visitors.new_visitor(first, address=ADDRESS)
    with pytest.raises(TooManyRequests) as refused:
        visitors.new_visitor(first, address=SAME_NETWORK)
    wait_seconds = refused.value.retry_after_seconds or 0
    visitors.new_visitor(first, address=OTHER_NETWORK)
    visitors.new_visitor(second, address=ADDRESS)
    clock.now += timedelta(seconds=wait_seconds)
    visitors.new_visitor(first, address=ADDRESS)


@pytest.fixture
def party(app: Flask, visitors: LinkVisitors) -> Flask:
    """The server of those visitors."""
    services = app.extensions["sluice"]
    return create_app(
        replace(services, identity=replace(services.identity, link_visitors=visitors))
    )


def test_the_page_opens_for_more_guests_than_a_network_gets_cookies(
    party: Flask, make_link: MakeLink
) -> None:
    path = make_link()["path"]
    guest = party.test_client(use_cookies=False)
    assert [guest.head(path, headers=HTML).status_code for _ in range(PER_MINUTE + 1)] == [200] * 3
    answers = [guest.get(path, headers=HTML) for _ in range(PER_MINUTE + 1)]
    assert [answer.status_code for answer in answers] == [200] * 3
    assert ["Set-Cookie" in answer.headers for answer in answers] == [True, True, False]
    sending = {"name": "a.mp4", "size": 10}
    assert guest.post(f"{path}/api/uploads", json=sending).status_code == 201


def test_a_guest_who_has_to_wait_is_not_asked_for_the_password_again(
    party: Flask, clock: Clock, make_link: MakeLink
) -> None:
    path = make_link(password="open sesame", asks_name=True)["path"]
    answer = {"password": "open sesame", "name": "Ada"}
    for _ in range(PER_MINUTE):
        assert party.test_client().post(path, data=answer, headers=HTML).status_code == 303
    guest = party.test_client()
    refused = guest.post(path, data=answer, headers=HTML)
    assert (refused.status_code, "new visitors a minute" in refused.text) == (429, True)
    assert "Password" not in refused.text
    clock.now += timedelta(minutes=1)
    assert guest.post(path, data={"name": "Ada"}, headers=HTML).status_code == 303
    assert "You send as Ada" in guest.get(path, headers=HTML).text


def test_a_wrong_name_does_not_lose_the_password(party: Flask, make_link: MakeLink) -> None:
    path = make_link(password="open sesame", asks_name=True)["path"]
    guest = party.test_client()
    nameless = {"password": "open sesame", "name": " "}
    for answer in (nameless, *[{"name": " "}] * PER_MINUTE):
        assert guest.post(path, data=answer, headers=HTML).status_code == 400
    assert guest.post(path, data={"name": "Ada"}, headers=HTML).status_code == 303


def test_the_page_gives_whoever_comes_with_a_made_up_cookie_one_of_ours(
    stranger: FlaskClient, make_link: MakeLink
) -> None:
    path = make_link()["path"]
    stranger.set_cookie(VISITOR_COOKIE, "A" * 22, path=path)
    new = {"name": "a.mp4", "size": 100, "fingerprint": "same"}
    stranger.post(f"{path}/api/uploads", json=new)
    assert told(stranger.get(f"{path}/api/uploads"))["uploads"] == []
    assert VISITOR_COOKIE in stranger.get(path, headers=HTML).headers["Set-Cookie"]
    stranger.post(f"{path}/api/uploads", json=new)
    assert len(told(stranger.get(f"{path}/api/uploads"))["uploads"]) == 1
    assert "Set-Cookie" not in stranger.get(path, headers=HTML).headers
