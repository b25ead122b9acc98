"""Lets a request in, or refuses it: who sends it, what it asks for, what that reaches."""

from __future__ import annotations

from dataclasses import replace

from flask import Request, g

from app.domain.access import Action, Caller, CallerKind, scope_of
from app.domain.errors import UploadNotFound
from app.http.access_rules import RULES
from app.http.context import current_services
from app.http.mounts import LINK_KEY
from app.identity.callers import Credentials

PROJECT = "project"
"""The parameter by which people with several projects choose one for a request."""


def admit(request: Request) -> None:
    """Note the caller and the scope of a request; raises `NotSignedIn` or `NotAllowed`.

    A URL without a rule is refused: `RULES` must name every one.
    """
    if request.endpoint is None:  # No such URL, or not with this method: routing says so.
        return
    action = Action.VISIT if request.method == "OPTIONS" else RULES[request.endpoint]
    caller = _in_chosen_project(request, _caller_of(request))
    g.caller, g.scope = caller, scope_of(caller, action)


def _caller_of(request: Request) -> Caller:
    environ = request.environ
    sent = Credentials(
        authorization=environ.get("HTTP_AUTHORIZATION", ""),
        link=environ.get(LINK_KEY),
        cookies=environ.get("HTTP_COOKIE", ""),
        address=environ.get("REMOTE_ADDR", ""),
    )
    return current_services().identity.callers.find(sent)


def _in_chosen_project(request: Request, caller: Caller) -> Caller:
    if caller.kind is not CallerKind.PERSON or not request.query_string:
        return caller
    chosen = request.args.get(PROJECT, caller.project)
    if chosen == caller.project:
        return caller
    if chosen not in caller.roles:
        raise UploadNotFound("There is no such project.")
    return replace(caller, project=chosen)
