"""/api/keys: the keys of the caller's project."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TypedDict

from flask import Blueprint, Response, jsonify
from msgspec import Struct

from app.core.access import Action, parse_role
from app.core.errors import InvalidField
from app.core.json_types import Expiry, MemberRole, Name
from app.core.moments import parse_expiry
from app.http.access import requires
from app.http.bodies import takes
from app.http.context import ViewContext
from app.http.documents import KeyDocument, key_document
from app.http.openapi import describes

api = Blueprint("api_keys", __name__, url_prefix="/api/keys")


class NewKeyDocument(Struct):
    """A new API key."""

    name: Name
    role: MemberRole
    """Not above yours."""
    expires: Expiry = None
    """A time, or seconds from now; without it, the key does not expire."""


class KeyWithSecret(KeyDocument):
    """The key. Its secret is shown only here.

    One that is made with a key expires no later than that.
    """

    key: str
    """The secret."""


class KeysDocument(TypedDict):
    """The keys that were not revoked, the newest first."""

    keys: list[KeyDocument]


@api.get("")
@requires(Action.MANAGE)
@describes("listKeys", {200: KeysDocument})
def index(ctx: ViewContext) -> Response:
    """List the API keys of a project, without their secrets."""
    keys = ctx.services.identity.keys.of_project(ctx)
    return jsonify({"keys": [key_document(key) for key in keys]})


@api.post("")
@requires(Action.MANAGE)
@takes(NewKeyDocument)
@describes("makeKey", {201: KeyWithSecret}, InvalidField)
def make(ctx: ViewContext, new: NewKeyDocument) -> tuple[Response, int]:
    """Create an API key."""
    role = parse_role(new.role)
    ctx.caller.require_at_most_own(role)
    key, secret = ctx.services.identity.keys.make(
        ctx,
        name=new.name,
        role=role,
        expires_at=parse_expiry(new.expires, datetime.now(UTC)),
    )
    return jsonify({**key_document(key), "key": secret}), 201


@api.delete("/<key_id>")
@requires(Action.MANAGE)
@describes("revokeKey", {204: "Revoked."})
def revoke(ctx: ViewContext, key_id: str) -> tuple[str, int]:
    """Revoke an API key and everything created with it.

    Its active requests end within seconds.
    """
    ctx.services.identity.keys.revoke(ctx, key_id)
    return "", 204
