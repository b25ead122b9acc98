"""Puts the web application together. Only wiring."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from flask import Flask, Response, request
from werkzeug.exceptions import Forbidden

from app.admin import commands
from app.api import server as api_server
from app.api import uploads as api_uploads
from app.api import videos as api_videos
from app.delivery import blueprint as delivery
from app.protocols import batch, dropzone
from app.services import Services
from app.web import health, pages
from app.wire import context, problems

ROOT = Path(__file__).parent.parent

PAGE_POLICY = "; ".join(
    [
        "default-src 'self'",
        "img-src 'self' data: blob:",
        "media-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    ]
)
"""Content-Security-Policy of our pages: nothing inline, nothing from elsewhere."""

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def create_app(services: Services) -> Flask:
    """The WSGI application over `services`."""
    app = Flask("app", static_folder=str(ROOT / "static"), template_folder=str(ROOT / "templates"))
    app.config["SEND_FILE_MAX_AGE_DEFAULT"] = 0
    app.json.sort_keys = False  # type: ignore[attr-defined]
    app.url_map.strict_slashes = False
    context.init_app(app, services)
    problems.init_app(app)
    app.before_request(_refuse_other_sites)
    app.after_request(_protect_pages)
    for module in (pages, health, api_uploads, api_videos, api_server, delivery, dropzone, batch):
        app.register_blueprint(module.blueprint)
    commands.init_app(app)
    return app


def _refuse_other_sites() -> None:
    """A page elsewhere must not upload or delete here through a visitor's browser.

    Browsers name the page's origin with every such request; programs send none.
    """
    origin = request.headers.get("Origin")
    is_foreign = origin is not None and urlsplit(origin).netloc != request.host
    is_foreign = is_foreign or request.headers.get("Sec-Fetch-Site") == "cross-site"
    if is_foreign and request.method not in SAFE_METHODS:
        raise Forbidden("This server takes no requests from pages of other sites.")


def _protect_pages(response: Response) -> Response:
    response.headers.setdefault("Content-Security-Policy", PAGE_POLICY)
    response.headers.setdefault("X-Content-Type-Options", "nosniff")
    response.headers.setdefault("Referrer-Policy", "same-origin")
    return response
