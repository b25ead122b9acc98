"""What pages share: blueprints, responses to forms, fields, and what pages of links need."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from flask import Blueprint, make_response, redirect, render_template, request, url_for
from werkzeug import Response

from app.core.errors import InvalidField, UploadError
from app.core.numbers import parse_digits
from app.http.origins import require_own_page
from app.http.problems import Problem, answer_json, prefers_html, with_retry_after


def page_blueprint(name: str, module: str, *, url_prefix: str | None = None) -> Blueprint:
    """A blueprint that refuses forms of other sites."""
    blueprint = Blueprint(name, module, url_prefix=url_prefix)
    blueprint.before_request(lambda: require_own_page(request))
    return blueprint


def form_page(
    template: str, error: UploadError | None = None, /, *, field: str | None = None, **shown: Any
) -> Response:
    """A page with forms; after an error it has the error's status.

    The template finds an error of a field in `problems`, by `field` or else by the error's own
    name for it. It finds another error in `error`, unless `shown` has one.
    """
    if field is None and isinstance(error, InvalidField):
        field = error.field
    problems = {} if error is None or field is None else {field: str(error)}
    values = {"fields": {}, "problems": problems, "error": None if problems else error, **shown}
    page = make_response(render_template(template, **values), error.status_hint if error else 200)
    return with_retry_after(page, error)


def see_other(endpoint: str, **values: Any) -> Response:
    """The redirect after a form."""
    return redirect(url_for(endpoint, **values), 303)


# ---- pages of links ------------------------------------------------------------------------------


def closed_page(error: UploadError, words: str) -> Response:
    """The response to a request for a link, or a video of one, that is closed or unknown."""
    problem = Problem.of(error)
    if not prefers_html():
        return answer_json(problem)
    page = render_template("shared/closed.html", title=problem.title, words=words)
    return make_response(page, problem.status)


def set_link_cookie(
    response: Response, name: str, value: str, *, path: str, lifetime: timedelta
) -> None:
    """Set a cookie that is sent only to this link."""
    response.set_cookie(
        name,
        value,
        max_age=lifetime,
        path=path,
        secure=request.is_secure,
        httponly=True,
        samesite="Lax",
    )


# ---- fields --------------------------------------------------------------------------------------


def number_in(fields: Mapping[str, str], name: str) -> int | None:
    """The number in an optional field; raises `InvalidField` unless it is above 0."""
    text = fields.get(name, "").strip()
    number = parse_digits(text) if text else None
    if text and not number:
        raise InvalidField("This must be a number above 0.", field=name)
    return number
