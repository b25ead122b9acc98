"""Webhooks: /api/webhooks, and their pages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal, TypedDict

from flask import Blueprint, Response, jsonify, render_template, request
from msgspec import UNSET, Struct, UnsetType
from werkzeug import Response as BaseResponse

from app.access import webhooks
from app.access.webhooks import SUBSCRIBABLE, Delivery, DeliveryState, Webhook, parse_events
from app.core.access import Action
from app.core.errors import InvalidField, InvalidRequest
from app.core.json_types import Id, Instant, keywords
from app.core.moments import instant, optional_instant
from app.core.numbers import parse_digits
from app.http.access import requires
from app.http.bodies import form_fields, takes
from app.http.context import ViewContext
from app.http.openapi import describes, query
from app.web.pages import page_blueprint, see_other

# ---- JSON ----------------------------------------------------------------------------------------

# /api/webhooks: webhooks of the caller's project, and their deliveries.


api = Blueprint("api_webhooks", __name__, url_prefix="/api/webhooks")

DEFAULT_PAGE = 50

Event = Annotated[str, keywords(enum=[*SUBSCRIBABLE])]
Events = Annotated[list[Event], keywords(minItems=1, uniqueItems=True)]


class NewWebhook(Struct):
    """A new webhook."""

    url: Annotated[
        str,
        keywords(
            maxLength=webhooks.MAX_URL_CHARACTERS, pattern=r"^https?://[^\x00-\x20\x7f-\uffff/@]"
        ),
    ]
    """With http or https, without a password, not in a private network."""
    events: Events | UnsetType = UNSET
    """All of them if it is missing."""


class WebhookChange(Struct):
    """Changes of a webhook. Members that are not sent stay as they are."""

    url: Annotated[str, keywords(maxLength=webhooks.MAX_URL_CHARACTERS)] | None = None
    events: Events | UnsetType = UNSET
    paused: bool | None = None
    """While it is paused, events wait."""


class WebhookDocument(TypedDict):
    """A webhook, without its secret."""

    id: Id
    url: str
    events: list[Event]
    paused: bool
    created: Instant


class WebhooksDocument(TypedDict):
    """The webhooks of a project, oldest first."""

    webhooks: list[WebhookDocument]


class WebhookSecret(TypedDict):
    """The secret of a webhook."""

    secret: Annotated[str, keywords(pattern="^whsec_")]
    """What signatures are made with."""


class WebhookWithSecret(WebhookDocument, WebhookSecret):
    """A webhook, with its secret."""


class RenewedSecret(WebhookSecret):
    """The new secret, and how long the old one also signs."""

    old_secret_until: Instant | None


class DeliveryDocument(TypedDict):
    """One event for one webhook."""

    id: Id
    event: str
    """The `webhook-id` of each attempt."""
    type: Event | Literal["webhook.test"]
    subject: str
    """The id of the video; of the webhook for a test."""
    state: DeliveryState
    attempts: int
    status: int | None
    """The receiver's last status."""
    problem: str | None
    """What was wrong with the last attempt."""
    created: Instant
    next_attempt: Instant | None
    delivered: Instant | None


class DeliveriesDocument(TypedDict):
    """A page of deliveries."""

    deliveries: list[DeliveryDocument]
    next: str | None


@api.get("")
@requires(Action.MANAGE)
@describes("listWebhooks", {200: WebhooksDocument})
def index(ctx: ViewContext) -> Response:
    """List the webhooks of a project."""
    found = webhooks.of_project(ctx)
    return jsonify({"webhooks": [webhook_document(webhook) for webhook in found]})


@api.post("")
@requires(Action.MANAGE)
@takes(NewWebhook)
@describes("makeWebhook", {201: WebhookWithSecret}, InvalidField)
def make(ctx: ViewContext, new: NewWebhook) -> tuple[Response, int]:
    """Add a webhook."""
    events = [*SUBSCRIBABLE] if new.events is UNSET else new.events
    webhook = webhooks.make(ctx, url=new.url, events=parse_events(events))
    return jsonify({**webhook_document(webhook), "secret": webhook.secret}), 201


@api.get("/<webhook_id>")
@requires(Action.MANAGE)
@describes("showWebhook", {200: WebhookDocument})
def show(ctx: ViewContext, webhook_id: str) -> Response:
    """Get a webhook."""
    return jsonify(webhook_document(webhooks.get(ctx, webhook_id)))


@api.patch("/<webhook_id>")
@requires(Action.MANAGE)
@takes(WebhookChange)
@describes("changeWebhook", {200: WebhookDocument}, InvalidField)
def change(ctx: ViewContext, sent: WebhookChange, webhook_id: str) -> Response:
    """Change, pause or resume a webhook."""
    webhook = webhooks.change(
        ctx,
        webhook_id,
        url=sent.url,
        events=None if sent.events is UNSET else parse_events(sent.events),
        is_paused=sent.paused,
    )
    return jsonify(webhook_document(webhook))


@api.delete("/<webhook_id>")
@requires(Action.MANAGE)
@describes("removeWebhook", {204: "Removed."})
def remove(ctx: ViewContext, webhook_id: str) -> tuple[str, int]:
    """Delete a webhook and its pending deliveries."""
    webhooks.remove(ctx, webhook_id)
    return "", 204


@api.post("/<webhook_id>/secret")
@requires(Action.MANAGE)
@describes("showWebhookSecret", {200: WebhookSecret})
def show_secret(ctx: ViewContext, webhook_id: str) -> Response:
    """Get the secret of a webhook.

    Not a GET, because it is recorded in the audit log.
    """
    return jsonify({"secret": webhooks.show_secret(ctx, webhook_id).secret})


@api.post("/<webhook_id>/secret/renew")
@requires(Action.MANAGE)
@describes("renewWebhookSecret", {200: RenewedSecret})
def renew_secret(ctx: ViewContext, webhook_id: str) -> Response:
    """Change the secret of a webhook; events are signed with both for a day."""
    webhook = webhooks.renew_secret(ctx, webhook_id)
    until = optional_instant(webhook.old_secret_until)
    return jsonify({"secret": webhook.secret, "old_secret_until": until})


@api.post("/<webhook_id>/test")
@requires(Action.MANAGE)
@describes("testWebhook", {202: DeliveryDocument})
def test(ctx: ViewContext, webhook_id: str) -> tuple[Response, int]:
    """Send a test event."""
    delivery = webhooks.send_test(ctx, webhook_id)
    return jsonify(delivery_document(delivery)), 202


@api.get("/<webhook_id>/deliveries")
@requires(Action.MANAGE)
@describes(
    "listDeliveries",
    {200: DeliveriesDocument},
    InvalidRequest,
    parameters=(
        query("limit", "", int, minimum=1, maximum=webhooks.MAX_PAGE, default=DEFAULT_PAGE),
        query("cursor", "The `next` of the page before.", pattern="^[0-9]{1,18}$"),
    ),
)
def deliveries(ctx: ViewContext, webhook_id: str) -> Response:
    """List the deliveries of a webhook, sent and pending, newest first."""
    limit = parse_digits(request.args.get("limit", str(DEFAULT_PAGE)))
    if limit is None:
        raise InvalidRequest("The limit must be a whole number.")
    webhook = webhooks.get(ctx, webhook_id)
    page = webhooks.deliveries(ctx, webhook, limit=limit, cursor=request.args.get("cursor"))
    found = [delivery_document(delivery) for delivery in page.deliveries]
    return jsonify({"deliveries": found, "next": page.next_cursor})


@api.post("/<webhook_id>/deliveries/<delivery_id>/send-again")
@requires(Action.MANAGE)
@describes("sendAgain", {202: DeliveryDocument})
def send_again(ctx: ViewContext, webhook_id: str, delivery_id: str) -> tuple[Response, int]:
    """Send an event again."""
    return jsonify(delivery_document(webhooks.send_again(ctx, webhook_id, delivery_id))), 202


def webhook_document(webhook: Webhook) -> WebhookDocument:
    """A webhook without its secret."""
    return {
        "id": webhook.id,
        "url": webhook.url,
        "events": [event.value for event in webhook.events],
        "paused": webhook.paused_at is not None,
        "created": instant(webhook.created_at),
    }


def delivery_document(delivery: Delivery) -> DeliveryDocument:
    """The state of a delivery; `next_attempt` while it is being retried."""
    is_waiting = delivery.state is DeliveryState.WAITING
    return {
        "id": delivery.id,
        "event": delivery.event_id,
        "type": delivery.type.value,
        "subject": delivery.subject,
        "state": delivery.state,
        "attempts": delivery.attempts,
        "status": delivery.status,
        "problem": delivery.problem,
        "created": instant(delivery.created_at),
        "next_attempt": instant(delivery.due_at) if is_waiting else None,
        "delivered": optional_instant(delivery.delivered_at),
    }


# ---- pages ---------------------------------------------------------------------------------------

# The pages of webhooks: the list, and each webhook with its deliveries.


pages = page_blueprint("webhooks", __name__, url_prefix="/webhooks")

PAGE_SIZE = 50

CHOSEN = "on"
"""The value that a checked checkbox sends."""


@pages.get("", endpoint="index")
@requires(Action.MANAGE)
def index_page(ctx: ViewContext) -> str:
    """The project's webhooks, and a form to create one."""
    return _index(ctx, {"url": "", **dict.fromkeys(SUBSCRIBABLE, CHOSEN)}, {})


@pages.post("", endpoint="make")
@requires(Action.MANAGE)
def make_page(ctx: ViewContext) -> str | tuple[str, int]:
    """Create a webhook, and show its secret."""
    fields = form_fields(ctx)
    url = fields.get("url", "").strip()
    ticked = [event.value for event in SUBSCRIBABLE if event in fields]
    problems = {} if ticked else {"events": "Choose at least one event."}
    try:
        webhooks.check_url(url)
        if ticked:
            webhook = webhooks.make(ctx, url=url, events=parse_events(ticked))
            return _page(ctx, webhook, secret=webhook.secret)
    except InvalidRequest as error:
        problems["url"] = str(error)
    return _index(ctx, fields, problems), 400


@pages.get("/<webhook_id>", endpoint="show")
@requires(Action.MANAGE)
def show_page(ctx: ViewContext, webhook_id: str) -> str:
    """One webhook with its deliveries."""
    return _page(ctx, webhooks.get(ctx, webhook_id))


@pages.post("/<webhook_id>/secret", endpoint="show_secret")
@requires(Action.MANAGE)
def show_secret_page(ctx: ViewContext, webhook_id: str) -> str:
    """One webhook, with its secret shown."""
    webhook = webhooks.show_secret(ctx, webhook_id)
    return _page(ctx, webhook, secret=webhook.secret)


@pages.post("/<webhook_id>/secret/renew", endpoint="renew_secret")
@requires(Action.MANAGE)
def renew_secret_page(ctx: ViewContext, webhook_id: str) -> BaseResponse:
    """Rotate the secret. The page then offers to show it: a reload must not rotate it again."""
    webhooks.renew_secret(ctx, webhook_id)
    return see_other("webhooks.show", webhook_id=webhook_id)


@pages.post("/<webhook_id>/pause")
@requires(Action.MANAGE)
def pause(ctx: ViewContext, webhook_id: str) -> BaseResponse:
    """Pause or resume a webhook."""
    is_paused = form_fields(ctx).get("paused") == CHOSEN
    webhooks.change(ctx, webhook_id, is_paused=is_paused)
    return see_other("webhooks.show", webhook_id=webhook_id)


@pages.post("/<webhook_id>/remove", endpoint="remove")
@requires(Action.MANAGE)
def remove_page(ctx: ViewContext, webhook_id: str) -> BaseResponse:
    """Delete a webhook."""
    webhooks.remove(ctx, webhook_id)
    return see_other("webhooks.index")


@pages.post("/<webhook_id>/test", endpoint="test")
@requires(Action.MANAGE)
def test_page(ctx: ViewContext, webhook_id: str) -> BaseResponse:
    """Send a test event."""
    webhooks.send_test(ctx, webhook_id)
    return see_other("webhooks.show", webhook_id=webhook_id)


@pages.post("/<webhook_id>/deliveries/<delivery_id>/send-again", endpoint="send_again")
@requires(Action.MANAGE)
def send_again_page(ctx: ViewContext, webhook_id: str, delivery_id: str) -> BaseResponse:
    """Send an event again."""
    webhooks.send_again(ctx, webhook_id, delivery_id)
    return see_other("webhooks.show", webhook_id=webhook_id)


def _index(ctx: ViewContext, fields: dict[str, str], problems: dict[str, str]) -> str:
    return render_template(
        "webhooks/list.html",
        webhooks=webhooks.of_project(ctx),
        events=SUBSCRIBABLE,
        fields=fields,
        problems=problems,
    )


def _page(ctx: ViewContext, webhook: Webhook, secret: str | None = None) -> str:
    cursor = request.args.get("cursor")
    page = webhooks.deliveries(ctx, webhook, limit=PAGE_SIZE, cursor=cursor)
    return render_template(
        "webhooks/one.html",
        webhook=webhook,
        secret=secret,
        now=datetime.now(UTC),
        deliveries=page.deliveries,
        next_cursor=page.next_cursor,
    )
