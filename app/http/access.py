"""Authorizes requests: authenticates the caller, and determines the scope of the action."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from threading import Lock, Thread
from typing import Any, Concatenate, ParamSpec, TypeVar

from flask import Flask, Request, g
from werkzeug.exceptions import NotFound

from app.access.callers import Callers, Credentials
from app.access.services import IdentityServices
from app.core.access import ANONYMOUS, LOCAL, Action, Caller, CallerKind, Scope, scope_of
from app.core.errors import EntryNotFound, NotAllowed, UploadError
from app.http import origins, session_cookie
from app.http.context import (
    SENDING_KEY,
    Sending,
    ViewContext,
    context_of,
    current_services,
    view_context,
)
from app.http.mounts import LINK_KEY
from app.http.proxy import came_directly
from app.http.services import Services
from app.ingest.connection import break_off
from app.ingest.slots import SAFE_METHODS

# ---- access rules --------------------------------------------------------------------------------

# The action of each view, declared at its route: `@requires(Action.SHARE)`.
#
# A server with a view that declares none does not start.


View = TypeVar("View", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")

_RULE = "access_rule"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRule:
    """The access rule of a view."""

    action: Action
    is_below_links: bool
    """Also served below a link, although the view is public."""
    is_counted: bool
    """Counts toward the caller's rate limit, in requests per minute."""


class MissingRule(TypeError):
    """A view declares no action."""


def requires(
    action: Action, *, is_below_links: bool = False, is_counted: bool = True
) -> Callable[[Callable[Concatenate[ViewContext, P], R]], Callable[P, R]]:
    """Declares the action that a view authorizes; the decorator goes between route and view.

    The view is called with the context of the request as its first argument.
    """
    rule = AccessRule(action=action, is_below_links=is_below_links, is_counted=is_counted)

    def declare(view: Callable[Concatenate[ViewContext, P], R]) -> Callable[P, R]:
        @wraps(view)
        def with_context(*args: P.args, **kwargs: P.kwargs) -> R:
            return view(view_context(), *args, **kwargs)

        return with_rule(with_context, rule)

    return declare


def with_rule(view: View, rule: AccessRule) -> View:
    """Attaches a rule to a view that takes no context: for views that are not ours."""
    setattr(view, _RULE, rule)
    return view


def rules_of(app: Flask) -> Mapping[str, AccessRule]:
    """The rule of each endpoint; raises `MissingRule`."""
    for endpoint, view in app.view_functions.items():
        if not hasattr(view, _RULE):
            raise MissingRule(
                f"Nothing says who may use {endpoint}: write @requires(Action....) above "
                f"{view.__module__}.{view.__qualname__}, below its route. "
                "The actions are in app/core/access.py."
            )
    return {endpoint: getattr(view, _RULE) for endpoint, view in app.view_functions.items()}


# ---- active requests -----------------------------------------------------------------------------

# Re-authorizes active requests, and ends those whose access was revoked: a key revoked, a link
# closed, a session ended.
#
# A caller is authorized when its request begins, but a body may arrive for hours, and a download
# may take as long. Each process therefore re-authorizes these requests once a second, in a separate
# thread: a chunk pays for none of it. A request that is no longer authorized loses its connection,
# as if the network had failed; received bytes are kept or dropped as in that case, and the client's
# next request gets the reason. To revoke access, a write to the database is enough.


LOOK_SECONDS = 1.0
"""Interval of re-authorization; with callers cached for `RECENT_SECONDS`, a body ends 3 s after
access is revoked."""

log = logging.getLogger(__name__)

Ask = Callable[[], Scope]
"""Returns the current scope of the request's caller; raises the error that refuses it."""


@dataclass(frozen=True, slots=True, eq=False)
class _Body:
    environ: dict[str, Any]
    scope: Scope
    ask: Ask
    begun_at: float = field(default_factory=time.monotonic)

    def may_go_on(self) -> bool:
        """Whether the caller still has at least this scope; True if a server error prevents it."""
        try:
            return self.ask().includes(self.scope)
        except UploadError as error:
            return error.retryable
        except Exception:  # Other requests must still be re-authorized.
            log.exception("a request of %s cannot be checked", self.scope.sender)
            return True


@dataclass(frozen=True, slots=True)
class _GuardedSending:
    """Counts the bytes sent, and has the download re-authorized while it runs."""

    active: ActiveRequests
    body: _Body
    counted: Sending | None

    def began(self) -> None:
        if self.counted is not None:
            self.counted.began()
        self.active.guard(self, self.body)

    def ended(self, count: int) -> None:
        self.active.end(self)
        if self.counted is not None:
            self.counted.ended(count)


class ActiveRequests:
    """The active uploads and downloads of a process."""

    def __init__(self) -> None:
        self._bodies: dict[int, _Body] = {}
        self._changing = Lock()
        self._watching: Thread | None = None

    def begin(self, environ: dict[str, Any], scope: Scope, ask: Ask) -> None:
        """Register an authorized request; `ask` is called from another thread."""
        self.guard(environ, _Body(environ, scope, ask))

    def begin_download(self, environ: dict[str, Any], scope: Scope, ask: Ask) -> None:
        """Like `begin`, for a response sent after the application has returned."""
        body = _Body(environ, scope, ask)
        environ[SENDING_KEY] = _GuardedSending(self, body, environ.get(SENDING_KEY))

    def guard(self, key: object, body: _Body) -> None:
        """Re-authorize a body from now on, until `end(key)`."""
        with self._changing:
            self._bodies[id(key)] = body
            if self._watching is None:  # Not in the constructor: gunicorn forks later.
                self._watching = Thread(target=self._watch, name="revocation", daemon=True)
                self._watching.start()

    def end(self, key: object) -> None:
        """Unregister a body: for an upload's `environ` when the application is done.

        Its connection may then be reused.
        """
        if self._bodies:
            with self._changing:
                self._bodies.pop(id(key), None)

    def look(self, lasting_seconds: float = LOOK_SECONDS) -> None:
        """Re-authorize every request at least this old, and end those that are refused."""
        latest = time.monotonic() - lasting_seconds
        with self._changing:
            lasting = [each for each in self._bodies.items() if each[1].begun_at <= latest]
        for key, body in lasting:
            if body.may_go_on():
                continue
            with self._changing:  # Otherwise the connection may already serve its next request.
                if self._bodies.get(key) is body:
                    log.info("ended a request of %s, whose access was revoked", body.scope.sender)
                    break_off(body.environ)

    def _watch(self) -> None:
        while True:
            time.sleep(LOOK_SECONDS)
            try:
                self.look()
            except Exception:  # Without this thread, revocation would stop working.
                log.exception("requests under way cannot be checked")


# ---- access --------------------------------------------------------------------------------------


PROJECT_ID = "project_id"
"""The path parameter with the id of a project."""

OF_NO_PROJECT = {Action.VISIT, Action.MEASURE}
"""Actions independent of any project: no other check keeps their views from below a link."""

OF_ADMINISTRATORS = frozenset({Action.MANAGE, Action.AUDIT, Action.ADMINISTER})
"""Actions of administrators in projects they are not members of."""

OF_DOWNLOADS = frozenset({Action.WATCH, Action.DOWNLOAD})
"""Actions whose responses may be sent after the view has returned."""

LETS_IN = frozenset(
    {
        Action.SHARE,
        Action.MANAGE,
        Action.ADMINISTER,
        Action.HAVE_ACCOUNT,
        Action.SECURE_ACCOUNT,
    }
)
"""Actions that can grant access to others, or the same person another way to sign in. Such requests
are rare, and look up the caller in the database, not in the cache: otherwise a person whose access
another process has revoked could restore it within `RECENT_SECONDS`."""

PROJECT = "project"
"""The query parameter by which people with several projects choose one for a request."""

Find = Callable[[], tuple[Caller, Scope]]


def admit(
    request: Request, services: Services, rules: Mapping[str, AccessRule], active: ActiveRequests
) -> None:
    """Set a request's caller and scope; raises `NotSignedIn`, `NotAllowed`, `TooManyRequests`.

    The request must have an endpoint. Active uploads and downloads are re-authorized: see
    `ActiveRequests`. Refused requests count toward the rate limit of their address.
    """
    environ, rule = request.environ, rules[str(request.endpoint)]
    action = Action.VISIT if request.method == "OPTIONS" else rule.action
    if LINK_KEY in environ and rule.action in OF_NO_PROJECT and not rule.is_below_links:
        raise NotFound  # A link leads to uploads or videos, not to pages of members.
    is_safe = request.method in SAFE_METHODS and origins.OVERRIDE not in environ
    find = _finder(request, services.identity, action, fresh=action in LETS_IN and not is_safe)
    address = environ.get("REMOTE_ADDR", "")
    try:
        caller, scope = find()
    except UploadError:  # Guessed links and ids count, too.
        services.request_rate.check(None, address)
        raise
    if rule.is_counted:
        services.request_rate.check(caller, address)
    g.context = context_of(services, caller, scope)

    def ask() -> Scope:
        if caller.kind is CallerKind.SHARE_LINK:  # A download may outlast its ticket.
            return scope_of(services.identity.share_links.guest_by(caller.id), action)
        return find()[1]

    is_revocable = caller.kind is not CallerKind.LOCAL
    if is_revocable and action is Action.SEND and not is_safe:
        active.begin(environ, scope, ask)
    elif is_revocable and action in OF_DOWNLOADS:
        active.begin_download(environ, scope, ask)


def who_sees(request: Request) -> Caller:
    """The current principal, also on error pages; `ANONYMOUS` below a link."""
    context: ViewContext | None = g.get("context")
    if context is not None:
        return context.caller
    if LINK_KEY in request.environ:
        return ANONYMOUS
    services = current_services()
    if services.settings.is_open:
        return LOCAL
    try:
        return services.identity.sessions.caller(_credentials_of(request).session) or ANONYMOUS
    except UploadError:  # This may be the error page for an unreadable database.
        return ANONYMOUS


def _finder(request: Request, identity: IdentityServices, action: Action, *, fresh: bool) -> Find:
    """Returns a function that finds the request's caller and scope, now or while it runs."""
    sent = _credentials_of(request)
    in_path: str | None = (request.view_args or {}).get(PROJECT_ID)
    chosen = in_path or (request.args.get(PROJECT) if request.query_string else None)

    def find(*, fresh: bool = fresh) -> tuple[Caller, Scope]:
        caller = identity.callers.find(sent, fresh=fresh)
        try:
            admitted = caller
            if chosen is not None and chosen != caller.project:
                admitted = _in_project(identity, caller, chosen, action)
            return admitted, scope_of(admitted, action)
        except (NotAllowed, EntryNotFound):
            if fresh or caller.kind is not CallerKind.PERSON:
                raise
            # Another process may have granted access since the caller was cached.
            return find(fresh=True)

    if action is Action.VISIT:
        return lambda: _visitor(identity.callers, sent)
    if action is Action.MEASURE and _is_this_machine(request.environ):
        return lambda: (LOCAL, scope_of(LOCAL, action))
    return find


def _is_this_machine(environ: dict[str, Any]) -> bool:
    """Whether the request comes from a program on this machine, not through a proxy.

    By default nginx uses HTTP/1.0, which may be its only trace.
    """
    is_plain = environ.get("SERVER_PROTOCOL") != "HTTP/1.0" and came_directly(environ)
    return is_plain and environ.get("REMOTE_ADDR") in {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


def _visitor(callers: Callers, sent: Credentials) -> tuple[Caller, Scope]:
    """The caller of a public view; `ANONYMOUS` if its credentials are not valid."""
    try:
        caller = callers.find(sent)
    except UploadError:
        caller = ANONYMOUS
    return caller, scope_of(caller, Action.VISIT)


def _credentials_of(request: Request) -> Credentials:
    """The request's credentials. A session cookie from a page of another origin is ignored."""
    environ = request.environ
    is_ours = not origins.is_from_other_site(request)
    return Credentials(
        authorization=environ.get("HTTP_AUTHORIZATION", ""),
        link=environ.get(LINK_KEY),
        session=session_cookie.value_in(environ) if is_ours else "",
        cookies=environ.get("HTTP_COOKIE", ""),
        address=environ.get("REMOTE_ADDR", ""),
    )


def _in_project(identity: IdentityServices, caller: Caller, chosen: str, action: Action) -> Caller:
    """The caller in the project that the URL names; raises `EntryNotFound` for a non-member.

    Administrators manage every project, but see only the videos of those they are members of.
    They read the audit log of the whole server: there, the project only filters it.
    """
    if caller.kind is CallerKind.ANONYMOUS:
        return caller
    if chosen in caller.roles:
        return replace(caller, project=chosen)
    if not caller.is_admin or action not in OF_ADMINISTRATORS:
        raise EntryNotFound("There is no such project.")
    identity.projects.get(chosen)
    return caller if action is Action.AUDIT else replace(caller, project=chosen)
