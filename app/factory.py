"""Puts the web application together. Only wiring."""

from __future__ import annotations

from pathlib import Path

from flask import Flask, Response

from app.admin import commands
from app.api import openapi as api_openapi
from app.api import server as api_server
from app.api import uploads as api_uploads
from app.api import videos as api_videos
from app.delivery import blueprint as delivery
from app.http import context, cors, hosts, problems
from app.http.kept_connections import KeptConnections
from app.http.proxy import TrustedProxies
from app.monitoring import health, metrics, server_timing, status
from app.monitoring.instruments import Instruments
from app.pages import blueprint as pages
from app.protocols import batch
from app.protocols.forms import filepond, fineuploader, flow, resumablejs, simple_uploader, upload
from app.protocols.ietf import blueprint as ietf
from app.protocols.tus import blueprint as tus
from app.services import Services

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


def create_app(services: Services, instruments: Instruments | None = None) -> Flask:
    """The WSGI application over `services`, counting with `instruments`, or with its own."""
    app = Flask("app", static_folder=str(ROOT / "static"), template_folder=str(ROOT / "templates"))
    app.config["SEND_FILE_MAX_AGE_DEFAULT"] = 0
    app.json.sort_keys = False  # type: ignore[attr-defined]
    app.url_map.strict_slashes = False
    server_timing.init_app(app)
    metrics.init_app(app, instruments or Instruments())
    context.init_app(app, services)
    problems.init_app(app)
    hosts.init_app(app)
    cors.init_app(app)
    app.after_request(_protect_pages)
    for module in (pages, health, metrics, status):
        app.register_blueprint(module.blueprint)
    app.register_blueprint(status.api_blueprint)
    for module in (delivery, upload, batch, tus, ietf):
        app.register_blueprint(module.blueprint)
    for module in (resumablejs, flow, simple_uploader, filepond, fineuploader):
        app.register_blueprint(module.blueprint)
    for module in (api_uploads, api_videos, api_server, api_openapi):
        app.register_blueprint(module.blueprint)
    commands.init_app(app)
    behind_proxies = TrustedProxies(app.wsgi_app, services.settings.trusted_proxies)
    app.wsgi_app = KeptConnections(behind_proxies)  # type: ignore[method-assign]
    return app


def _protect_pages(response: Response) -> Response:
    response.headers.setdefault("Content-Security-Policy", PAGE_POLICY)
    response.headers.setdefault("X-Content-Type-Options", "nosniff")
    response.headers.setdefault("Referrer-Policy", "same-origin")
    return response
