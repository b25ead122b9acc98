"""Signing in and out: /api/session, the sign-in page, and the OpenID provider."""

from __future__ import annotations

from typing import TypedDict

from flask import Blueprint, jsonify, redirect, render_template, request, url_for
from msgspec import Struct
from werkzeug import Response as BaseResponse
from werkzeug.exceptions import NotFound

from app.access.openid import OpenId
from app.access.people import Person, has_administrator
from app.access.sessions import PASSWORD, PASSWORD_AND_CODE, PROVIDER
from app.access.signing import LIFETIME
from app.core import errors
from app.core.access import Action, CallerKind, Role
from app.http import session_cookie
from app.http.access import requires
from app.http.bodies import form_fields, takes
from app.http.context import ViewContext
from app.http.openapi import describes
from app.web.pages import form_page, page_blueprint
from app.web.second_factor import require_code, signed_in_or_asked

# ---- JSON ----------------------------------------------------------------------------------------

# /api/session: who am I, sign in, sign out.


api = page_blueprint("api_session", __name__, url_prefix="/api/session")


class SessionProject(TypedDict):
    """A project of the current principal."""

    id: str
    name: str
    role: Role


class SessionDocument(TypedDict):
    """The person, key or link, and its role in each project."""

    kind: CallerKind
    """`local` on a server without accounts."""
    signed_in: bool
    """Whether the request is authenticated."""
    name: str
    is_admin: bool
    """Whether it administers the server."""
    project: str | None
    """The project that new uploads go to."""
    projects: list[SessionProject]


class SignInDocument(Struct):
    """E-mail address, password and, with a second factor, a code."""

    email: str
    password: str
    code: str | None = None
    """A one-time code or a recovery code, of an account that has them."""


@api.get("")
@requires(Action.VISIT)
@describes("showSession", {200: SessionDocument})
def show(ctx: ViewContext) -> BaseResponse:
    """Get the current principal."""
    caller = ctx.caller
    projects = [
        {"id": project.id, "name": project.name, "role": caller.roles[project.id]}
        for project in ctx.services.identity.projects.entered(caller)
    ]
    return jsonify(
        {
            "kind": caller.kind,
            "signed_in": caller.kind is not CallerKind.ANONYMOUS,
            "name": caller.name,
            "is_admin": caller.is_admin,
            "project": caller.project or None,
            "projects": projects,
        }
    )


@api.post("")
@requires(Action.VISIT)
@takes(SignInDocument)
@describes(
    "signIn",
    {204: "Signed in; the cookie is the session."},
    *(errors.WrongCredentials, errors.SecondFactorRequired, errors.NotAllowed),
    *(errors.TooManyAttempts, errors.ServerBusy),
)
def begin(ctx: ViewContext, sent: SignInDocument) -> BaseResponse:
    """Sign in with e-mail address and password.

    403 `not_allowed`: the account is blocked, or passwords are turned off. 503: many people are
    signing in; the attempt does not count.
    """
    person = _person_with(ctx, sent.email, sent.password)
    if not ctx.services.identity.second_factors.has(person.id):
        return session_cookie.begin_session(ctx, BaseResponse(status=204), person, method=PASSWORD)
    if not sent.code:
        raise errors.SecondFactorRequired("Send `code` too: a one-time code or a recovery code.")
    require_code(ctx, person, sent.code)
    return session_cookie.begin_session(
        ctx, BaseResponse(status=204), person, method=PASSWORD_AND_CODE
    )


@api.delete("")
@requires(Action.VISIT)
@describes("signOut", {204: "The session has ended, if there was one."})
def end(ctx: ViewContext) -> BaseResponse:
    """Sign out."""
    return session_cookie.end_session(ctx, BaseResponse(status=204))


# ---- pages ---------------------------------------------------------------------------------------

# Signing in and out.


pages = page_blueprint("sign_in", __name__)


@pages.get("/sign-in", endpoint="show")
@requires(Action.VISIT)
def show_page(ctx: ViewContext) -> BaseResponse:
    """The sign-in form; `next` is the path to open after sign-in."""
    target = session_cookie.next_page(request.args.get("next", ""))
    if ctx.caller.kind is not CallerKind.ANONYMOUS:
        return redirect(target, 303)
    return _page(ctx, target)


@pages.get("/sign-in/done")
@requires(Action.VISIT)
def done(ctx: ViewContext) -> str:
    """The page after a sign-in in another tab, for a page whose session had ended."""
    return render_template("account/signed_in.html")


@pages.post("/sign-in")
@requires(Action.VISIT)
def sign_in(ctx: ViewContext) -> BaseResponse:
    """Create a session; errors are shown above the form."""
    fields = form_fields(ctx)
    target, email = session_cookie.next_page(fields.get("next", "")), fields.get("email", "")
    try:
        person = _person_with(ctx, email, fields.get("password", ""))
        return signed_in_or_asked(ctx, person, target)
    except (
        errors.WrongCredentials,
        errors.TooManyAttempts,
        errors.NotAllowed,
        errors.ServerBusy,
    ) as error:
        return _page(ctx, target, email, error)


@pages.route("/sign-in/forgotten", methods=["GET", "POST"])
@requires(Action.VISIT)
def forgotten(ctx: ViewContext) -> BaseResponse:
    """Request a password reset link; the response does not reveal who has an account."""
    identity = ctx.services.identity
    if not (identity.forgotten_passwords.is_on and ctx.settings.has_passwords):
        raise NotFound("This server sends no mail.")
    if request.method != "POST":
        return form_page("account/forgotten.html", email="")
    email = form_fields(ctx).get("email", "")
    try:
        identity.forgotten_passwords.send_link_later(email, address=request.remote_addr or "")
    except errors.TooManyAttempts as error:
        return form_page("account/forgotten.html", error, email=email)
    return form_page("account/forgotten.html", email=email, is_sent=True)


@pages.post("/sign-out")
@requires(Action.VISIT)
def sign_out(ctx: ViewContext) -> BaseResponse:
    """End the session; `next` is the path to open when signed out."""
    wanted = request.args.get("next", "")
    target = wanted if session_cookie.is_local_path(wanted) else url_for("sign_in.show")
    return session_cookie.end_session(ctx, redirect(target, 303))


def _person_with(ctx: ViewContext, email: str, password: str) -> Person:
    device = session_cookie.value_in(request.environ, session_cookie.DEVICE)
    return ctx.services.identity.sign_in.with_password(ctx, email, password, device=device)


def _page(
    ctx: ViewContext, target: str, email: str = "", error: errors.UploadError | None = None
) -> BaseResponse:
    identity = ctx.services.identity
    return form_page(
        "account/sign_in.html",
        error,
        target=target,
        email=email,
        has_passwords=ctx.settings.has_passwords,
        has_passkeys=identity.passkeys is not None,
        provider=identity.openid.provider.name if identity.openid else "",
        is_set_up=has_administrator(ctx),
        sends_mail=identity.forgotten_passwords.is_on,
    )


# ---- OpenID provider -----------------------------------------------------------------------------

# A redirect to the provider, and its callback.

WAITING = "sluice-provider"
"""The cookie of a browser that was redirected to the provider."""

provider = Blueprint("openid", __name__, url_prefix="/sign-in/provider")


@provider.get("", endpoint="begin")
@requires(Action.VISIT)
def begin_at_provider(ctx: ViewContext) -> BaseResponse:
    """Redirect the browser to the provider; it finally arrives at the path `next`."""
    target = session_cookie.next_page(request.args.get("next", ""))
    url, cookie = _openid(ctx).provider.begin(_callback(), next_path=target)
    seconds = int(LIFETIME.total_seconds())
    return session_cookie.set_cookie(redirect(url, 303), cookie, WAITING, seconds=seconds)


@provider.get("/callback")
@requires(Action.VISIT)
def finish(ctx: ViewContext) -> BaseResponse:
    """Create a session for a valid response of the provider.

    A GET that changes something: the browser must send the cookie with the response's `state`,
    which works once.
    """
    openid = _openid(ctx)
    cookie = session_cookie.value_in(request.environ, WAITING)
    person, target = openid.finish(ctx, request.args.to_dict(), cookie, _callback())
    response = session_cookie.begin_session(ctx, redirect(target, 303), person, method=PROVIDER)
    return session_cookie.set_cookie(response, "", WAITING)


def _callback() -> str:
    """The redirect URI, which the operator registers at the provider."""
    return url_for("openid.finish", _external=True)


def _openid(ctx: ViewContext) -> OpenId:
    openid = ctx.services.identity.openid
    if openid is None:
        raise NotFound("This server has no sign-in service.")
    return openid
