"""/api/session: who am I, sign in, sign out."""

from __future__ import annotations

from flask import Blueprint, jsonify, request
from werkzeug import Response

from app.core.access import Action, CallerKind
from app.core.errors import SecondFactorRequired
from app.http.access import requires
from app.http.bodies import json_object, member
from app.http.context import ViewContext
from app.http.origins import require_own_page
from app.http.session_cookie import end_session
from app.http.signing_in import PASSWORD, PASSWORD_AND_CODE, person_with, require_code, signed_in

blueprint = Blueprint("api_session", __name__, url_prefix="/api/session")
blueprint.before_request(lambda: require_own_page(request))


@blueprint.get("")
@requires(Action.VISIT)
def show(ctx: ViewContext) -> Response:
    """Who sends the request, and its role in each project."""
    caller = ctx.caller
    projects = [
        {"id": project.id, "name": project.name, "role": caller.roles[project.id]}
        for project in ctx.services.identity.projects.entered(caller)
    ]
    return jsonify(
        {
            "kind": caller.kind,
            "signed_in": caller.kind is not CallerKind.NOBODY,
            "name": caller.name,
            "is_admin": caller.is_admin,
            "project": caller.project or None,
            "projects": projects,
        }
    )


@blueprint.post("")
@requires(Action.VISIT)
def begin(ctx: ViewContext) -> Response:
    """Sign in with e-mail address, password and, with a second factor, a `code`."""
    body = json_object(ctx)
    code = member(body, "code", kind=str, default="")
    person = person_with(ctx, member(body, "email", kind=str), member(body, "password", kind=str))
    if not ctx.services.identity.second_factors.has(person.id):
        return signed_in(ctx, Response(status=204), person, method=PASSWORD)
    if not code:
        raise SecondFactorRequired("Send `code` too: a one-time code or a recovery code.")
    require_code(ctx, person, code)
    return signed_in(ctx, Response(status=204), person, method=PASSWORD_AND_CODE)


@blueprint.delete("")
@requires(Action.VISIT)
def end(ctx: ViewContext) -> Response:
    """Sign out."""
    return end_session(ctx, request, Response(status=204))
