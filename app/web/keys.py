"""/api/keys: the keys of the caller's project."""

from __future__ import annotations

from datetime import UTC, datetime

from flask import Blueprint, Response, jsonify

from app.core.access import Action, parse_role
from app.core.moments import parse_expiry
from app.http.access import requires
from app.http.bodies import json_object, member
from app.http.context import ViewContext
from app.http.documents import key_document

api = Blueprint("api_keys", __name__, url_prefix="/api/keys")


@api.get("")
@requires(Action.MANAGE)
def index(ctx: ViewContext) -> Response:
    """The keys that have not been revoked, without their secrets."""
    keys = ctx.services.identity.keys.of_project(ctx)
    return jsonify({"keys": [key_document(key) for key in keys]})


@api.post("")
@requires(Action.MANAGE)
def make(ctx: ViewContext) -> tuple[Response, int]:
    """Create a key; only this response shows it."""
    body = json_object(ctx)
    role = parse_role(member(body, "role", kind=str))
    ctx.caller.require_at_most_own(role)
    key, secret = ctx.services.identity.keys.make(
        ctx,
        name=member(body, "name", kind=str),
        role=role,
        expires_at=parse_expiry(body.get("expires"), datetime.now(UTC)),
    )
    return jsonify({**key_document(key), "key": secret}), 201


@api.delete("/<key_id>")
@requires(Action.MANAGE)
def revoke(ctx: ViewContext, key_id: str) -> tuple[str, int]:
    """Revoke a key, and everything created with it."""
    ctx.services.identity.keys.revoke(ctx, key_id)
    return "", 204
