"""Who asks, with what services, and under which request id."""

from __future__ import annotations

import re
import secrets
from typing import Protocol, cast

from flask import Flask, Request, Response, current_app, request

from app.domain.upload import Upload
from app.services import Services

IMPLICIT_OWNER = "local"
"""Whose every upload is until there are accounts."""

REQUEST_ID_KEY = "sluice.request_id"
UPLOAD_ID_KEY = "sluice.upload_id"
"""Where the access log finds both in the WSGI environment."""

PROBLEM_KEY = "sluice.problem"
"""Where an answer that is an error leaves its code."""

SENDING_KEY = "sluice.sending"
"""Where a `Sending` may be, to be told of stored bytes that go out."""

_EXTENSION = "sluice"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Sending(Protocol):
    """Who counts what is sent behind the application's back."""

    def began(self) -> None:
        """The bytes of a file are handed to the server."""
        ...

    def ended(self, count: int) -> None:
        """So many of them went out, all or not."""
        ...


def current_services() -> Services:
    """The services of the application that handles the request."""
    return cast(Services, current_app.extensions[_EXTENSION])


def current_owner() -> str:
    """The owner of what the request makes and may see."""
    return IMPLICIT_OWNER


def note_upload(upload: Upload) -> Upload:
    """Name the upload in the access log of this request."""
    request.environ[UPLOAD_ID_KEY] = upload.id
    return upload


def init_app(app: Flask, services: Services) -> None:
    """Give every request of `app` its services."""
    app.extensions[_EXTENSION] = services


def name_request(request: Request) -> None:
    """Give the request an id: a proxy's, if it sends a sane one, or ours."""
    given = request.environ.get("HTTP_X_REQUEST_ID", "")
    request.environ[REQUEST_ID_KEY] = (
        given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
    )


def show_request_id(request: Request, response: Response) -> None:
    """Tell the client the id, by which the operator finds the request in the log."""
    response.headers["X-Request-ID"] = request.environ.get(REQUEST_ID_KEY, "")
