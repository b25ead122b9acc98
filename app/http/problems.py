"""Error responses: problem+json (RFC 9457) for programs, a page for people.

The only place where the error tree meets HTTP. Blueprints raise; a protocol that needs more than
this adds an error handler of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, NotRequired, TypedDict

from flask import Flask, Response, jsonify, redirect, render_template, request, url_for
from werkzeug import Response as BaseResponse
from werkzeug.exceptions import HTTPException, InternalServerError, NotFound

from app.access.people import administrators, find_person
from app.core import errors
from app.core.json_types import Count, keywords
from app.db.errors import operator_message
from app.http.access import who_sees
from app.http.context import PROBLEM_KEY, current_services
from app.http.mounts import LINK_KEY

MAX_ACCEPT_CHARACTERS = 2000
"""Browsers send about 150. A longer Accept is ignored: Werkzeug needs 7.5 s to parse the 720 KB
that 90 headers of 8 KB can hold, and blocks the worker's other requests for that time."""

BEARER = 'Bearer realm="Sluice"'
BASIC = 'Basic realm="Sluice", charset="UTF-8"'

log = logging.getLogger(__name__)


CODES = [
    error.code
    for error in vars(errors).values()
    if isinstance(error, type)
    and issubclass(error, errors.UploadError)
    and error is not errors.UploadError
]
"""Codes of our own errors."""

HTTP_CODES = [
    *("bad_request", "forbidden", "not_found", "method_not_allowed", "precondition_failed"),
    *("requested_range_not_satisfiable", "internal_server_error"),
]
"""Codes of Werkzeug's errors."""


class ProblemDocument(TypedDict):
    """A problem document (RFC 9457).

    Example:
        {
            "type": "urn:sluice:problem:too_large",
            "title": "The file is too large",
            "status": 413,
            "detail": "The largest upload this server takes is 1099511627776 bytes.",
            "code": "too_large",
            "retryable": false
        }
    """

    type: Annotated[str, keywords(pattern="^urn:sluice:problem:")]
    title: str
    status: Annotated[int, keywords(minimum=400, maximum=599)]
    detail: str
    """For people; programs decide by `code`."""
    code: Annotated[str, keywords(enum=CODES + HTTP_CODES)]
    retryable: bool
    """Whether the same request may succeed later."""
    left: NotRequired[Count]
    """Bytes left of the quota of the project."""
    quota: NotRequired[Count]
    """Bytes that all files of the project may have together."""
    field: NotRequired[str]
    """The member or field that `invalid_field` is about."""


@dataclass(frozen=True, slots=True)
class Problem:
    """The members of a problem document; `type` is derived from `code`.

    `members` are those that only some problems have.
    """

    status: int
    code: str
    title: str
    detail: str
    retryable: bool
    retry_after_seconds: int | None = None
    members: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, error: errors.UploadError) -> Problem:
        """A domain error as a problem."""
        return cls(
            error.status_hint,
            error.code,
            error.title,
            str(error),
            error.retryable,
            error.retry_after_seconds,
            error.members,
        )

    @classmethod
    def of_http(cls, error: HTTPException) -> Problem:
        """One of Werkzeug's errors (routing, bad JSON, a bug) as a problem."""
        status = error.code or 500
        code = error.name.lower().replace(" ", "_").replace("'", "")
        detail = error.description or error.name
        if detail == NotFound.description:  # Werkzeug's advice for people who type URLs.
            detail = "This server has nothing at that address."
        return cls(status, code, error.name, detail, status >= 500)

    def to_json(self) -> dict[str, object]:
        """The document."""
        return {
            "type": f"urn:sluice:problem:{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "retryable": self.retryable,
            **self.members,
        }


def prefers_html() -> bool:
    """Whether the request comes from a person's browser rather than from a program."""
    if len(request.headers.get("Accept", "")) > MAX_ACCEPT_CHARACTERS:
        return False
    accepted = request.accept_mimetypes
    best = accepted.best_match(["application/json", "text/html"], default="application/json")
    return best == "text/html" and accepted["text/html"] > accepted["application/json"]


def answer(problem: Problem, members: Mapping[str, object] | None = None) -> Response:
    """The problem as a page for people, or as a document with the further `members`."""
    if not prefers_html():
        return answer_json(problem, members)
    if problem.code == errors.SecondFactorMissing.code:
        page = render_template("errors/second_factor.html")
    elif problem.code == errors.NoProject.code:
        services = current_services()
        you = find_person(services.context, who_sees(request).id)
        page = render_template(
            "errors/no_project.html",
            you=you,
            administrators=administrators(services.context),
            invitations=services.identity.invitations.waiting_for(you) if you else [],
        )
    else:
        page = render_template("errors/error.html", problem=problem)
    return _finished(problem, Response(page))


def answer_json(problem: Problem, members: Mapping[str, object] | None = None) -> Response:
    """The problem as a document, regardless of the Accept header."""
    response = jsonify({**problem.to_json(), **(members or {})})
    response.content_type = "application/problem+json"
    return _finished(problem, response)


def _finished(problem: Problem, response: Response) -> Response:
    request.environ[PROBLEM_KEY] = problem.code
    response.status_code = problem.status
    if problem.status == errors.NotSignedIn.status_hint:
        # RFC 9110, section 11.6.1; with Basic a browser would show a prompt.
        is_browser = "HTTP_SEC_FETCH_MODE" in request.environ
        response.headers["WWW-Authenticate"] = BEARER if is_browser else f"{BEARER}, {BASIC}"
    return with_retry_after(response, problem)


def with_retry_after(response: Response, error: Problem | errors.UploadError | None) -> Response:
    """Add Retry-After to the response if the error has a time for it."""
    if error is not None and error.retry_after_seconds is not None:
        response.headers["Retry-After"] = str(error.retry_after_seconds)
    return response


def init_app(app: Flask) -> None:
    """Register error handlers that turn every exception into a response."""
    app.register_error_handler(errors.UploadError, _upload_error)
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(Exception, _bug)


def report(error: errors.UploadError) -> None:
    """Log errors that the operator must know about."""
    if isinstance(error, errors.StorageFailed):
        log.error("%s", operator_message(error))  # Includes the disk's own error and the path.


def _upload_error(error: errors.UploadError) -> Response | BaseResponse:
    report(error)
    is_page = request.method in {"GET", "HEAD"} and LINK_KEY not in request.environ
    is_visit = is_page and "HTTP_AUTHORIZATION" not in request.environ
    if type(error) is errors.NotSignedIn and is_visit and prefers_html():
        target = f"{request.script_root}{request.full_path}".rstrip("?")
        return redirect(url_for("sign_in.show", next=target), 303)
    field = error.field if isinstance(error, errors.InvalidField) else ""
    return answer(Problem.of(error), {"field": field} if field else None)


def _http_error(error: HTTPException) -> Response | HTTPException:
    if (error.code or 500) < 400:
        return error  # Werkzeug's redirects are exceptions too.
    response = answer(Problem.of_http(error))
    for name, value in error.get_headers():
        if name.lower() not in {"content-type", "content-length"}:
            response.headers[name] = value
    return response


def _bug(error: Exception) -> Response:
    log.error("unexpected error", exc_info=error)
    return answer(Problem.of_http(InternalServerError()))
