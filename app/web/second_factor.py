"""One-time codes (second factor): set up on the account page, entered after the password."""

from __future__ import annotations

import segno
from flask import redirect, render_template, request
from markupsafe import Markup
from werkzeug import Response

from app.access.people import Person, current_person
from app.access.second_factor import SecondFactors, SetUp
from app.access.sessions import PASSWORD, PASSWORD_AND_CODE, require_known_way
from app.core.access import Action
from app.core.errors import InvalidField, TooManyAttempts, UploadError
from app.http import session_cookie
from app.http.access import requires
from app.http.bodies import form_fields
from app.http.context import ViewContext
from app.web.pages import form_page, page_blueprint, see_other

blueprint = page_blueprint("second_factor", __name__)


# ---- signing in ----------------------------------------------------------------------------------


def signed_in_or_asked(
    ctx: ViewContext, person: Person, target: str, *, method: str = PASSWORD
) -> Response:
    """Create a session; with a second factor, returns the page that asks for a code instead."""
    factors = _factors(ctx)
    if factors.has(person.id):
        mark = session_cookie.mark_of()
        return session_cookie.set_mark(_code_page(factors.ask(person, mark), target), mark)
    return session_cookie.begin_session(ctx, redirect(target, 303), person, method=method)


@blueprint.post("/sign-in/code")
@requires(Action.VISIT)
def sign_in(ctx: ViewContext) -> Response:
    """Create a session from a code and the token of a correct password."""
    fields = form_fields(ctx)
    token, target = fields.get("token", ""), session_cookie.next_page(fields.get("next", ""))
    person = _factors(ctx).person_of(
        token, session_cookie.value_in(request.environ, session_cookie.BROWSER)
    )
    try:
        require_code(ctx, person, fields.get("code", ""))
    except (InvalidField, TooManyAttempts) as error:
        return _code_page(token, target, error)
    _factors(ctx).spend(token)
    return session_cookie.begin_session(
        ctx, redirect(target, 303), person, method=PASSWORD_AND_CODE
    )


def require_code(ctx: ViewContext, person: Person, code: str) -> None:
    """Use up a code after the right password; raises what `SecondFactors.check` does."""
    device = session_cookie.value_in(request.environ, session_cookie.DEVICE)
    is_known = ctx.services.identity.sign_in.known_device(person, device) is not None
    _factors(ctx).check(ctx, person, code, is_known_device=is_known)


def _code_page(token: str, target: str, error: UploadError | None = None) -> Response:
    return form_page("account/code.html", error, token=token, target=target, error=error)


# ---- on the account page -------------------------------------------------------------------------


@blueprint.post("/account/codes/begin")
@requires(Action.SECURE_ACCOUNT)
def begin(ctx: ViewContext) -> Response:
    """Show a new secret, as text and as a QR code, and ask for the first code."""
    person = current_person(ctx)
    try:
        require_known_way(ctx, person)
        _require_confirmation(ctx, person)
    except InvalidField as error:
        return _refused(error)
    return _set_up_page(_factors(ctx).begin(ctx, person))


@blueprint.post("/account/codes")
@requires(Action.SECURE_ACCOUNT)
def add(ctx: ViewContext) -> Response | str:
    """Store the secret if the code matches it; the recovery codes are shown only once."""
    person, fields, factors = current_person(ctx), form_fields(ctx), _factors(ctx)
    try:
        require_known_way(ctx, person)
        set_up = factors.resume(ctx, person, fields.get("token", ""))
    except InvalidField as error:
        return _refused(error)
    try:
        codes = factors.add(ctx, person, set_up, fields.get("code", ""))
    except InvalidField as error:
        return _set_up_page(set_up, error)
    return render_template("account/recovery_codes.html", codes=codes, is_new=True)


@blueprint.post("/account/codes/renew")
@requires(Action.HAVE_ACCOUNT)
def renew_recovery_codes(ctx: ViewContext) -> Response | str:
    """Show new recovery codes; the old ones become invalid."""
    person = current_person(ctx)
    try:
        _require_confirmation(ctx, person)
    except InvalidField as error:
        return _refused(error)
    codes = _factors(ctx).renew_recovery_codes(ctx, person)
    return render_template("account/recovery_codes.html", codes=codes, is_new=False)


@blueprint.post("/account/codes/remove")
@requires(Action.HAVE_ACCOUNT)
def remove(ctx: ViewContext) -> Response:
    """Remove the one-time codes."""
    person = current_person(ctx)
    try:
        _require_confirmation(ctx, person)
    except InvalidField as error:
        return _refused(error)
    _factors(ctx).remove(ctx, person)
    return see_other("account.show", done="codes-removed")


def _factors(ctx: ViewContext) -> SecondFactors:
    return ctx.services.identity.second_factors


def _require_confirmation(ctx: ViewContext, person: Person) -> None:
    """Raise `InvalidField` unless the person signed in recently, or sends the password."""
    identity = ctx.services.identity
    if not identity.sessions.has_just_begun(ctx):
        identity.sign_in.confirm(person, form_fields(ctx).get("password", ""))


def _refused(error: InvalidField) -> Response:
    """A separate page for the problem: the account page cannot show that of another form."""
    return form_page("account/codes_refused.html", error, error=error)


def _set_up_page(set_up: SetUp, error: InvalidField | None = None) -> Response:
    picture = segno.make(set_up.uri, micro=False).svg_inline(border=3, light="#fff", omitsize=True)
    return form_page(
        "account/codes_set_up.html",
        error,
        set_up=set_up,
        picture=Markup(picture),  # noqa: S704 - made by segno from text that it escapes
        problem=str(error) if error else "",
    )
