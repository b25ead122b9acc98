"""/api/share-links: list, make, revoke."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from flask import Blueprint, Response, jsonify

from app.domain.access import Action
from app.domain.audit import AuditAction
from app.domain.errors import InvalidRequest
from app.domain.moments import instant, optional_instant, parse_expiry
from app.domain.upload import Upload, parse_upload_id
from app.http.access_rules import requires
from app.http.audited import audited
from app.http.bodies import json_object, member
from app.http.context import current_caller, current_scope, current_services
from app.http.proxy import absolute_url
from app.identity.share_links import ShareTerms
from app.records.identity.share_links import ShareLink

blueprint = Blueprint("api_share_links", __name__, url_prefix="/api/share-links")


@blueprint.get("")
@requires(Action.SHARE)
def index() -> Response:
    """The project's links that were not revoked, the newest first."""
    links = current_services().identity.share_links.of_project(current_caller().project)
    return jsonify({"links": [_document(link) for link in links]})


@blueprint.post("")
@requires(Action.SHARE)
def create() -> tuple[Response, int]:
    """A new link to the videos that the body names."""
    body = json_object()
    videos = _videos(member(body, "videos", kind=list))
    terms = ShareTerms(
        name=member(body, "name", kind=str, default=""),
        can_download=member(body, "can_download", kind=bool, default=False),
        password=member(body, "password", kind=str, default=""),
        max_views=member(body, "max_views", kind=int, default=None),
        expires_at=parse_expiry(body.get("expires"), datetime.now(UTC)),
    )
    links = current_services().identity.share_links
    link = links.make(videos, terms, created_by=current_caller().sender)
    audited(AuditAction.LINK_MADE, f"share_link:{link.id}", project=link.project_id, name=link.name)
    return jsonify(_document(link)), 201


@blueprint.delete("/<link_id>")
@requires(Action.SHARE)
def revoke(link_id: str) -> tuple[str, int]:
    """End a link at once."""
    current_services().identity.share_links.revoke(current_caller().project, link_id)
    audited(AuditAction.LINK_CLOSED, f"share_link:{link_id}")
    return "", 204


def _videos(ids: list[Any]) -> list[Upload]:
    library, scope = current_services().library, current_scope()
    if not all(isinstance(each, str) for each in ids):
        raise InvalidRequest("The member videos must hold ids.")
    return [library.get(scope, parse_upload_id(each)) for each in ids]


def _document(link: ShareLink) -> dict[str, Any]:
    return {
        "id": link.id,
        "url": absolute_url("shared.show", code=link.code),
        "name": link.name,
        "videos": list(link.videos),
        "can_download": link.can_download,
        "has_password": link.password_hash is not None,
        "views": link.views,
        "max_views": link.max_views,
        "created": instant(link.created_at),
        "expires": optional_instant(link.expires_at),
    }
