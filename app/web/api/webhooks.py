"""/api/webhooks: those of the caller's project, and what was delivered to them."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, jsonify, request

from app.access.audit import AuditAction
from app.access.webhooks import (
    SUBSCRIBABLE,
    Delivery,
    DeliveryState,
    Webhook,
    Webhooks,
    parse_events,
)
from app.core.access import Action
from app.core.errors import InvalidRequest
from app.core.moments import instant, optional_instant
from app.core.numbers import parse_digits
from app.http.access import requires
from app.http.audited import audited_webhook
from app.http.bodies import json_object, member
from app.http.context import ViewContext

blueprint = Blueprint("api_webhooks", __name__, url_prefix="/api/webhooks")

DEFAULT_PAGE = 50


@blueprint.get("")
@requires(Action.MANAGE)
def index(ctx: ViewContext) -> Response:
    """All of them, the oldest first."""
    found = _webhooks(ctx).of_project(ctx.scope.target())
    return jsonify({"webhooks": [webhook_document(webhook) for webhook in found]})


@blueprint.post("")
@requires(Action.MANAGE)
def make(ctx: ViewContext) -> tuple[Response, int]:
    """A new webhook, with its secret; without `events` it wants all of them."""
    body = json_object(ctx)
    webhook = _webhooks(ctx).make(
        ctx.scope.target(),
        url=member(body, "url", kind=str),
        events=parse_events(body.get("events", list(SUBSCRIBABLE))),
        created_by=ctx.caller.actor,
    )
    audited_webhook(ctx, AuditAction.WEBHOOK_MADE, webhook)
    return jsonify({**webhook_document(webhook), "secret": webhook.secret}), 201


@blueprint.get("/<webhook_id>")
@requires(Action.MANAGE)
def show(ctx: ViewContext, webhook_id: str) -> Response:
    """One of them."""
    return jsonify(webhook_document(_webhooks(ctx).get(ctx.scope.target(), webhook_id)))


@blueprint.patch("/<webhook_id>")
@requires(Action.MANAGE)
def change(ctx: ViewContext, webhook_id: str) -> Response:
    """Give it another URL or other events, pause it or let it go on."""
    body = json_object(ctx)
    is_paused = body.get("paused")
    if is_paused is not None and not isinstance(is_paused, bool):
        raise InvalidRequest("The member paused must be true or false.")
    webhook = _webhooks(ctx).change(
        ctx.scope.target(),
        webhook_id,
        url=member(body, "url", kind=str, default=None),
        events=parse_events(body["events"]) if "events" in body else None,
        is_paused=is_paused,
    )
    audited_webhook(ctx, AuditAction.WEBHOOK_CHANGED, webhook)
    return jsonify(webhook_document(webhook))


@blueprint.delete("/<webhook_id>")
@requires(Action.MANAGE)
def remove(ctx: ViewContext, webhook_id: str) -> tuple[str, int]:
    """Forget it, and what was not delivered yet."""
    removed = _webhooks(ctx).remove(ctx.scope.target(), webhook_id)
    audited_webhook(ctx, AuditAction.WEBHOOK_REMOVED, removed)
    return "", 204


@blueprint.post("/<webhook_id>/secret")
@requires(Action.MANAGE)
def show_secret(ctx: ViewContext, webhook_id: str) -> Response:
    """What its signatures are made with; that somebody looked is noted, so it is no GET."""
    webhook = _webhooks(ctx).get(ctx.scope.target(), webhook_id)
    audited_webhook(ctx, AuditAction.WEBHOOK_SECRET_SHOWN, webhook)
    return jsonify({"secret": webhook.secret})


@blueprint.post("/<webhook_id>/secret/renew")
@requires(Action.MANAGE)
def renew_secret(ctx: ViewContext, webhook_id: str) -> Response:
    """Make another secret; the old one signs too for a day."""
    webhook = _webhooks(ctx).renew_secret(ctx.scope.target(), webhook_id)
    audited_webhook(ctx, AuditAction.WEBHOOK_SECRET_RENEWED, webhook)
    return jsonify(
        {
            "secret": webhook.secret,
            "old_secret_until": webhook.old_secret_until and instant(webhook.old_secret_until),
        }
    )


@blueprint.post("/<webhook_id>/test")
@requires(Action.MANAGE)
def test(ctx: ViewContext, webhook_id: str) -> tuple[Response, int]:
    """Have a test event sent to it."""
    delivery = _webhooks(ctx).test(ctx.scope.target(), webhook_id)
    return jsonify(delivery_document(delivery)), 202


@blueprint.get("/<webhook_id>/deliveries")
@requires(Action.MANAGE)
def deliveries(ctx: ViewContext, webhook_id: str) -> Response:
    """A page of what was sent to it, or waits, the newest first."""
    limit = parse_digits(request.args.get("limit", str(DEFAULT_PAGE)))
    if limit is None:
        raise InvalidRequest("The limit must be a whole number.")
    webhook = _webhooks(ctx).get(ctx.scope.target(), webhook_id)
    page = _webhooks(ctx).deliveries(webhook, limit=limit, cursor=request.args.get("cursor"))
    found = [delivery_document(delivery) for delivery in page.deliveries]
    return jsonify({"deliveries": found, "next": page.next_cursor})


@blueprint.post("/<webhook_id>/deliveries/<delivery_id>/send-again")
@requires(Action.MANAGE)
def send_again(ctx: ViewContext, webhook_id: str, delivery_id: str) -> tuple[Response, int]:
    """Send one event again."""
    project = ctx.scope.target()
    return jsonify(
        delivery_document(_webhooks(ctx).send_again(project, webhook_id, delivery_id))
    ), 202


def webhook_document(webhook: Webhook) -> dict[str, Any]:
    """What is shown of a webhook: not its secret."""
    return {
        "id": webhook.id,
        "url": webhook.url,
        "events": [event.value for event in webhook.events],
        "paused": webhook.paused_at is not None,
        "created": instant(webhook.created_at),
    }


def delivery_document(delivery: Delivery) -> dict[str, Any]:
    """How far an event has got; `next_attempt` while it is tried."""
    is_waiting = delivery.state is DeliveryState.WAITING
    return {
        "id": delivery.id,
        "event": delivery.event_id,
        "type": delivery.type.value,
        "subject": delivery.subject,
        "state": delivery.state.value,
        "attempts": delivery.attempts,
        "status": delivery.status,
        "problem": delivery.problem,
        "created": instant(delivery.created_at),
        "next_attempt": instant(delivery.due_at) if is_waiting else None,
        "delivered": optional_instant(delivery.delivered_at),
    }


def _webhooks(ctx: ViewContext) -> Webhooks:
    return ctx.services.identity.webhooks
