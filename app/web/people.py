"""People: one's own account, and all people for administrators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flask import request
from werkzeug import Response

from app.access.passwords import MIN_CHARACTERS
from app.access.people import Person, all_people, all_roles, current_person, find_person
from app.core.access import FIRST_PROJECT, Action, parse_role
from app.core.errors import EntryNotFound, InvalidField, LastAdministrator, UploadError
from app.http.access import requires
from app.http.bodies import form_fields
from app.http.context import ViewContext
from app.http.inviting import NewLink, count_mail, invite, send_link
from app.http.proxy import absolute_url
from app.web.pages import form_page, page_blueprint, see_other

# ---- one's own account ---------------------------------------------------------------------------

account = page_blueprint("account", __name__, url_prefix="/account")

DONE = {
    "declined": "The invitation is declined.",
    "name": "Your name is saved.",
    "password": "Your password is changed. All other sessions have ended.",
    "passkey": "The passkey is added. You can sign in with it from now on.",
    "passkey-removed": "The passkey is removed.",
    "session": "The session has ended.",
    "sessions": "You are signed out everywhere else.",
    "codes-removed": "One-time codes are off. Your password alone is enough to sign in.",
    "made": "All keys and links that you made have ended.",
}


@account.get("")
@requires(Action.SECURE_ACCOUNT)
def show(ctx: ViewContext) -> Response:
    """The account page."""
    return _account_page(ctx, current_person(ctx))


@account.post("/name")
@requires(Action.HAVE_ACCOUNT)
def rename(ctx: ViewContext) -> Response:
    """Change the name."""
    person, fields = current_person(ctx), form_fields(ctx)
    try:
        ctx.services.identity.accounts.rename(ctx, person, fields.get("name", ""))
    except InvalidField as error:
        return _account_page(ctx, person, error, fields)
    return _done("name")


@account.post("/password")
@requires(Action.HAVE_ACCOUNT)
def change_password(ctx: ViewContext) -> Response:
    """Change the password; requires the old one or, to set the first, a recent sign-in."""
    person, fields = current_person(ctx), form_fields(ctx)
    identity = ctx.services.identity
    try:
        if person.password_hash is not None:
            identity.sign_in.require_password(person, fields.get("old_password", ""))
        elif not identity.sessions.has_just_begun(ctx):
            identity.sign_in.confirm(person, "")
        identity.accounts.change_password(ctx, person, fields.get("password", ""))
    except InvalidField as error:
        return _account_page(ctx, person, error, fields)
    return _done("password")


@account.post("/sessions/<session_id>/end")
@requires(Action.HAVE_ACCOUNT)
def end_session(ctx: ViewContext, session_id: str) -> Response:
    """End one of the person's own sessions."""
    ctx.services.identity.sessions.end_one(ctx, session_id)
    return _done("session")


@account.post("/sessions/end-others")
@requires(Action.HAVE_ACCOUNT)
def end_other_sessions(ctx: ViewContext) -> Response:
    """End all other sessions."""
    ctx.services.identity.sessions.end_others(ctx)
    return _done("sessions")


@account.post("/invitations/<digest>/accept")
@requires(Action.HAVE_ACCOUNT)
def accept_invitation(ctx: ViewContext, digest: str) -> Response:
    """Accept an invitation to the person's own address, and join its project."""
    identity, caller, person = ctx.services.identity, ctx.caller, current_person(ctx)
    try:
        invitation = identity.invitations.accept_waiting(ctx, person, digest)
    except InvalidField as error:  # An administrator has already added the person.
        return _account_page(ctx, person, error)
    identity.sessions.choose_project(ctx, invitation.project_id or "")
    joined = invitation.project_id if caller.roles else None
    return see_other("pages.index", project=joined)


@account.post("/invitations/<digest>/decline")
@requires(Action.HAVE_ACCOUNT)
def decline_invitation(ctx: ViewContext, digest: str) -> Response:
    """Decline an invitation to the person's own address."""
    invitations = ctx.services.identity.invitations
    invitations.withdraw(ctx, invitations.waiting_one(current_person(ctx), digest).digest)
    return _done("declined")


@account.post("/made/end")
@requires(Action.HAVE_ACCOUNT)
def end_made(ctx: ViewContext) -> Response:
    """Revoke all keys and links that the person created."""
    ctx.services.identity.accounts.end_made(ctx, current_person(ctx))
    return _done("made")


@account.post("/delete")
@requires(Action.HAVE_ACCOUNT)
def delete(ctx: ViewContext) -> Response:
    """Delete the account; requires a recent sign-in or the password."""
    identity, person = ctx.services.identity, current_person(ctx)
    try:
        if not identity.sessions.has_just_begun(ctx):
            identity.sign_in.confirm(person, form_fields(ctx).get("password", ""))
        identity.accounts.delete(ctx, person)
    except (InvalidField, LastAdministrator) as error:
        return _account_page(ctx, person, InvalidField(str(error), field="deletion"))
    return see_other("sign_in.show")


def _done(what: str) -> Response:
    return see_other("account.show", done=what)


def _account_page(
    ctx: ViewContext,
    person: Person,
    error: InvalidField | None = None,
    fields: Mapping[str, str] | None = None,
) -> Response:
    identity = ctx.services.identity
    return form_page(
        "account/account.html",
        error,
        person=person,
        fields=fields or {},
        done=DONE.get(request.args.get("done", "")),
        invitations=[
            (each, identity.projects.get(each.project_id or "").name)
            for each in identity.invitations.waiting_for(person)
        ],
        failures=identity.sign_in.failures_of(person),
        sessions=identity.sessions.of_person(person.id),
        has_passwords=ctx.settings.has_passwords,
        has_passkeys=identity.passkeys is not None,
        passkeys=identity.passkeys.of_person(person.id) if identity.passkeys else (),
        must_confirm=not identity.sessions.has_just_begun(ctx),
        has_codes=identity.second_factors.has(person.id),
        recovery_codes_left=identity.second_factors.recovery_codes_left(person.id),
        made=identity.accounts.made_by(ctx, person),
        min_characters=MIN_CHARACTERS,
    )


# ---- user agent ----------------------------------------------------------------------------------

# Names of browsers for people, from User-Agent headers.


BROWSERS = (
    ("Edg/", "Edge"),
    ("OPR/", "Opera"),
    ("SamsungBrowser/", "Samsung Internet"),
    ("Firefox/", "Firefox"),
    ("FxiOS/", "Firefox"),
    ("CriOS/", "Chrome"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
)
"""The order matters: nearly all of them also claim to be Chrome and Safari."""

SYSTEMS = (
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Android", "Android"),
    ("Windows", "Windows"),
    ("Mac OS X", "Mac"),
    ("Linux", "Linux"),
)

MAX_CHARACTERS = 40


def device_words(agent: str) -> str:
    """A name such as "Firefox on Linux"; for programs, their own name."""
    browser = next((name for sign, name in BROWSERS if sign in agent), "")
    system = next((name for sign, name in SYSTEMS if sign in agent), "")
    if browser and system:
        return f"{browser} on {system}"
    return browser or system or agent[:MAX_CHARACTERS] or "Unknown device"


account.add_app_template_filter(device_words, "device")


# ---- all people, for administrators --------------------------------------------------------------

pages = page_blueprint("people", __name__, url_prefix="/people")


@pages.get("")
@requires(Action.ADMINISTER)
def index(ctx: ViewContext) -> Response:
    """The list of people."""
    return _page(ctx)


@pages.post("/invitations")
@requires(Action.ADMINISTER)
def add_invitation(ctx: ViewContext) -> Response:
    """Create an invitation link, and send it if mail is configured."""
    fields = form_fields(ctx)
    chosen = fields.get("project", ctx.caller.project or FIRST_PROJECT)
    role = fields.get("role") if chosen else None  # Without a project, only an account.
    project = ctx.services.identity.projects.get(chosen).id if role else None
    try:
        wanted = parse_role(role) if role else None
        link = invite(ctx, fields.get("email", ""), project_id=project, role=wanted)
    except InvalidField as error:
        return _page(ctx, error, fields=fields)
    return _page(ctx, link=link)


@pages.post("/invitations/<digest>/withdraw")
@requires(Action.ADMINISTER)
def withdraw(ctx: ViewContext, digest: str) -> Response:
    """Withdraw an invitation."""
    ctx.services.identity.invitations.withdraw(ctx, digest)
    return see_other("people.index")


@pages.post("/<person_id>/reset-link")
@requires(Action.ADMINISTER)
def make_reset_link(ctx: ViewContext, person_id: str) -> Response:
    """Create a password reset link, and send it if mail is configured."""
    person = _person(ctx, person_id)
    count_mail(ctx)
    code = ctx.services.identity.invitations.to_reset(ctx, person)
    url = absolute_url("invitations.reset", code=code)
    text = f"Open this link within a day to choose a new password for Sluice:\n\n{url}\n"
    return _page(
        ctx, link=send_link(ctx, person.email, url, subject="A new password for Sluice", text=text)
    )


@pages.post("/<person_id>")
@requires(Action.ADMINISTER)
def change(ctx: ViewContext, person_id: str) -> Response:
    """Block or unblock a person, grant or revoke administrator rights, or change their address."""
    person, identity = _person(ctx, person_id), ctx.services.identity
    accounts, fields = identity.accounts, form_fields(ctx)
    changes: dict[str, Callable[[], object]] = {
        "block": lambda: accounts.block(ctx, person),
        "unblock": lambda: accounts.unblock(ctx, person),
        "make_admin": lambda: accounts.make_admin(ctx, person),
        "make_member": lambda: accounts.end_admin(ctx, person),
        "email": lambda: accounts.change_email(ctx, person, fields.get("new_email", "")),
        "remove_codes": lambda: identity.second_factors.remove(ctx, person),
        "delete": lambda: accounts.delete(ctx, person),
    }
    wanted = fields.get("change", "")
    if wanted not in changes:
        raise InvalidField("The change is not one that this page makes.", field="change")
    try:
        changes[wanted]()
    except LastAdministrator as error:
        return _page(ctx, error)
    except InvalidField as error:
        return _page(ctx, error, field="new_email", fields={**fields, "person": person.id})
    return see_other("people.index")


def _person(ctx: ViewContext, person_id: str) -> Person:
    person = find_person(ctx, person_id)
    if person is None:
        raise EntryNotFound("There is no such person.")
    return person


def _page(
    ctx: ViewContext,
    error: UploadError | None = None,
    *,
    link: NewLink | None = None,
    **shown: Any,
) -> Response:
    identity, caller = ctx.services.identity, ctx.caller
    return form_page(
        "account/people.html",
        error,
        people=all_people(ctx),
        roles_of=all_roles(ctx),
        project_names={project.id: project.name for project in identity.projects.of(caller)},
        with_codes=identity.second_factors.people(),
        invitations=identity.invitations.waiting(),
        current_project=caller.project,
        link=link,
        has_mail=identity.mail.is_on,
        **shown,
    )
