"""What the pages and the API share of signing in."""

from __future__ import annotations

from flask import request, url_for
from werkzeug import Response

from app.domain.audit import AuditAction
from app.domain.errors import WrongCredentials
from app.http import session_cookie
from app.http.audited import audited
from app.http.context import current_services
from app.records.identity.people import Person


def person_with(email: str, password: str) -> Person:
    """Whose address and password these are; raises what `SignIn.with_password` does."""
    device = session_cookie.value_in(request.environ, session_cookie.DEVICE)
    try:
        return current_services().identity.sign_in.with_password(
            email, password, address=request.remote_addr or "", device=device
        )
    except WrongCredentials:
        audited(AuditAction.SESSION_REFUSED, email=email)
        raise


def signed_in(response: Response, person: Person, *, method: str) -> Response:
    """The response, with the cookies of a new session of that person."""
    return session_cookie.begin_session(request, response, person, method=method)


def next_page(wanted: str) -> str:
    """Where a person goes who has signed in: the page they wanted, or the start page."""
    return wanted if is_local_path(wanted) else url_for("pages.index")


def is_local_path(text: str) -> bool:
    """Whether the text leads to a page of this server and nowhere else.

    Two slashes begin a host, and so does a slash with a backslash in browsers, which also leave out
    tabs and line breaks.
    """
    is_path = text.startswith("/") and not text.startswith("//") and "\\" not in text
    return is_path and text.isprintable() and " " not in text
