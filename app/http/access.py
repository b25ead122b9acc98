"""Lets a request in, or refuses it: who sends it, what it asks for, what that reaches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from flask import Request, g
from werkzeug.exceptions import NotFound

from app.access.callers import Callers, Credentials
from app.access.services import IdentityServices
from app.core.access import LOCAL, NOBODY, Action, Caller, CallerKind, Scope, scope_of
from app.core.errors import EntryNotFound, NotAllowed, UploadError
from app.http import origins, session_cookie
from app.http.access_rules import AccessRule
from app.http.context import current_services
from app.http.mounts import LINK_KEY
from app.http.proxy import came_directly
from app.http.under_way import UnderWay
from app.ingest.slots import SAFE_METHODS

PROJECT_ID = "project_id"
"""The part of a path that names one."""

OF_NO_PROJECT = {Action.VISIT, Action.MEASURE}
"""What anybody may do whatever the project, so that nothing else keeps it from below a link."""

OF_ADMINISTRATORS = frozenset({Action.MANAGE, Action.AUDIT, Action.ADMINISTER})
"""What administrators may do in projects that they are not members of."""

OF_DOWNLOADS = frozenset({Action.WATCH, Action.DOWNLOAD})
"""What may go on sending after the view has returned."""

LETS_IN = frozenset(
    {
        Action.SHARE,
        Action.MANAGE,
        Action.ADMINISTER,
        Action.HAVE_ACCOUNT,
        Action.SECURE_ACCOUNT,
    }
)
"""What lets others in, or the same person in another way. Requests that do are rare, and ask the
database who sends them: otherwise somebody whom another process has shut out could undo it within
`RECENT_SECONDS`."""

PROJECT = "project"
"""The parameter by which people with several projects choose one for a request."""

Find = Callable[[], tuple[Caller, Scope]]


def admit(request: Request, rules: Mapping[str, AccessRule], under_way: UnderWay) -> None:
    """Note who sends a request; raises `NotSignedIn`, `NotAllowed`, `TooManyRequests`.

    Uploads and downloads go on as long as they would be let in again: see `UnderWay`. What is
    refused counts for its address.
    """
    if request.endpoint is None:  # No such URL, or not with this method: routing says so.
        return
    rule = rules[request.endpoint]
    action = Action.VISIT if request.method == "OPTIONS" else rule.action
    if LINK_KEY in request.environ and rule.action in OF_NO_PROJECT and not rule.is_below_links:
        raise NotFound  # A link leads to uploads or videos, and not to the pages of people.
    is_safe = request.method in SAFE_METHODS and origins.OVERRIDE not in request.environ
    find = _finder(request, action, anew=action in LETS_IN and not is_safe)
    g.caller, g.scope = _counted(request, find, is_counted=rule.is_counted)
    is_sending = action is Action.SEND and not is_safe
    if is_sending and g.caller.kind is not CallerKind.LOCAL:
        under_way.begin(request.environ, g.scope, lambda: find()[1])
    elif action in OF_DOWNLOADS and g.caller.kind is not CallerKind.LOCAL:
        is_guest = g.caller.kind is CallerKind.SHARE_LINK
        ask = _guest_asker(g.caller, action) if is_guest else lambda: find()[1]
        under_way.begin_download(request.environ, g.scope, ask)


def who_sees(request: Request) -> Caller:
    """Who sees a page, also one that refuses; below a link nobody."""
    if "caller" in g:
        caller: Caller = g.caller
        return caller
    if LINK_KEY in request.environ:
        return NOBODY
    services = current_services()
    if services.settings.is_open:
        return LOCAL
    try:
        return services.identity.sessions.caller(_credentials_of(request).session) or NOBODY
    except UploadError:  # This page may say that the database cannot be read.
        return NOBODY


def _finder(request: Request, action: Action, *, anew: bool) -> Find:
    """Finds who sends the request and what it reaches, now or while it runs."""
    identity, sent = current_services().identity, _credentials_of(request)
    chosen = _chosen_project(request)

    def admitted(caller: Caller) -> tuple[Caller, Scope]:
        if chosen is not None and chosen != caller.project:
            caller = _in_project(identity, caller, chosen, action)
        return caller, scope_of(caller, action)

    def find() -> tuple[Caller, Scope]:
        caller = identity.callers.find(sent, anew=anew)
        try:
            return admitted(caller)
        except (NotAllowed, EntryNotFound):
            if anew or caller.kind is not CallerKind.PERSON:
                raise
            # Another process may have let them in since this one has looked them up.
            return admitted(identity.callers.find(sent, anew=True))

    if action is Action.VISIT:
        return lambda: _visitor(identity.callers, sent)
    if action is Action.MEASURE and _is_this_machine(request.environ):
        return lambda: (LOCAL, scope_of(LOCAL, action))
    return find


def _guest_asker(guest: Caller, action: Action) -> Callable[[], Scope]:
    """Finds what a guest still reaches: a download may take longer than its ticket is good for."""
    share_links = current_services().identity.share_links
    return lambda: scope_of(share_links.guest_by(guest.id), action)


def _counted(request: Request, find: Find, *, is_counted: bool) -> tuple[Caller, Scope]:
    """What `find` returns, unless the caller or its address asks too often."""
    rate, address = current_services().request_rate, request.environ.get("REMOTE_ADDR", "")
    try:
        caller, scope = find()
    except UploadError:  # Guessed links and ids count too.
        rate.check(None, address)
        raise
    if is_counted:
        rate.check(caller, address)
    return caller, scope


def _is_this_machine(environ: dict[str, Any]) -> bool:
    """Whether a program on this machine asks, and no proxy for somebody else.

    nginx speaks HTTP/1.0 if nobody tells it otherwise, and may show in no other way.
    """
    is_plain = environ.get("SERVER_PROTOCOL") != "HTTP/1.0" and came_directly(environ)
    return is_plain and environ.get("REMOTE_ADDR") in {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


def _visitor(callers: Callers, sent: Credentials) -> tuple[Caller, Scope]:
    """Whoever it is may come in, even with a key that works no longer."""
    try:
        caller = callers.find(sent)
    except UploadError:
        caller = NOBODY
    return caller, scope_of(caller, Action.VISIT)


def _credentials_of(request: Request) -> Credentials:
    """A session counts on our own pages alone: those of other origins are not the person's."""
    environ = request.environ
    is_ours = not origins.is_from_other_site(request)
    return Credentials(
        authorization=environ.get("HTTP_AUTHORIZATION", ""),
        link=environ.get(LINK_KEY),
        session=session_cookie.value_in(environ) if is_ours else "",
        cookies=environ.get("HTTP_COOKIE", ""),
        address=environ.get("REMOTE_ADDR", ""),
    )


def _chosen_project(request: Request) -> str | None:
    """The project that the URL names, in its path or behind it."""
    in_path: str | None = (request.view_args or {}).get(PROJECT_ID)
    return in_path or (request.args.get(PROJECT) if request.query_string else None)


def _in_project(identity: IdentityServices, caller: Caller, chosen: str, action: Action) -> Caller:
    """The caller in the project that the URL names; raises `EntryNotFound` for a stranger to it.

    Administrators manage every project, and see the videos only of those they are members of.
    They read the audit log of the whole server: there, the project only filters it.
    """
    if caller.kind is CallerKind.NOBODY:
        return caller
    if chosen in caller.roles:
        return replace(caller, project=chosen)
    if not caller.is_admin or action not in OF_ADMINISTRATORS:
        raise EntryNotFound("There is no such project.")
    identity.projects.get(chosen)
    return caller if action is Action.AUDIT else replace(caller, project=chosen)
