"""One-time codes (second factor): set up on the account page, entered after the password."""

from __future__ import annotations

import segno
from flask import Blueprint, make_response, redirect, render_template, request, url_for
from markupsafe import Markup
from werkzeug import Response

from app.access import audit
from app.access.audit import AuditAction
from app.access.people import Person, find_person
from app.access.second_factor import SecondFactors, SetUp
from app.core.access import Action
from app.core.errors import InvalidField, NotSignedIn, TooManyAttempts, UploadError
from app.http.access import requires
from app.http.bodies import form_fields
from app.http.context import ViewContext
from app.http.origins import require_own_page
from app.http.problems import with_retry_after
from app.http.session_cookie import BROWSER, mark_of, set_mark, value_in
from app.http.signing_in import (
    PASSWORD,
    PASSWORD_AND_CODE,
    confirm,
    must_confirm,
    next_page,
    require_code,
    require_known_way,
    signed_in,
)

blueprint = Blueprint("second_factor", __name__)
blueprint.before_request(lambda: require_own_page(request))


# ---- signing in ----------------------------------------------------------------------------------


def signed_in_or_asked(
    ctx: ViewContext, person: Person, target: str, *, method: str = PASSWORD
) -> Response:
    """Create a session; with a second factor, returns the page that asks for a code instead."""
    factors = _factors(ctx)
    if factors.has(person.id):
        mark = mark_of(request)
        return set_mark(request, _code_page(factors.ask(person, mark), target), mark)
    return signed_in(ctx, redirect(target, 303), person, method=method)


@blueprint.post("/sign-in/code")
@requires(Action.VISIT)
def sign_in(ctx: ViewContext) -> Response:
    """Create a session from a code and the token of a correct password."""
    fields = form_fields(ctx)
    token, target = fields.get("token", ""), next_page(fields.get("next", ""))
    person = _factors(ctx).person_of(token, value_in(request.environ, BROWSER))
    try:
        require_code(ctx, person, fields.get("code", ""))
    except (InvalidField, TooManyAttempts) as error:
        return _code_page(token, target, error)
    _factors(ctx).spend(token)
    return signed_in(ctx, redirect(target, 303), person, method=PASSWORD_AND_CODE)


def _code_page(token: str, target: str, error: UploadError | None = None) -> Response:
    page = render_template("account/code.html", token=token, target=target, error=error)
    return with_retry_after(make_response(page, error.status_hint if error else 200), error)


# ---- on the account page -------------------------------------------------------------------------


@blueprint.post("/account/codes/begin")
@requires(Action.SECURE_ACCOUNT)
def begin(ctx: ViewContext) -> Response:
    """Show a new secret, as text and as a QR code, and ask for the first code."""
    person = _me(ctx)
    try:
        require_known_way(ctx, person)
        _require_confirmation(ctx, person)
    except InvalidField as error:
        return _refused(error)
    return _set_up_page(_factors(ctx).begin(person, ctx.caller.session))


@blueprint.post("/account/codes")
@requires(Action.SECURE_ACCOUNT)
def add(ctx: ViewContext) -> Response:
    """Store the secret if the code matches it; the recovery codes are shown only once."""
    person, fields, identity = _me(ctx), form_fields(ctx), ctx.services.identity
    factors, session = _factors(ctx), ctx.caller.session
    try:
        require_known_way(ctx, person)
        set_up = factors.resume(person, fields.get("token", ""), session)
    except InvalidField as error:
        return _refused(error)
    try:
        codes = factors.confirm(person, set_up, fields.get("code", ""))
    except InvalidField as error:
        return _set_up_page(set_up, error)
    identity.sessions.end_others(person.id, but=session)
    identity.sessions.strengthen(session, PASSWORD_AND_CODE)
    audit.note(
        ctx, AuditAction.FACTOR_ADDED, f"person:{person.id}", details={"email": person.email}
    )
    return _codes_page(codes, is_new=True)


@blueprint.post("/account/codes/renew")
@requires(Action.HAVE_ACCOUNT)
def renew_recovery_codes(ctx: ViewContext) -> Response:
    """Show new recovery codes; the old ones become invalid."""
    person = _me(ctx)
    try:
        _require_confirmation(ctx, person)
    except InvalidField as error:
        return _refused(error)
    codes = _factors(ctx).renew_recovery_codes(person.id)
    audit.note(
        ctx,
        AuditAction.RECOVERY_CODES_RENEWED,
        f"person:{person.id}",
        details={"email": person.email},
    )
    return _codes_page(codes, is_new=False)


@blueprint.post("/account/codes/remove")
@requires(Action.HAVE_ACCOUNT)
def remove(ctx: ViewContext) -> Response:
    """Remove the one-time codes."""
    person = _me(ctx)
    try:
        _require_confirmation(ctx, person)
    except InvalidField as error:
        return _refused(error)
    _factors(ctx).remove(person.id)
    audit.note(
        ctx, AuditAction.FACTOR_REMOVED, f"person:{person.id}", details={"email": person.email}
    )
    return redirect(url_for("account.show", done="codes-removed"), 303)


def _factors(ctx: ViewContext) -> SecondFactors:
    return ctx.services.identity.second_factors


def _me(ctx: ViewContext) -> Person:
    person = find_person(ctx, ctx.caller.id)
    if person is None:
        raise NotSignedIn("Your account was removed.")
    return person


def _require_confirmation(ctx: ViewContext, person: Person) -> None:
    """Raise `InvalidField` unless the person signed in recently, or sends the password."""
    if must_confirm(ctx, person):
        confirm(ctx, person, form_fields(ctx).get("password", ""))


def _refused(error: InvalidField) -> Response:
    """A separate page for the problem: the account page cannot show that of another form."""
    page = render_template("account/codes_refused.html", error=error)
    return make_response(page, error.status_hint)


def _set_up_page(set_up: SetUp, error: InvalidField | None = None) -> Response:
    picture = segno.make(set_up.uri, micro=False).svg_inline(border=3, light="#fff", omitsize=True)
    page = render_template(
        "account/codes_set_up.html",
        set_up=set_up,
        picture=Markup(picture),  # noqa: S704 - made by segno from text that it escapes
        problem=str(error) if error else "",
    )
    return make_response(page, error.status_hint if error else 200)


def _codes_page(codes: list[str], *, is_new: bool) -> Response:
    return make_response(render_template("account/recovery_codes.html", codes=codes, is_new=is_new))
