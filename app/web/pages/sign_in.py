"""Signing in and out."""

from __future__ import annotations

from flask import Blueprint, make_response, redirect, render_template, request, url_for
from werkzeug import Response
from werkzeug.exceptions import NotFound

from app.core.access import Action, CallerKind
from app.core.errors import (
    NotAllowed,
    ServerBusy,
    TooManyAttempts,
    UploadError,
    WrongCredentials,
)
from app.http.access import requires
from app.http.bodies import form_fields
from app.http.context import ViewContext
from app.http.origins import require_own_page
from app.http.problems import with_retry_after
from app.http.session_cookie import end_session
from app.http.signing_in import is_local_path, next_page, person_with
from app.web.pages.second_factor import signed_in_or_asked

blueprint = Blueprint("sign_in", __name__)
blueprint.before_request(lambda: require_own_page(request))


@blueprint.get("/sign-in")
@requires(Action.VISIT)
def show(ctx: ViewContext) -> Response:
    """The form, for whoever is not signed in; `next` is the path where that person goes then."""
    target = next_page(request.args.get("next", ""))
    if ctx.caller.kind is not CallerKind.NOBODY:
        return redirect(target, 303)
    return _page(ctx, target)


@blueprint.get("/sign-in/done")
@requires(Action.VISIT)
def done(ctx: ViewContext) -> str:
    """For whoever has signed in beside a page whose session had ended."""
    return render_template("account/signed_in.html")


@blueprint.post("/sign-in")
@requires(Action.VISIT)
def sign_in(ctx: ViewContext) -> Response:
    """Begin a session; what is wrong is shown above the form."""
    fields = form_fields(ctx)
    target, email = next_page(fields.get("next", "")), fields.get("email", "")
    try:
        return signed_in_or_asked(ctx, person_with(ctx, email, fields.get("password", "")), target)
    except (WrongCredentials, TooManyAttempts, NotAllowed, ServerBusy) as error:
        return _page(ctx, target, email, error)


@blueprint.route("/sign-in/forgotten", methods=["GET", "POST"])
@requires(Action.VISIT)
def forgotten(ctx: ViewContext) -> Response:
    """Ask for a link to choose another password; the response does not tell who has an account."""
    identity = ctx.services.identity
    if not (identity.forgotten_passwords.is_on and identity.sign_in.has_passwords):
        raise NotFound("This server sends no mail.")
    if request.method != "POST":
        return make_response(render_template("account/forgotten.html", email=""))
    email, error = form_fields(ctx).get("email", ""), None
    try:
        identity.forgotten_passwords.send_link_later(email, address=request.remote_addr or "")
    except TooManyAttempts as found:
        error = found
    page = render_template("account/forgotten.html", email=email, error=error, is_sent=not error)
    return with_retry_after(make_response(page, error.status_hint if error else 200), error)


@blueprint.post("/sign-out")
@requires(Action.VISIT)
def sign_out(ctx: ViewContext) -> Response:
    """End the session; `next` is the path of a page for whoever is signed out."""
    wanted = request.args.get("next", "")
    target = wanted if is_local_path(wanted) else url_for("sign_in.show")
    return end_session(ctx, request, redirect(target, 303))


def _page(
    ctx: ViewContext, target: str, email: str = "", error: UploadError | None = None
) -> Response:
    identity = ctx.services.identity
    page = render_template(
        "account/sign_in.html",
        target=target,
        email=email,
        error=error,
        has_passwords=identity.sign_in.has_passwords,
        has_passkeys=identity.passkeys is not None,
        provider=identity.openid.provider.name if identity.openid else "",
        is_set_up=identity.people.has_administrator(),
        sends_mail=identity.forgotten_passwords.is_on,
    )
    response = make_response(page, error.status_hint if error else 200)
    return with_retry_after(response, error)
