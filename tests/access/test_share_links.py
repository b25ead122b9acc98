"""The rules of share links: visits are counted, tickets end, and neither can be forged."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from app.access.attempts import OF_NETWORK, AttemptRecords, LinkPasswords, PasswordChecks
from app.access.passwords import Passwords
from app.access.recent import RECENT_SECONDS
from app.access.share_links import (
    MAX_VIEWS,
    TICKET_SECONDS,
    VISIT_TIME,
    ShareLink,
    ShareLinks,
    ShareTerms,
    terms_of,
)
from app.access.signing import Signing, Tickets
from app.core.access import FIRST_PROJECT, Action, Role, scope_of
from app.core.errors import (
    InvalidField,
    InvalidRequest,
    LinkClosed,
    LinkNotFound,
    NotAllowed,
    ServerBusy,
    TooManyAttempts,
    UploadError,
    UploadNotFound,
)
from app.core.upload import Upload
from app.db.nodes import SharedValues
from app.records.uploads import UploadRecords
from tests.access.world import CHEAP, World
from tests.postgresql import ON_BOTH_DATABASES
from tests.records.making import new_upload

ADDRESS = "203.0.113.7"

Share = Callable[..., ShareLink]


@pytest.fixture
def links(world: World) -> ShareLinks:
    return links_over(world)


def links_over(world: World) -> ShareLinks:
    """What one process of a server has."""
    return world.new_process(Passwords(CHEAP, slow_seconds=0)).share_links


@pytest.fixture
def share(world: World, links: ShareLinks) -> Share:
    """Makes a link to a new video."""

    def make(**terms: Any) -> ShareLink:
        return links.make(world.operator, [video(world)], ShareTerms(**terms))

    return make


def video(world: World, owner: str = FIRST_PROJECT) -> Upload:
    upload = new_upload(owner=owner)
    return UploadRecords(world.database).add(upload)[0]


def assert_raises(error: type[UploadError], call: Callable[[], object]) -> str:
    """What the error says."""
    with pytest.raises(error) as raised:
        call()
    return str(raised.value)


# ---- links ---------------------------------------------------------------------------------------


def test_a_link_keeps_its_videos_in_their_order(world: World, links: ShareLinks) -> None:
    videos = [video(world) for _ in range(5)]
    link = links.make(world.operator, [*videos, videos[0]], ShareTerms(name="Trip"))
    assert links.opened(link.code) == link
    assert link.videos == tuple(video.id for video in videos)
    assert links.of_project(FIRST_PROJECT) == [link]


@pytest.mark.parametrize(
    "terms",
    [
        {"max_views": 0},
        {"max_views": MAX_VIEWS + 1},
        {"name": "x" * 201},
        {"name": "a\nb"},
        {"password": "x" * 201},
    ],
)
def test_terms_that_cannot_be_are_refused(share: Share, terms: dict[str, Any]) -> None:
    assert_raises(InvalidRequest, lambda: share(**terms))


def test_a_link_is_to_videos_of_one_project(world: World, links: ShareLinks) -> None:
    videos = [video(world), video(world, owner=world.project("Others"))]
    assert_raises(InvalidRequest, lambda: links.make(world.operator, videos, ShareTerms()))
    assert_raises(InvalidRequest, lambda: links.make(world.operator, [], ShareTerms()))


def test_a_link_says_why_it_is_closed(world: World, links: ShareLinks, share: Share) -> None:
    assert_raises(LinkNotFound, lambda: links.opened("guessed"))
    late = share(expires_at=world.clock.now + timedelta(minutes=1))
    world.clock.turn(minutes=1)
    assert "expired" in assert_raises(LinkClosed, lambda: links.opened(late.code))
    revoked = share()
    links.revoke(world.operator, FIRST_PROJECT, revoked.id)
    assert "closed the link" in assert_raises(LinkClosed, lambda: links.opened(revoked.code))
    assert revoked not in links.of_project(FIRST_PROJECT)


def test_only_its_own_project_revokes_a_link(world: World, links: ShareLinks, share: Share) -> None:
    link = share()
    assert_raises(
        LinkNotFound, lambda: links.revoke(world.operator, world.project("Others"), link.id)
    )
    assert links.opened(link.code) == link


# ---- visits --------------------------------------------------------------------------------------


def test_a_visitor_who_comes_again_soon_is_one_view(
    world: World, links: ShareLinks, share: Share
) -> None:
    link, other = share(), share()
    kept = links.visit(link, "", address=ADDRESS)
    assert links.is_visited(link, kept)
    assert not links.is_visited(other, kept)
    assert not links.is_visited(link, "")
    assert links.opened(link.code).views == 1
    world.clock.turn(seconds=VISIT_TIME.total_seconds() + 1)
    assert not links.is_visited(link, kept)


@ON_BOTH_DATABASES
def test_no_more_visitors_come_in_at_once_than_a_link_has_views(
    links: ShareLinks, share: Share
) -> None:
    link = share(max_views=3)

    def visit(_: int) -> bool:
        try:
            return bool(links.visit(link, "", address=ADDRESS))
        except LinkClosed:
            return False

    with ThreadPoolExecutor(16) as crowd:
        assert sum(crowd.map(visit, range(32))) == 3
    assert links.opened(link.code).is_used_up
    words = assert_raises(LinkClosed, lambda: links.visit(link, "", address=ADDRESS))
    assert "as often as it may" in words


def test_a_password_is_asked_for_and_cannot_be_tried_without_end(
    world: World, links: ShareLinks, share: Share
) -> None:
    link = share(password="open sesame")
    assert link.password_hash
    assert "sesame" not in link.password_hash
    for _ in range(OF_NETWORK.free):
        assert_raises(InvalidField, lambda: links.visit(link, "guess", address=ADDRESS))
    assert_raises(TooManyAttempts, lambda: links.visit(link, "open sesame", address=ADDRESS))
    assert links.visit(link, "open sesame", address="203.0.113.8")
    world.clock.turn(minutes=15)
    assert links.visit(link, "open sesame", address=ADDRESS)
    assert links.opened(link.code).views == 2


@pytest.mark.parametrize("before", [None, "open sesame"])
def test_another_password_is_asked_of_earlier_visitors_too(
    world: World, links: ShareLinks, share: Share, before: str | None
) -> None:
    link = share(password=before)
    kept = links.visit(link, before or "", address=ADDRESS)
    renamed = links.change(world.operator, link, replace(terms_of(link), name="Summer"))
    assert links.is_visited(renamed, kept)
    changed = links.change(world.operator, link, replace(terms_of(link), password="close sesame"))
    assert not links.is_visited(changed, kept)
    again = links.visit(changed, "close sesame", address=ADDRESS)
    assert links.is_visited(changed, again)


def test_a_server_that_is_busy_counts_no_guess(world: World) -> None:
    passwords = Passwords(CHEAP, at_once=1, max_waiting=0)
    checks = PasswordChecks(passwords, AttemptRecords(world.database), clock=world.clock)
    rule = LinkPasswords(passwords, checks)
    stored = rule.hash("open sesame") or ""
    check = partial(rule.check, "link", stored, "open sesame", address=ADDRESS)
    with passwords.turn():
        for _ in range(2 * OF_NETWORK.free):
            assert_raises(ServerBusy, check)
    check()


def test_the_addresses_of_one_ipv6_network_guess_a_password_together(
    links: ShareLinks, share: Share
) -> None:
    link = share(password="open sesame")
    for number in range(OF_NETWORK.free):
        guess = partial(links.visit, link, "guess", address=f"2001:db8::{number}")
        assert_raises(InvalidField, guess)
    assert_raises(TooManyAttempts, lambda: links.visit(link, "guess", address="2001:db8::ff"))


# ---- tickets -------------------------------------------------------------------------------------


def test_a_ticket_reaches_the_videos_of_its_link_alone(
    world: World, links: ShareLinks, share: Share
) -> None:
    link = share()
    guest = links.guest(links.ticket(link, 0))
    assert (guest.role, guest.videos, guest.sender) == (
        Role.GUEST,
        frozenset(link.videos),
        f"share_link:{link.id}",
    )
    scope = scope_of(guest, Action.WATCH)
    records = UploadRecords(world.database)
    scope.require(records.get(link.videos[0]))
    assert_raises(UploadNotFound, partial(scope.require, video(world)))
    for action in (Action.BROWSE, Action.DOWNLOAD, Action.SEND, Action.CHANGE, Action.SHARE):
        assert_raises(NotAllowed, partial(scope_of, guest, action))


def test_a_download_takes_a_link_that_allows_it(links: ShareLinks, share: Share) -> None:
    guest = links.guest(links.ticket(share(can_download=True), 0))
    assert scope_of(guest, Action.DOWNLOAD).listed == guest.videos


def test_a_ticket_lasts_longer_than_the_film_and_ends(
    world: World, links: ShareLinks, share: Share
) -> None:
    link = share()
    for film_seconds, good_for in ((60, TICKET_SECONDS), (7200, 14400)):
        ticket = links.ticket(link, film_seconds)
        world.clock.turn(seconds=good_for - 1)
        assert links.guest(ticket).id == link.id
        world.clock.turn(seconds=good_for / 2 + 1)
        assert_raises(LinkNotFound, partial(links.guest, ticket))


def test_who_was_let_in_outlasts_the_ticket_and_not_the_link(
    world: World, links: ShareLinks, share: Share
) -> None:
    link = share()
    ticket = links.ticket(link)
    guest = links.guest(ticket)
    world.clock.turn(seconds=2 * TICKET_SECONDS)
    assert_raises(LinkNotFound, lambda: links.guest(ticket))
    assert links.guest_by(guest.id) == guest
    links.revoke(world.operator, FIRST_PROJECT, link.id)
    assert_raises(LinkNotFound, lambda: links.guest_by(guest.id))


def test_a_ticket_stays_the_same_for_a_while(world: World, links: ShareLinks, share: Share) -> None:
    link = share()
    tickets = set()
    for _ in range(60):
        tickets.add(links.ticket(link, 0))
        world.clock.turn(seconds=TICKET_SECONDS / 60)
    assert 2 <= len(tickets) <= 3


def test_a_ticket_does_not_outlive_its_link(world: World, links: ShareLinks, share: Share) -> None:
    link = share(expires_at=world.clock.now + timedelta(minutes=5))
    ticket = links.ticket(link, 0)
    assert links.guest(ticket).id == link.id
    world.clock.turn(minutes=5)
    assert_raises(LinkNotFound, lambda: links.guest(ticket))


def test_the_ticket_of_a_revoked_link_is_worth_nothing(
    world: World, links: ShareLinks, share: Share
) -> None:
    link = share()
    ticket = links.ticket(link, 0)
    assert links.guest(ticket).id == link.id
    links_over(world).revoke(world.operator, FIRST_PROJECT, link.id)  # By another process.
    assert RECENT_SECONDS < 5
    fresh = links_over(world)
    assert_raises(LinkNotFound, lambda: fresh.guest(ticket))


def test_forged_tickets_are_worth_nothing(world: World, links: ShareLinks, share: Share) -> None:
    link = share()
    ticket = links.ticket(link, 0)
    visit = links.visit(link, "", address=ADDRESS)
    Signing(SharedValues(world.database)).renew()
    elsewhere = links_over(world).ticket(link, 0)
    unsigned = ticket.rpartition(".")[0]
    forged = [ticket[:-1], ticket[1:], ticket + "A", unsigned, f"{unsigned}.", "", ".", visit]
    for each in (*forged, elsewhere, "A" * 1000, ticket.swapcase()):
        assert_raises(LinkNotFound, partial(links.guest, each))
    assert not links.is_visited(link, ticket)


def test_a_ticket_is_fit_for_a_url_and_names_any_subject(world: World) -> None:
    tickets = Tickets(Signing(SharedValues(world.database)), "test", clock=world.clock)
    expires = world.clock.now + timedelta(hours=1)
    for subject in ("a", "f" * 32, "x" * 200):
        ticket = tickets.make(subject, expires)
        assert tickets.subject_of(ticket) == subject
        assert set(ticket) <= set("-_.") | set(map(chr, range(48, 58))) | {
            chr(letter) for first in (65, 97) for letter in range(first, first + 26)
        }
