"""The context of a request: its services, who sends it and what that reaches, its id."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import Any, Protocol, cast

from flask import Flask, Request, Response, current_app, g, request

from app.core.access import NOBODY, Action, Caller, Scope, scope_of
from app.core.upload import Upload
from app.db.context import RequestContext
from app.http.services import Services

REQUEST_ID_KEY = "sluice.request_id"
UPLOAD_ID_KEY = "sluice.upload_id"
"""Keys of the WSGI environment under which the access log finds both."""

PROBLEM_KEY = "sluice.problem"
"""Key of the WSGI environment for the code of an error answer."""

SENDING_KEY = "sluice.sending"
"""Key of the WSGI environment for a `Sending`, which counts the bytes of downloads."""

_EXTENSION = "sluice"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Sending(Protocol):
    """Counts bytes that are sent after the application has returned."""

    def began(self) -> None:
        """The server starts to send a file."""
        ...

    def ended(self, count: int) -> None:
        """The server has sent `count` bytes, whether or not that was all."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewContext(RequestContext):
    """What a view is given by `requires`: the request's context, and the services."""

    services: Services


def view_context() -> ViewContext:
    """The context of the current request; before anyone is let in, that of nobody."""
    services = current_services()
    context = services.context
    caller: Caller = g.get("caller", NOBODY)
    scope: Scope = g.scope if "scope" in g else scope_of(NOBODY, Action.VISIT)
    return ViewContext(
        database=context.database,
        clock=context.clock,
        new_id=context.new_id,
        settings=context.settings,
        caller=caller,
        scope=scope,
        address=request.remote_addr or "",
        services=services,
    )


def current_services() -> Services:
    """The services of the application that handles this request."""
    return cast(Services, current_app.extensions[_EXTENSION])


def current_caller() -> Caller:
    """Who sends this request."""
    caller: Caller = g.caller
    return caller


def current_scope() -> Scope:
    """The uploads that this request may reach, and where its new ones go."""
    scope: Scope = g.scope
    return scope


def note_upload(upload: Upload) -> Upload:
    """Name the upload in the access log of this request."""
    request.environ[UPLOAD_ID_KEY] = upload.id
    return upload


def init_app(app: Flask, services: Services) -> None:
    """Give every request of `app` its services."""
    app.extensions[_EXTENSION] = services


def has_services(app: Flask) -> bool:
    """Whether `app` has them already."""
    return _EXTENSION in app.extensions


def name_request(environ: dict[str, Any]) -> str:
    """Give the request an id: the proxy's if it sends a valid one, else a random one."""
    given = environ.get("HTTP_X_REQUEST_ID", "")
    name = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
    environ[REQUEST_ID_KEY] = name
    return name


def show_request_id(request: Request, response: Response) -> None:
    """Return the id, so that a client's report can be found in the log."""
    response.headers["X-Request-ID"] = request.environ.get(REQUEST_ID_KEY, "")
