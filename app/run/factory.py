"""Assembles the web application. Only wiring."""

from __future__ import annotations

from pathlib import Path

from flask import Flask, Response
from flask.globals import request_ctx

from app.core.access import Action
from app.deliver import archive, media, playback
from app.http import access, context, origins, problems
from app.http.access import AccessRule, ActiveRequests, rules_of, with_rule
from app.http.mounts import LinkMiddleware
from app.http.origins import PAGE_POLICY
from app.http.proxy import ConnectionMiddleware
from app.http.services import Services
from app.protocols import batch, lanes
from app.protocols.forms import libraries, upload
from app.protocols.ietf import blueprint as ietf
from app.protocols.tus import blueprint as tus
from app.run.monitoring import probes, status
from app.run.monitoring.instruments import Instruments
from app.run.monitoring.requests import RequestMonitor
from app.web import (
    audit,
    invitations,
    keys,
    navigation,
    passkeys,
    people,
    project,
    projects,
    second_factor,
    server,
    session,
    share_link_page,
    share_links,
    templating,
    upload_link_page,
    upload_links,
    uploads,
    videos,
    webhooks,
)

ROOT = Path(__file__).parents[2]

PROTECTION = {
    "Content-Security-Policy": PAGE_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    # Nearly every response depends on the caller: no cache may serve it to others, nor the browser
    # after sign-out. Media and static files set their own Cache-Control.
    "Cache-Control": "no-store",
}
"""Default headers of every response; views may set others."""

BLUEPRINTS = (
    *(videos.api, videos.pages, uploads.blueprint, share_links.api, share_links.pages),
    *(share_link_page.blueprint, upload_links.api, upload_links.pages, upload_link_page.blueprint),
    *(projects.api, projects.pages, project.blueprint, keys.api, webhooks.api),
    *(webhooks.pages, audit.api, audit.pages, people.pages, invitations.blueprint),
    *(session.api, session.pages, passkeys.blueprint, session.provider, people.account),
    *(second_factor.blueprint, navigation.blueprint, server.blueprint, server.description),
    *(media.blueprint, playback.blueprint, archive.blueprint),
    *(upload.blueprint, libraries.resumablejs, libraries.flow, libraries.simple_uploader),
    *(libraries.filepond, libraries.fineuploader, batch.blueprint, lanes.blueprint),
    *(tus.blueprint, ietf.blueprint),
    *(probes.health, probes.metrics, status.blueprint, status.api_blueprint),
)


def create_app(services: Services, instruments: Instruments | None = None) -> Flask:
    """The WSGI application for `services`; counts with `instruments`, its own by default."""
    app = Flask("app", static_folder=str(ROOT / "static"), template_folder=str(ROOT / "templates"))
    app.config["SEND_FILE_MAX_AGE_DEFAULT"] = 0
    app.json.sort_keys = False  # type: ignore[attr-defined]
    app.url_map.strict_slashes = False
    instruments = instruments or Instruments()
    context.init_app(app, services)
    app.context_processor(lambda: {"who": access.who_sees(request_ctx.request)})
    probes.init_app(app, instruments)
    problems.init_app(app)
    templating.init_app(app)
    for blueprint in BLUEPRINTS:
        app.register_blueprint(blueprint)
    static = AccessRule(action=Action.VISIT, is_below_links=True, is_counted=False)
    with_rule(app.view_functions["static"], static)
    _surround_requests(app, services, RequestMonitor(instruments))
    below_links = LinkMiddleware(app.wsgi_app)
    inner = ConnectionMiddleware(below_links, services.settings.trusted_proxies, services.node)
    alive = probes.AliveMiddleware(inner, instruments, PROTECTION, services.node)
    app.wsgi_app = alive  # type: ignore[method-assign]
    return app


def _surround_requests(app: Flask, services: Services, monitor: RequestMonitor) -> None:
    """Register what runs around every view, in few hooks: Flask checks each on every request."""
    rules, active, settings = rules_of(app), ActiveRequests(), services.settings
    names, is_open, cors_origins = settings.names, settings.is_open, settings.cors_origins

    @app.before_request
    def begin() -> Response | None:
        request = request_ctx.request
        monitor.begin(request)
        origins.refuse_other_names(request, names)
        origins.refuse_other_sites(request, cors_origins, is_open=is_open)
        preflight = origins.answer_preflight(request, cors_origins)
        # Without an endpoint, there is no such URL or method: routing raises the error.
        if preflight is None and request.endpoint is not None:
            access.admit(request, services, rules, active)
        return preflight

    @app.after_request
    def finish(response: Response) -> Response:
        request = request_ctx.request
        given = set(response.headers.keys())
        for name, value in PROTECTION.items():
            if name not in given:
                response.headers.add(name, value)
        if cors_origins:
            origins.open_to_origin(request, response, cors_origins)
        monitor.count(request, response)
        return response

    @app.teardown_request
    def end(_error: BaseException | None) -> None:
        active.end(request_ctx.request.environ)
        monitor.end(request_ctx.request)
