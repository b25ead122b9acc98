"""/api/keys: the keys of the caller's project."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime

from flask import Blueprint, Response, jsonify

from app.access.audit import AuditAction
from app.core.access import Action, parse_role
from app.core.moments import parse_expiry
from app.http.access import requires
from app.http.audited import audited
from app.http.bodies import json_object, member
from app.http.context import ViewContext
from app.http.documents import key_document

api = Blueprint("api_keys", __name__, url_prefix="/api/keys")


@api.get("")
@requires(Action.MANAGE)
def index(ctx: ViewContext) -> Response:
    """The keys that were not revoked, without their secrets."""
    keys = ctx.services.identity.keys.of_project(ctx.scope.target())
    return jsonify({"keys": [key_document(key) for key in keys]})


@api.post("")
@requires(Action.MANAGE)
def make(ctx: ViewContext) -> tuple[Response, int]:
    """A new key; this answer alone shows it."""
    body, project = json_object(ctx), ctx.scope.target()
    role = parse_role(member(body, "role", kind=str))
    ctx.caller.require_at_most_own(role)
    key, secret = ctx.services.identity.keys.make(
        project,
        name=member(body, "name", kind=str),
        role=role,
        created_by=ctx.caller.sender,
        expires_at=parse_expiry(body.get("expires"), datetime.now(UTC)),
    )
    audited(ctx, AuditAction.KEY_MADE, f"key:{key.id}", name=key.name, role=key.role)
    return jsonify({**key_document(key), "key": secret}), 201


@api.delete("/<key_id>")
@requires(Action.MANAGE)
def revoke(ctx: ViewContext, key_id: str) -> tuple[str, int]:
    """End a key, and what was made with it."""
    ended = ctx.services.identity.keys.revoke(ctx.scope.target(), key_id)
    audited(ctx, AuditAction.KEY_REVOKED, f"key:{key_id}", **asdict(ended))
    return "", 204
