"""/api/share-links: list, make, change, revoke."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, jsonify

from app.access.audit import AuditAction
from app.access.share_links import ShareTerms
from app.core.access import Action
from app.core.errors import InvalidRequest
from app.core.upload import Upload, parse_upload_id
from app.http.access import requires
from app.http.audited import audited
from app.http.bodies import json_object, member
from app.http.context import ViewContext
from app.http.share_links import share_document, share_terms_in

blueprint = Blueprint("api_share_links", __name__, url_prefix="/api/share-links")


@blueprint.get("")
@requires(Action.SHARE)
def index(ctx: ViewContext) -> Response:
    """The project's links that were not revoked, the newest first."""
    links = ctx.services.identity.share_links.of_project(ctx.caller.project)
    return jsonify({"links": [share_document(link) for link in links]})


@blueprint.post("")
@requires(Action.SHARE)
def create(ctx: ViewContext) -> tuple[Response, int]:
    """A new link to the videos that the body names."""
    body = json_object(ctx)
    videos = _videos(ctx, member(body, "videos", kind=list))
    terms = share_terms_in(body, ShareTerms())
    links = ctx.services.identity.share_links
    link = links.make(videos, terms, created_by=ctx.caller.sender)
    audited(
        ctx, AuditAction.LINK_MADE, f"share_link:{link.id}", project=link.project_id, name=link.name
    )
    return jsonify(share_document(link)), 201


@blueprint.patch("/<link_id>")
@requires(Action.SHARE)
def change(ctx: ViewContext, link_id: str) -> Response:
    """Change what is named of its terms; its address, its videos and its views stay."""
    links = ctx.services.identity.share_links
    link = links.get(ctx.caller.project, link_id)
    changed = links.change(link, share_terms_in(json_object(ctx), links.terms(link)))
    audited(ctx, AuditAction.LINK_CHANGED, f"share_link:{link_id}", name=changed.name)
    return jsonify(share_document(changed))


@blueprint.delete("/<link_id>")
@requires(Action.SHARE)
def revoke(ctx: ViewContext, link_id: str) -> tuple[str, int]:
    """End a link at once."""
    ctx.services.identity.share_links.revoke(ctx.caller.project, link_id)
    audited(ctx, AuditAction.LINK_CLOSED, f"share_link:{link_id}")
    return "", 204


def _videos(ctx: ViewContext, ids: list[Any]) -> list[Upload]:
    library, scope = ctx.services.library, ctx.scope
    if not all(isinstance(each, str) for each in ids):
        raise InvalidRequest("The member videos must hold ids.")
    return [library.get(scope, parse_upload_id(each)) for each in ids]
