"""/api/upload-links: links through which strangers send files, made and closed by members."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify

from app.access.audit import AuditAction
from app.access.upload_links import LinkTerms, UploadLink
from app.core.access import Action
from app.http.access import requires
from app.http.audited import audited
from app.http.bodies import json_object
from app.http.context import ViewContext
from app.http.upload_links import link_document, received_document, subject_of, terms_in

blueprint = Blueprint("api_upload_links", __name__, url_prefix="/api/upload-links")

LATEST_UPLOADS = 100
"""Shown of one link, with the names of their senders."""


@blueprint.get("")
@requires(Action.SHARE)
def index(ctx: ViewContext) -> Response:
    """All upload links of the project, the newest first."""
    links = ctx.services.identity.upload_links.of_project(ctx.scope.target())
    return jsonify({"links": [link_document(link) for link in links]})


@blueprint.post("")
@requires(Action.SHARE)
def create(ctx: ViewContext) -> tuple[Response, int]:
    """Make a link."""
    links = ctx.services.identity.upload_links
    link = links.make(
        ctx.scope.target(),
        terms_in(ctx, json_object(ctx), LinkTerms()),
        created_by=ctx.caller.sender,
    )
    audited(ctx, AuditAction.LINK_MADE, subject_of(link), name=link.name)
    return jsonify(link_document(link)), 201


@blueprint.get("/<link_id>")
@requires(Action.SHARE)
def show(ctx: ViewContext, link_id: str) -> Response:
    """One link, and the latest of what came through it."""
    link = _link(ctx, link_id)
    received = ctx.services.identity.upload_links.received(link, LATEST_UPLOADS)
    uploads = [received_document(each) for each in received]
    return jsonify({**link_document(link), "uploads": uploads})


@blueprint.patch("/<link_id>")
@requires(Action.SHARE)
def change(ctx: ViewContext, link_id: str) -> Response:
    """Change what is named of its terms; what it has taken stays."""
    links, link = ctx.services.identity.upload_links, _link(ctx, link_id)
    changed = links.change(link, terms_in(ctx, json_object(ctx), links.terms(link)))
    audited(ctx, AuditAction.LINK_CHANGED, subject_of(link), name=changed.name)
    return jsonify(link_document(changed))


@blueprint.delete("/<link_id>")
@requires(Action.SHARE)
def close(ctx: ViewContext, link_id: str) -> tuple[str, int]:
    """Close the link at once, also for requests under way."""
    link = ctx.services.identity.upload_links.close(_link(ctx, link_id))
    audited(ctx, AuditAction.LINK_CLOSED, subject_of(link), name=link.name)
    return "", 204


def _link(ctx: ViewContext, link_id: str) -> UploadLink:
    links = ctx.services.identity.upload_links
    return links.get(ctx.scope.target(), link_id)
