"""The context of a request: its services, caller and scope."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, cast

from flask import Flask, current_app, g, request

from app.core.access import ANONYMOUS, Action, Caller, Scope, scope_of
from app.core.upload import Upload
from app.db.context import RequestContext
from app.http.services import Services

UPLOAD_ID_KEY = "sluice.upload_id"
"""Key of the WSGI environment from which the access log reads the id of the upload."""

PROBLEM_KEY = "sluice.problem"
"""Key of the WSGI environment for the code of an error response."""

SENDING_KEY = "sluice.sending"
"""Key of the WSGI environment for a `Sending`, which counts the bytes of downloads."""

_EXTENSION = "sluice"


class Sending(Protocol):
    """Counts bytes that are sent after the application has returned."""

    def began(self) -> None:
        """Called when the server starts to send a file."""
        ...

    def ended(self, count: int) -> None:
        """Called when the server has stopped sending, after `count` bytes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewContext(RequestContext):
    """The first argument of a view: the request's context and the services."""

    services: Services


def context_of(services: Services, caller: Caller, scope: Scope) -> ViewContext:
    """A context for the current request."""
    context = services.context
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


def view_context() -> ViewContext:
    """The context of the current request; its caller is `ANONYMOUS` until `admit` has set one."""
    context: ViewContext | None = g.get("context")
    if context is not None:
        return context
    return context_of(current_services(), ANONYMOUS, scope_of(ANONYMOUS, Action.VISIT))


def current_services() -> Services:
    """The services of the application that handles this request."""
    return cast(Services, current_app.extensions[_EXTENSION])


def note_upload(upload: Upload) -> Upload:
    """Add the upload's id to this request's line in the access log."""
    request.environ[UPLOAD_ID_KEY] = upload.id
    return upload


def init_app(app: Flask, services: Services) -> None:
    """Make `services` available to the requests of `app`."""
    app.extensions[_EXTENSION] = services


def has_services(app: Flask) -> bool:
    """Whether `init_app` was called for `app`."""
    return _EXTENSION in app.extensions
