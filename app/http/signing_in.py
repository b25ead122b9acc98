"""Sign-in code shared by the pages and the API."""

from __future__ import annotations

from flask import request, url_for
from werkzeug import Response

from app.access import audit
from app.access.audit import AuditAction
from app.access.people import Person
from app.core.errors import InvalidField, WrongCredentials
from app.http import session_cookie
from app.http.context import ViewContext

ALL_NOTED = 100
"""The audit log records each of this many failures of a network or account, then those at powers
of 2."""

PASSWORD, PASSWORD_AND_CODE = "password", "password+code"
"""Ways to sign in, as sessions and the audit log name them."""


def person_with(ctx: ViewContext, email: str, password: str) -> Person:
    """The person with this address and password; raises what `SignIn.with_password` does.

    This does not sign in a person with a second factor: see `SecondFactors`.
    """
    try:
        return ctx.services.identity.sign_in.with_password(
            email, password, address=request.remote_addr or "", device=_device()
        )
    except WrongCredentials as error:
        # Otherwise a stranger could fill the audit log.
        if error.failures <= ALL_NOTED or error.failures & (error.failures - 1) == 0:
            audit.note(
                ctx,
                AuditAction.SESSION_REFUSED,
                details={"email": email, "failures": error.failures},
            )
        raise


def require_code(ctx: ViewContext, person: Person, code: str) -> None:
    """Use up a code after the right password; raises what `SecondFactors.check` does."""
    identity = ctx.services.identity
    is_known = identity.sign_in.known_device(person, _device()) is not None
    try:
        identity.second_factors.check(person, code, is_known_device=is_known)
    except InvalidField:  # Waiting times limit their number: see `OF_CODES`.
        subject = f"person:{person.id}"
        audit.note(
            ctx,
            AuditAction.SESSION_REFUSED,
            subject,
            details={"email": person.email, "method": "code"},
        )
        raise


def require_known_way(ctx: ViewContext, person: Person) -> None:
    """Raise `InvalidField` if the person has a stronger way to sign in, and has not used it.

    Otherwise an attacker with only the password could add the required second factor.
    """
    if not ctx.caller.needs_second_factor:
        return
    identity = ctx.services.identity
    if identity.passkeys and identity.passkeys.of_person(person.id):
        raise InvalidField("Sign out, and sign in with your passkey.", field="password")
    if identity.second_factors.has(person.id):
        raise InvalidField("Sign out, and sign in with a one-time code.", field="password")
    if identity.openid and identity.openid.accounts.has_any(person.id):
        name = identity.openid.provider.name
        raise InvalidField(f"Sign out, and sign in with {name}.", field="password")


def must_confirm(ctx: ViewContext, person: Person) -> bool:
    """Whether the person signed in too long ago to add a way to sign in without confirming.

    Otherwise an attacker at an unattended browser could take over the account.
    """
    session = ctx.caller.session
    return not ctx.services.identity.sessions.has_just_begun(person.id, session)


def confirm(ctx: ViewContext, person: Person, password: str) -> None:
    """Raise `InvalidField` unless it is their password; without one they must sign in again."""
    sign_in = ctx.services.identity.sign_in
    if person.password_hash is None or not ctx.settings.passwords:
        raise InvalidField("Sign out and in again first, to show that it is you.", field="password")
    sign_in.confirm(person, password)


def signed_in(ctx: ViewContext, response: Response, person: Person, *, method: str) -> Response:
    """Add the cookies of a new session of that person to the response."""
    return session_cookie.begin_session(ctx, request, response, person, method=method)


def _device() -> str:
    """The browser's cookie of earlier sign-ins: see `SignIn.remember`."""
    return session_cookie.value_in(request.environ, session_cookie.DEVICE)


def next_page(wanted: str) -> str:
    """The page to open after sign-in: the one they wanted, or the start page."""
    return wanted if is_local_path(wanted) else url_for("pages.index")


def is_local_path(text: str) -> bool:
    """Whether the text is a path on this server (prevents open redirects).

    Two slashes begin a host, and in browsers so does a slash with a backslash; browsers also drop
    tabs and line breaks.
    """
    is_path = text.startswith("/") and not text.startswith("//") and "\\" not in text
    return is_path and text.isprintable() and " " not in text
