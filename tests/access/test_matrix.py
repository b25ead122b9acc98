"""Every route and every kind of caller: who may do what is decided by one table.

What is expected follows from `REACH` and from what `@requires` says above each view. A new route
needs an example here for each part of its URL that varies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import select
from werkzeug.routing import Rule

from app.access import webhooks
from app.access.people import Person
from app.core.access import (
    FIRST_PROJECT,
    MEMBERS,
    OF_ONE_PROJECT,
    REACH,
    Action,
    Reach,
    Role,
    reach_of,
)
from app.db.tables import projects
from app.http.access import MissingRule, rules_of
from tests.acting import acting
from tests.site import BY_SOMEBODY, Site

STRANGER = "192.0.2.1"
"""Reserved for documentation (RFC 5737)."""

EXAMPLES: Mapping[str, str] = {
    "filename": "css/base.css",
    "name": "poster.jpg",
    "stream": "v1",
    "quality": "360",
    "height": "360",
    "number": "1",
    "text_id": "0" * 32,
    "text": "1",
    "key": "k",
    "code": "x" * 32,
    "digest": "0" * 64,
    "ending": "csv",
    "person_id": "0" * 32,
    "passkey_id": "0" * 32,
    "session_id": "0" * 32,
}
"""Parts of URLs that name nothing of a project."""

BODIES: Mapping[tuple[str, str], dict[str, Any]] = {
    ("tus.one", "PATCH"): {
        "headers": {"Content-Type": "application/offset+octet-stream", "Upload-Offset": "0"},
        "data": b"film",
    },
    ("resumable.append", "PATCH"): {
        "headers": {
            "Content-Type": "application/partial-upload",
            "Upload-Offset": "0",
            "Upload-Complete": "?0",
            "Upload-Draft-Interop-Version": "8",
        },
        "data": b"film",
    },
    ("api_webhooks.change", "PATCH"): {"json": {"paused": False}},
    ("webhooks.pause", "POST"): {"data": {"paused": ""}},
    ("lanes.lanes", "GET"): {"headers": {"Connection": "upgrade", "Upgrade": "websocket"}},
    ("api_videos.rename", "PATCH"): {"json": {"filename": "other.mp4"}},
}
"""What a request must carry to get as far as its upload; elsewhere nothing is needed."""

SAME_FOR_ALL = {("tus.one", "GET"), ("tus.one", "POST"), ("tus.one", "PUT")}
"""They look nothing up: tus has no such methods, and a browser is sent to the video's own URL."""

SIGNS_OUT = {"account.delete", "sign_in.sign_out", "api_session.end"}
"""Everybody may, and is nobody afterwards."""

Make = Callable[[Site, Rule, str], str]


def new_upload(site: Site, rule: Rule, sender: str) -> str:
    """The id of an upload on its way where uploads are asked for, else of a video."""
    is_on_its_way = action_of(site, rule) in {Action.SEND, Action.FOLLOW}
    return (site.upload(sender) if is_on_its_way else site.video(sender)).id


def new_key(site: Site, _rule: Rule, _sender: str) -> str:
    """The id of a key."""
    return site.key(Role.VIEWER)[0]


def new_link(site: Site, rule: Rule, _sender: str) -> str:
    """The id of a link."""
    is_for_uploads = "upload_links." in rule.endpoint
    return (site.upload_link() if is_for_uploads else site.share_link()).id


def new_code(site: Site, rule: Rule, _sender: str) -> str:
    """What the URL of a link's page ends in."""
    is_for_uploads = rule.endpoint.startswith("upload_link.")
    return (site.upload_link() if is_for_uploads else site.share_link()).code


def new_webhook(site: Site, _rule: Rule, _sender: str) -> str:
    """The id of a webhook."""
    return site.webhook()


def new_delivery(site: Site, _rule: Rule, _sender: str) -> str:
    """The id of what was sent to it."""
    return webhooks.send_test(acting(site.services.context, FIRST_PROJECT), site.webhook()).id


THINGS: Mapping[str, Make] = {
    "webhook_id": new_webhook,
    "delivery_id": new_delivery,
    "upload_id": new_upload,
    "key_id": new_key,
    "link_id": new_link,
    "code": new_code,
    "project_id": lambda _site, _rule, _sender: FIRST_PROJECT,
}
"""How to make what a part of a URL names, in the first project, by a sender."""


@dataclass(frozen=True, kw_only=True)
class Sender:
    """One kind of caller, as its requests show it.

    `role` is the one in the project whose things are asked for; without it, whoever this is must
    find nothing there. `is_known` says whether the server takes what it shows for valid, and
    `refusal` what it answers otherwise.
    """

    name: str
    role: Role | None = None
    is_known: bool = True
    refusal: int = 401
    is_person: bool = False
    is_admin: bool = False
    prefix: str = ""
    sender: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@pytest.fixture(scope="module")
def other(site: Site) -> str:
    """The id of another project."""
    return site.project("Others")


@pytest.fixture(scope="module")
def senders(site: Site, other: str) -> list[Sender]:
    """One of each kind."""
    return [
        Sender(name="nobody", is_known=False),
        *(by_key(site, f"{role} key", role) for role in MEMBERS),
        *(by_person(site, role, site.person(role, role)) for role in MEMBERS),
        *strangers(site, other),
        *by_links(site),
    ]


def by_key(site: Site, name: str, role: Role) -> Sender:
    key_id, headers = site.key(role)
    return Sender(name=name, role=role, sender=f"key:{key_id}", headers=headers)


def by_person(site: Site, role: Role | None, person: Person) -> Sender:
    return Sender(
        name=person.name,
        role=role,
        is_person=True,
        is_admin=person.is_admin,
        sender=f"person:{person.id}",
        headers={"Cookie": f"sluice={site.session(person)}"},
    )


def strangers(site: Site, other: str) -> Iterator[Sender]:
    """Who has no role here, or none any longer, and administrators."""
    admin = site.person("administrator", Role.MANAGER, project=other, is_admin=True)
    yield by_person(site, None, admin)
    viewer = site.person("administrator and viewer", Role.VIEWER, is_admin=True)
    yield by_person(site, Role.VIEWER, viewer)
    blocked = site.person("blocked person", Role.MANAGER)
    sender = replace(by_person(site, None, blocked), is_known=False)
    site.identity.accounts.block(site.operator, blocked)
    yield sender
    _, headers = site.key(Role.MANAGER, project=other)
    yield Sender(name="manager of another project", headers=headers)
    key_id, headers = site.key(Role.MANAGER)
    site.identity.keys.revoke(acting(site.services.context, FIRST_PROJECT), key_id)
    yield Sender(name="revoked key", is_known=False, headers=headers)
    _, headers = site.key(Role.MANAGER, lifetime=timedelta(microseconds=1))
    yield Sender(name="expired key", is_known=False, headers=headers)


def by_links(site: Site) -> Iterator[Sender]:
    """Who comes by a link, or by one that has ended."""
    links, link, revoked = site.identity.share_links, site.share_link(), site.share_link()
    yield Sender(name="guest", role=Role.GUEST, prefix=f"/t/{links.ticket(link, 0)}")
    prefix = f"/t/{links.ticket(revoked, 0)}"
    links.revoke(site.operator, revoked.project_id, revoked.id)
    yield Sender(name="guest of a revoked link", is_known=False, refusal=404, prefix=prefix)
    uploads = site.upload_link()
    sender = f"upload_link:{uploads.id}:somebody"
    yield Sender(name="upload link", role=Role.SENDER, prefix=f"/u/{uploads.code}", sender=sender)
    closed = site.identity.upload_links.close(site.operator, site.upload_link())
    prefix = f"/u/{closed.code}"
    yield Sender(name="closed upload link", is_known=False, refusal=410, prefix=prefix)


def requests_of(site: Site) -> Iterator[tuple[Rule, str]]:
    """Every route with each of its methods."""
    for rule in site.app.url_map.iter_rules():
        if rule.endpoint in SIGNS_OUT:
            continue
        for method in sorted((rule.methods or set()) - {"OPTIONS", "HEAD"}):
            yield rule, method


def url_of(site: Site, rule: Rule, sender: str) -> str:
    values = {
        part: THINGS[part](site, rule, sender) if part in THINGS else EXAMPLES[part]
        for part in rule.arguments
    }
    found = site.app.url_map.bind("localhost").build(rule.endpoint, values)
    return urlsplit(found).path  # A WebSocket's has a scheme and a host.


def status_of(site: Site, rule: Rule, method: str, url: str, sender: Sender) -> int:
    sent = dict(BODIES.get((rule.endpoint, method), {}))
    headers = {"Tus-Resumable": "1.0.0", **sender.headers, **sent.pop("headers", {})}
    response = from_address(site).open(sender.prefix + url, method=method, headers=headers, **sent)
    response.close()
    return response.status_code


def from_address(site: Site, address: str = STRANGER) -> FlaskClient:
    """A client that keeps no cookies."""
    client = site.app.test_client(use_cookies=False)
    client.environ_base["REMOTE_ADDR"] = address
    return client


def action_of(site: Site, rule: Rule) -> Action:
    return rules_of(site.app)[rule.endpoint].action


def test_every_route_has_a_rule(site: Site) -> None:
    assert {rule.endpoint for rule in site.app.url_map.iter_rules()} == set(rules_of(site.app))


def test_a_view_that_does_not_say_who_may_use_it_keeps_the_server_from_starting() -> None:
    app = Flask("app", static_folder=None)

    @app.get("/everything")
    def everything() -> str:
        raise AssertionError

    with pytest.raises(MissingRule, match=r"@requires.*test_matrix.*\.everything"):
        rules_of(app)


def test_every_caller_reaches_what_the_table_says_and_nothing_else(
    site: Site, senders: list[Sender]
) -> None:
    wrong = []
    for rule, method in requests_of(site):
        for sender in senders:
            if sender.prefix and rule.rule == "/":
                continue  # A prefix alone is no URL below a link.
            for made_by in senders_of(site, rule, sender):
                is_own = made_by == sender.sender
                expected = expected_of(site, rule, method, sender, is_own=is_own)
                url = url_of(site, rule, made_by)
                found = status_of(site, rule, method, url, sender)
                is_right = found in expected if expected else found not in {401, 403}
                if not is_right:
                    wrong.append(f"{method} {url} by {sender.name}: {found}, not {expected}")
    assert wrong == [], "\n".join(wrong)


def senders_of(site: Site, rule: Rule, sender: Sender) -> set[str]:
    """Whose things are asked for: somebody's, and for some callers also their own."""
    action = action_of(site, rule)
    is_by_sender = action in REACH and reach_of(action, sender.role) is Reach.OWN
    return {BY_SOMEBODY, sender.sender} if is_by_sender else {BY_SOMEBODY}


def expected_of(site: Site, rule: Rule, method: str, sender: Sender, *, is_own: bool) -> set[int]:
    """The statuses that refuse a request; empty if it must not be refused."""
    action = action_of(site, rule)
    if action is Action.VISIT:
        return set()
    if not sender.is_known:
        # Resumable.js goes on after 410: it gets 400. And nothing of the server is below a link.
        others = {400} if "resumablejs" in rule.endpoint and sender.refusal == 410 else set()
        is_absent = action is Action.MEASURE and sender.prefix
        return others or {404 if is_absent else sender.refusal}
    if action not in REACH:
        return set() if is_admitted(action, sender) else {403, 404}
    names_a_thing = bool(rule.arguments & THINGS.keys())
    names_a_thing = names_a_thing and (rule.endpoint, method) not in SAME_FOR_ALL
    if sender.is_admin and action in {Action.MANAGE, Action.AUDIT}:  # They manage every project.
        return set()
    if sender.role is None:  # A manager, but of another project.
        return {404} if names_a_thing else set()
    return _refusals(reach_of(action, sender.role), names_a_thing=names_a_thing, is_own=is_own)


def is_admitted(action: Action, sender: Sender) -> bool:
    """Whether the sender may do what does not concern a project."""
    return {
        Action.BELONG: not sender.prefix,
        Action.HAVE_ACCOUNT: sender.is_person,
        Action.SECURE_ACCOUNT: sender.is_person,
        Action.ADMINISTER: sender.is_admin,
        Action.MEASURE: sender.is_admin,
    }[action]


def _refusals(reach: Reach, *, names_a_thing: bool, is_own: bool) -> set[int]:
    if reach is Reach.NONE:
        return {403}
    if reach is Reach.ALL or not names_a_thing:
        return set()
    return set() if reach is Reach.OWN and is_own else {403, 404}


def test_get_changes_nothing(site: Site, senders: list[Sender]) -> None:
    manager = next(sender for sender in senders if sender.role is Role.MANAGER)
    for rule, method in requests_of(site):
        if method != "GET":
            continue
        url = url_of(site, rule, BY_SOMEBODY)
        before = contents_of(site)
        status_of(site, rule, "GET", url, manager)
        assert contents_of(site) == before, url


def contents_of(site: Site) -> dict[str, list[str]]:
    """All rows of all tables, except for when somebody was last seen."""
    found: dict[str, list[str]] = {}
    with site.services.database.read() as connection:
        for name, table in projects.metadata.tables.items():
            columns = [column for column in table.columns if column.name not in SEEN]
            rows = connection.execute(select(*columns))
            found[name] = sorted(repr(tuple(row)) for row in rows)  # A row's own repr is slow.
    return found


SEEN = {"used_at", "active_at"}


def test_the_id_of_another_project_answers_as_an_unknown_one(site: Site, other: str) -> None:
    _, headers = site.key(Role.MANAGER, project=other)
    client = from_address(site)
    for url in ("/api/videos/{}", "/media/{}", "/api/uploads/{}"):
        known, unknown = site.video(project=FIRST_PROJECT).id, "0" * 32
        answers = [client.get(url.format(each), headers=headers) for each in (known, unknown)]
        assert [answer.status_code for answer in answers] == [404, 404]
        assert answers[0].get_data() == answers[1].get_data()


def test_programs_on_this_machine_read_the_metrics_without_a_key(site: Site) -> None:
    here = from_address(site, "127.0.0.1")
    assert here.get("/metrics").status_code == 200
    for header in ({"X-Forwarded-For": "127.0.0.1"}, {"Via": "1.1 proxy"}):
        assert here.get("/metrics", headers=header).status_code == 401
    assert (
        here.get("/metrics", environ_overrides={"SERVER_PROTOCOL": "HTTP/1.0"}).status_code == 401
    )
    assert here.get("/api/status").status_code == 401


def test_a_role_elsewhere_manages_nothing_here(site: Site, other: str) -> None:
    """A viewer of one project who manages another."""
    person = site.person("viewer here", Role.VIEWER)
    site.join(person, Role.MANAGER, other)
    viewer = by_person(site, Role.VIEWER, person)
    let_in = []
    for rule, method in requests_of(site):
        if action_of(site, rule) in OF_ONE_PROJECT:
            url = url_of(site, rule, BY_SOMEBODY)
            for chosen in (url, f"{url}?project={FIRST_PROJECT}"):
                status = status_of(site, rule, method, chosen, viewer)
                if status not in {403, 404}:
                    let_in.append(f"{method} {chosen}: {status}")
    assert let_in == []
