"""The pages where people get their accounts, change them, and administrators look after them."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from werkzeug.test import TestResponse

from app.access import audit
from app.access.audit import AuditAction, AuditEntry, AuditFilter
from app.access.people import Person, all_people, find_by_email
from app.core.access import Role
from tests.access.test_mail import new_box
from tests.access.world import GOOD_PASSWORD
from tests.site import OTHER_PASSWORD, Browser, Site, new_site


@pytest.fixture(scope="module")
def ann(site: Site) -> Person:
    """The first administrator, by the link that the server has printed."""
    code = site.identity.invitations.to_set_up()
    browser = site.browser()
    assert "Set up this server" in browser.get(f"/set-up/{code}").text
    fields = {"name": "Ann", "email": "ann@example.org", "password": GOOD_PASSWORD}
    answer = browser.post(f"/set-up/{code}", fields)
    assert (answer.status_code, answer.location) == (303, "/")
    assert browser.who()["is_admin"]
    assert browser.post(f"/set-up/{code}", fields).status_code == 410
    (person,) = all_people(site.services.context)
    return person


@pytest.fixture(scope="module")
def admin(site: Site, ann: Person) -> Browser:
    return site.browser(ann)


def link_in(answer: TestResponse) -> str:
    """The path of the link that the page shows this one time."""
    assert answer.status_code == 200
    found = re.search(r'value="http://localhost(/(?:join|reset)/[\w-]+)"', answer.text)
    assert found
    return found[1]


def test_the_problems_of_a_form_are_beside_its_fields(site: Site, admin: Browser) -> None:
    link = link_in(admin.post("/people/invitations", {"email": "carl@example.org", "role": ""}))
    answer = site.browser().post(link, {"name": "Carl", "password": "password12"})
    assert answer.status_code == 400
    assert 'aria-describedby="field-password-problem field-password-hint"' in answer.text
    assert 'value="Carl"' in answer.text
    assert "password12" not in answer.text


def test_an_invitation_makes_a_member_who_can_sign_in(site: Site, admin: Browser) -> None:
    answer = admin.post("/people/invitations", {"email": "Bob@example.org", "role": "viewer"})
    link, browser = link_in(answer), site.browser()
    assert "bob@example.org" in admin.get("/people").text
    assert "bob@example.org" in browser.get(link).text
    assert browser.post(link, {"name": "Bob", "password": OTHER_PASSWORD}).status_code == 303
    (project,) = browser.who()["projects"]
    assert (project["id"], project["role"]) == ("local", Role.VIEWER)
    assert browser.get(link).status_code == 410
    assert site.browser().sign_in("bob@example.org", OTHER_PASSWORD).status_code == 303
    again = admin.post("/people/invitations", {"email": "bob@example.org", "role": "viewer"})
    assert (again.status_code, "is a member already" in again.text) == (400, True)


def invited(site: Site, admin: Browser, email: str) -> tuple[str, str]:
    """A new project, and the path of a link by which that address joins it."""
    project = site.identity.projects.make(site.operator, "Weather & sports", manager=None).id
    fields = {"email": email, "role": "editor", "project": project}
    return project, link_in(admin.post("/people/invitations", fields))


def noted(site: Site, action: AuditAction, project: str | None) -> list[AuditEntry]:
    """The entries of that kind in the log of a project, or of the server alone."""
    found = audit.every(site.services.context, AuditFilter(project_id=project, action=action))
    return [entry for entry in found if entry.project_id == project]


def test_the_audit_log_says_who_was_invited_to_what(site: Site, admin: Browser) -> None:
    project, link = invited(site, admin, " Una@example.org\r\n")
    (made,) = noted(site, AuditAction.INVITATION_MADE, project)
    assert made.details == {"email": "una@example.org", "role": "editor"}
    admin.post("/people/invitations", {"email": "uri@example.org", "role": ""})
    (waiting,) = (
        each for each in site.identity.invitations.waiting() if each.email == "uri@example.org"
    )
    admin.post(f"/people/invitations/{waiting.digest}/withdraw")
    for action in (AuditAction.INVITATION_MADE, AuditAction.INVITATION_REMOVED):
        details = [entry.details for entry in noted(site, action, None)]
        assert {"email": "uri@example.org", "role": None} in details
    assert site.browser().get(link).status_code == 200


def test_an_invitation_lets_an_account_that_there_is_into_the_project(
    site: Site, admin: Browser
) -> None:
    mia = site.person("mia@example.org", Role.EDITOR)
    project, link = invited(site, admin, mia.email)
    browser = site.browser()
    page = browser.get(link).text
    assert f"/sign-in?next={link}" in page
    stranger_link = invited(site, admin, "unknown-to-all@example.org")[1]
    assert page.replace(mia.email, "").replace(link, "") == browser.get(stranger_link).text.replace(
        "unknown-to-all@example.org", ""
    ).replace(stranger_link, ""), "the page does not say who has an account"
    answer = browser.sign_in(mia.email, target=link)
    assert answer.location == link
    page = browser.get(link).text
    assert "Join Weather &amp; sports" in page
    assert "Sign out and use the other account" not in page
    assert len(browser.who()["projects"]) == 1, "to open the link changes nothing"
    joined = browser.post(link, {"person": mia.id})
    assert (joined.status_code, joined.location) == (303, f"/?project={project}")
    roles = {each["id"]: each["role"] for each in browser.who()["projects"]}
    assert roles == {"local": "editor", project: "editor"}
    assert f'data-project="{project}"' in browser.get("/").text
    assert browser.get(link).status_code == 410


def test_a_second_invitation_for_one_address_adds_to_its_account(
    site: Site, admin: Browser
) -> None:
    (one, first), (two, second) = (invited(site, admin, "noa@example.org") for _ in "12")
    browser = site.browser()
    browser.post(first, {"name": "Noa", "password": OTHER_PASSWORD})
    (noa,) = [each for each in all_people(site.services.context) if each.email == "noa@example.org"]
    browser.post(second, {"person": noa.id})
    assert {each["id"] for each in browser.who()["projects"]} == {one, two}
    for project in (one, two):
        wanted = AuditFilter(project_id=project, action=AuditAction.MEMBER_ADDED)
        (entry,) = audit.page(site.services.context, wanted, limit=5, cursor=None).entries
        assert (entry.actor_name, entry.details["email"]) == ("Noa", "noa@example.org")


def test_nobody_takes_an_invitation_of_another_address_without_being_asked(
    site: Site, admin: Browser
) -> None:
    olga, other = (
        site.person("olga@example.org", Role.EDITOR),
        site.person("other@example.org", Role.EDITOR),
    )
    project, link = invited(site, admin, "new@example.org")
    browser = site.browser(olga)
    for fields in (
        {"person": ""},
        {"name": "New", "password": OTHER_PASSWORD},
        {"person": other.id},
    ):
        answer = browser.post(link, fields)
        assert "olga@example.org, which is another account" in answer.text
        assert "Join as olga" in answer.text
        assert "Sign out and use the other account" in answer.text
    assert len(browser.who()["projects"]) == 1
    out = re.search(r'action="(/sign-out[^"]+)"', browser.get(link).text)
    assert out
    assert browser.post(out[1]).location == link
    assert "Create your account" in browser.get(link).text
    again = site.browser(olga)
    assert again.post(link, {"person": olga.id}).status_code == 303
    assert project in {each["id"] for each in again.who()["projects"]}
    (entry,) = noted(site, AuditAction.MEMBER_ADDED, project)
    assert (entry.details["email"], entry.details["invited"]) == (olga.email, "new@example.org")


def test_a_reset_link_gives_a_new_password_and_ends_all_sessions(
    site: Site, admin: Browser
) -> None:
    dora = site.person("dora@example.org", Role.EDITOR)
    before = site.browser(dora)
    link, browser = link_in(admin.post(f"/people/{dora.id}/reset-link")), site.browser()
    assert browser.post(link, {"password": OTHER_PASSWORD}).status_code == 303
    assert (browser.who()["name"], before.who()["signed_in"]) == ("dora", False)
    assert site.browser().sign_in(dora.email, GOOD_PASSWORD).status_code == 401
    assert site.browser().sign_in(dora.email, OTHER_PASSWORD).status_code == 303


def test_who_is_blocked_is_signed_out_until_unblocked(site: Site, admin: Browser) -> None:
    eve = site.person("eve@example.org", Role.EDITOR)
    browser = site.browser(eve)
    assert admin.post(f"/people/{eve.id}", {"change": "block"}).status_code == 303
    assert browser.get("/").status_code == 303
    assert site.browser().sign_in(eve.email).status_code == 403
    admin.post(f"/people/{eve.id}", {"change": "unblock"})
    assert site.browser().sign_in(eve.email).status_code == 303


def test_the_last_administrator_cannot_be_blocked(site: Site, admin: Browser, ann: Person) -> None:
    answer = admin.post(f"/people/{ann.id}", {"change": "block"})
    assert (answer.status_code, "needs an administrator" in answer.text) == (409, True)
    assert admin.get("/people").status_code == 200


def test_only_administrators_see_people(site: Site, admin: Browser) -> None:
    manager = site.person("fred@example.org", Role.MANAGER)
    browser = site.browser(manager)
    assert browser.get("/people").status_code == 403
    assert browser.post(f"/people/{manager.id}", {"change": "make_admin"}).status_code == 403
    assert "/people" not in browser.get("/").text
    assert "/people" in admin.get("/status").text
    admin.post(f"/people/{manager.id}", {"change": "make_admin"})
    assert browser.get("/people").status_code == 200


@pytest.mark.parametrize(
    ("url", "fields", "status"),
    [
        ("/people/unknown", {"change": "block"}, 404),
        ("/people/{ann}", {"change": "explode"}, 400),
        ("/people/{ann}", {}, 400),
        ("/people/invitations", {"email": "x", "role": "viewer"}, 400),
        ("/people/invitations", {"email": "gina@example.org", "role": "guest"}, 400),
    ],
)
def test_what_the_page_does_not_offer_is_refused(
    admin: Browser, ann: Person, url: str, fields: dict[str, str], status: int
) -> None:
    assert admin.post(url.format(ann=ann.id), fields).status_code == status


def test_an_invitation_can_be_withdrawn(site: Site, admin: Browser) -> None:
    link = link_in(admin.post("/people/invitations", {"email": "hal@example.org", "role": ""}))
    found = re.search(r"/people/invitations/(\w{64})/withdraw", admin.get("/people").text)
    assert found
    admin.post(f"/people/invitations/{found[1]}/withdraw")
    assert site.browser().get(link).status_code == 410


def test_people_change_their_name_and_password_but_not_their_address(site: Site) -> None:
    ivy = site.person("ivy@example.org", Role.EDITOR)
    browser, other = site.browser(ivy), site.browser(ivy)
    answer = browser.post("/account/name", {"name": "Ivy", "email": "ivy@new.example"})
    assert (answer.status_code, answer.location) == (303, "/account?done=name")
    assert "is saved" in browser.get(answer.location).text
    assert browser.who()["name"] == "Ivy"
    fields = {"old_password": "wrong", "password": OTHER_PASSWORD}
    assert "not your password" in browser.post("/account/password", fields).text
    fields["old_password"] = GOOD_PASSWORD
    assert browser.post("/account/password", fields).status_code == 303
    assert [browser.who()["signed_in"], other.who()["signed_in"]] == [True, False]
    assert site.browser().sign_in(ivy.email, OTHER_PASSWORD).status_code == 303


def test_administrators_change_addresses(site: Site, admin: Browser, ann: Person) -> None:
    lea = site.person("lea@example.org", Role.EDITOR)

    def change(email: str) -> TestResponse:
        return admin.post(f"/people/{lea.id}", {"change": "email", "new_email": email})

    taken = change(ann.email)
    assert (taken.status_code, "Another account has" in taken.text) == (400, True)
    assert change("Lea@new.example").status_code == 303
    assert site.browser().sign_in("lea@new.example").status_code == 303


def test_people_see_and_end_their_sessions(site: Site, ann: Person) -> None:
    jo = site.person("jo@example.org", Role.EDITOR)
    here, there = site.browser(jo), site.browser(jo)
    page = here.get("/account").text
    assert page.count("Firefox on Linux") >= 2
    assert page.count("this one") == 1
    (other,) = re.findall(r"/account/sessions/(\w{32})/end", page)
    assert site.browser(ann).post(f"/account/sessions/{other}/end").status_code == 303
    assert there.who()["signed_in"], "nobody ends the sessions of others"
    here.post(f"/account/sessions/{other}/end")
    assert [here.who()["signed_in"], there.who()["signed_in"]] == [True, False]


def test_what_people_enter_is_text_and_no_markup(site: Site, admin: Browser) -> None:
    mal = site.person("mal@example.org", Role.EDITOR)
    browser = site.browser(mal)
    name = "<img src=x onerror=alert(1)>\"'"
    browser.post("/account/name", {"name": name, "email": mal.email})
    for page in (browser.get("/account"), browser.get("/"), admin.get("/people")):
        assert "<img src=x" not in page.text
        assert "&lt;img src=x" in page.text


def test_an_invitation_is_to_the_project_that_was_chosen(site: Site, admin: Browser) -> None:
    project = site.identity.projects.make(site.operator, "Other films", manager=None)
    fields = {"email": "kim@example.org", "role": "editor", "project": project.id}
    browser = site.browser()
    browser.post(
        link_in(admin.post("/people/invitations", fields)),
        {"name": "Kim", "password": OTHER_PASSWORD},
    )
    (found,) = browser.who()["projects"]
    assert found == {"id": project.id, "name": "Other films", "role": "editor"}
    fields["project"] = "unknown"
    assert admin.post("/people/invitations", fields).status_code == 404


def test_without_passwords_links_lead_to_the_first_passkey(tmp_path: Path) -> None:
    with new_site(tmp_path, sign_in=frozenset({"passkeys"})) as site:
        invitations, browser = site.identity.invitations, site.browser()
        link = f"/set-up/{invitations.to_set_up()}"
        assert 'type="password"' not in browser.get(link).text
        made = browser.post(link, {"name": "Ann", "email": "ann@example.org"})
        assert (made.status_code, made.location) == (303, "/account")
        page = browser.get("/account").text
        assert ("Add a passkey" in page, 'type="password"' in page) == (True, False)
        (ann,) = all_people(site.services.context)
        link, again = f"/reset/{invitations.to_reset(site.operator, ann)}", site.browser()
        assert 'type="password"' not in again.get(link).text
        assert again.post(link, {"email": ann.email}).location == "/account"
        assert (again.who()["name"], browser.who()["signed_in"]) == ("Ann", False)


def test_a_manager_does_not_let_an_account_in_that_another_manager_may_have_made(
    site: Site, admin: Browser
) -> None:
    one, two = site.project(), site.project()
    eve, bob = (
        site.person(name, Role.MANAGER, project=each) for name, each in (("Eve", one), ("Bob", two))
    )

    def invitation_of(manager: Person, project: str, email: str) -> str:
        sent = {"email": email, "role": "viewer"}
        answer = site.client(manager).post(f"/api/projects/{project}/members", json=sent)
        return str(urlsplit(answer.get_json()["invitation"]).path)

    def is_added(project: str, email: str) -> bool:
        sent = {"email": email, "role": "viewer"}
        answer = admin.client.post(f"/api/projects/{project}/members", json=sent)
        return answer.status_code == 201

    fields = {"name": "Chief", "password": OTHER_PASSWORD}
    browser = site.browser()
    assert browser.post(invitation_of(eve, one, "ceo@x.example"), fields).status_code == 303
    link = invitation_of(bob, two, "ceo@x.example")
    assert not is_added(two, "ceo@x.example")
    link = invitation_of(bob, two, "ceo@x.example")
    assert "Decline" not in browser.get("/account").text, "it may be meant for somebody else"
    assert [each["id"] for each in browser.who()["projects"]] == [one]
    ceo = find_by_email(site.services.context, "ceo@x.example")
    assert ceo is not None
    assert browser.post(link, {"person": ceo.id}).status_code == 303
    _, known = invited(site, admin, "cfo@x.example")
    site.browser().post(known, fields)
    assert is_added(two, "cfo@x.example")
    third, proof = invited(site, admin, "ceo@x.example")
    assert browser.post(proof, {"person": ceo.id}).status_code == 303
    assert third in {each["id"] for each in browser.who()["projects"]}
    site.identity.projects.remove_member(site.operator, two, ceo.id)
    assert is_added(two, "ceo@x.example"), "an administrator has vouched for it"


def test_a_manager_does_not_learn_who_has_an_account(site: Site) -> None:
    manager = site.client(site.person("Eve", Role.MANAGER, project=(project := site.project())))
    known = site.person("Secret")
    answers = [
        manager.post(f"/api/projects/{project}/members", json={"email": email, "role": "viewer"})
        for email in (known.email, "nobody-at-all@example.org")
    ]
    assert [answer.status_code for answer in answers] == [202, 202]
    one, other = (dict(answer.get_json()) for answer in answers)
    assert len(one.pop("invitation")) == len(other.pop("invitation"))
    assert one == other
    assert known.email not in {each.email for each in site.identity.projects.members(project)}


def test_the_owner_of_an_account_accepts_or_declines_an_invitation(site: Site) -> None:
    news, sports = site.project("The news"), site.project("The sports")
    manager = site.person("Eve", Role.MANAGER, project=news)
    site.join(manager, Role.MANAGER, sports)
    carol, dave = site.person("Carol"), site.person("Dave")
    for project in (news, sports):
        fields = {"email": carol.email, "role": "editor"}
        answer = site.browser(manager).post(f"/project/members?project={project}", fields)
        assert "/join/" in answer.text
    browser = site.browser(carol)
    assert "You are invited to 2 projects" in browser.get("/").text
    page = browser.get("/account").text
    accept, decline = (
        next(
            found[1]
            for row in page.split('<li class="row">')
            if name in row and (found := re.search(rf'action="(/account/\S+/{verb})"', row))
        )
        for name, verb in (("The news", "accept"), ("The sports", "decline"))
    )
    assert site.browser(dave).post(accept).status_code == 410, "it is not theirs"
    assert browser.post(accept).location.startswith("/")
    assert browser.post(decline).status_code == 303
    assert {each["id"]: each["role"] for each in browser.who()["projects"]} == {news: "editor"}
    assert "Decline" not in browser.get("/account").text
    assert site.identity.invitations.waiting(sports) == []
    (joined,) = noted(site, AuditAction.MEMBER_ADDED, news)
    assert joined.actor == f"person:{carol.id}"


def test_an_address_of_several_alphabets_is_invited_with_a_warning(
    site: Site, admin: Browser
) -> None:
    looks_like = "\u0430da@example.org"
    page = admin.post("/people/invitations", {"email": looks_like, "role": ""}).text
    assert "“\u0430” is Cyrillic" in page
    sent = {"email": looks_like, "role": "viewer"}
    answer = admin.client.post(f"/api/projects/{site.project()}/members", json=sent)
    assert "mixes alphabets" in answer.get_json()["warning"]
    page = admin.post("/people/invitations", {"email": "ada@example.org", "role": ""}).text
    assert "alphabets" not in page


def test_the_audit_log_shows_the_address_beside_a_name(site: Site, admin: Browser) -> None:
    forged, real = site.person("Ada Secretname"), site.person("Ada Secretname")
    for person in (forged, real):
        site.browser(person).post("/account/name", {"name": "Ada Secretname"})
    page = admin.get("/audit").text
    for person in (forged, real):
        assert f"Ada Secretname</a> ({person.email})" in page


def test_a_link_for_a_password_ends_when_the_address_changes(site: Site, admin: Browser) -> None:
    fay = site.person("Fay")
    link = link_in(admin.post(f"/people/{fay.id}/reset-link"))
    assert site.browser().get(link).status_code == 200
    site.browser(fay).post("/account/name", {"name": "Fay B"})
    assert site.browser().get(link).status_code == 200
    admin.post(f"/people/{fay.id}", {"change": "email", "new_email": "fay-new@example.org"})
    assert site.browser().get(link).status_code == 410


def test_links_in_mail_begin_with_the_public_url_and_mail_has_a_limit(tmp_path: Path) -> None:
    with (
        new_box() as box,
        new_site(tmp_path, smtp_url=box.url, public_url="https://films.example/videos") as site,
    ):
        project = site.project()
        key = site.key(Role.MANAGER, project=project)[1]
        evil = {"Host": "evil.example", **key}
        answers = [
            site.client().post(
                f"/api/projects/{project}/members",
                json={"email": f"person{number}@example.org", "role": "viewer"},
                headers=evil,
            )
            for number in range(60)
        ]
        assert "https://films.example/videos/join/" in answers[0].get_json()["invitation"]
        assert any(line.startswith("https://films.example/videos/join/") for line in box.lines)
        assert not any("evil" in line for line in box.lines)
        refused = [answer for answer in answers if answer.status_code != 202]
        assert {answer.status_code for answer in refused} == {429}
        assert int(refused[-1].headers["Retry-After"]) > 0
        assert sum(line.startswith("Subject:") for line in box.lines) == 60 - len(refused)


def test_administrators_see_roles_and_last_visits_and_invite_to_the_project_they_are_in(
    site: Site,
) -> None:
    chief = site.person("Chief", Role.MANAGER, project=site.project("Zoo"), is_admin=True)
    eve, browser = site.person("Eve", Role.EDITOR, project=site.project("Ark")), site.browser(chief)
    page = browser.get("/people").text
    assert re.search(r"editor in Ark ·\s+never signed in", page)
    assert re.search(r"manager in Zoo ·\s+last visit <time", page)
    assert re.search(r'<option value="\w+" selected>Zoo</option>', page)
    site.session(eve)
    assert re.search(r"editor in Ark ·\s+last visit <time", browser.get("/people").text)
    site.identity.sessions.end_all(eve.id)
    assert re.search(r"editor in Ark ·\s+last visit <time", browser.get("/people").text)
    alone = {"email": "noah@example.org", "role": "editor", "project": ""}
    assert "/join/" in browser.post("/people/invitations", alone).text
    (invitation,) = [
        each for each in site.identity.invitations.waiting() if each.email == "noah@example.org"
    ]
    assert (invitation.project_id, invitation.role) == (None, None)
