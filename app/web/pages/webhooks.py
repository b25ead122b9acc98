"""The pages of webhooks: the list, and each with what was delivered to it."""

from __future__ import annotations

from datetime import UTC, datetime

from flask import Blueprint, make_response, redirect, render_template, request, url_for
from werkzeug import Response

from app.access.audit import AuditAction
from app.access.webhooks import SUBSCRIBABLE, Webhook, Webhooks, check_url, parse_events
from app.core.access import Action
from app.core.errors import InvalidRequest
from app.http.access import requires
from app.http.audited import audited_webhook
from app.http.bodies import form_fields
from app.http.context import ViewContext
from app.http.origins import require_own_page

blueprint = Blueprint("webhooks", __name__, url_prefix="/webhooks")
blueprint.before_request(lambda: require_own_page(request))

PAGE_SIZE = 50

CHOSEN = "on"
"""What a ticked box sends."""


@blueprint.get("")
@requires(Action.MANAGE)
def index(ctx: ViewContext) -> str:
    """The project's webhooks, and a form for another."""
    return _index(ctx, {"url": "", **dict.fromkeys(SUBSCRIBABLE, CHOSEN)}, {})


@blueprint.post("")
@requires(Action.MANAGE)
def make(ctx: ViewContext) -> Response:
    """Make a webhook, and show its secret."""
    fields = form_fields(ctx)
    problems = _problems(fields)
    if problems:
        return make_response(_index(ctx, fields, problems), 400)
    try:
        webhook = _webhooks(ctx).make(
            ctx.scope.target(),
            url=fields["url"].strip(),
            events=parse_events(_ticked(fields)),
            created_by=ctx.caller.actor,
        )
    except InvalidRequest as error:
        return make_response(_index(ctx, fields, {"url": str(error)}), 400)
    audited_webhook(ctx, AuditAction.WEBHOOK_MADE, webhook)
    return _page(ctx, webhook, secret=webhook.secret)


@blueprint.get("/<webhook_id>")
@requires(Action.MANAGE)
def show(ctx: ViewContext, webhook_id: str) -> Response:
    """One webhook with what was delivered to it."""
    return _page(ctx, _webhook(ctx, webhook_id))


@blueprint.post("/<webhook_id>/secret")
@requires(Action.MANAGE)
def show_secret(ctx: ViewContext, webhook_id: str) -> Response:
    """The same page with the secret."""
    webhook = _webhook(ctx, webhook_id)
    audited_webhook(ctx, AuditAction.WEBHOOK_SECRET_SHOWN, webhook)
    return _page(ctx, webhook, secret=webhook.secret)


@blueprint.post("/<webhook_id>/secret/renew")
@requires(Action.MANAGE)
def renew_secret(ctx: ViewContext, webhook_id: str) -> Response:
    """Make another secret, which the page then offers to show: a reload must not make a third."""
    webhook = _webhooks(ctx).renew_secret(ctx.scope.target(), webhook_id)
    audited_webhook(ctx, AuditAction.WEBHOOK_SECRET_RENEWED, webhook)
    return _back_to(webhook_id)


@blueprint.post("/<webhook_id>/pause")
@requires(Action.MANAGE)
def pause(ctx: ViewContext, webhook_id: str) -> Response:
    """Pause it, or let it go on."""
    is_paused = form_fields(ctx).get("paused") == CHOSEN
    changed = _webhooks(ctx).change(ctx.scope.target(), webhook_id, is_paused=is_paused)
    audited_webhook(ctx, AuditAction.WEBHOOK_CHANGED, changed)
    return _back_to(webhook_id)


@blueprint.post("/<webhook_id>/remove")
@requires(Action.MANAGE)
def remove(ctx: ViewContext, webhook_id: str) -> Response:
    """Forget it."""
    removed = _webhooks(ctx).remove(ctx.scope.target(), webhook_id)
    audited_webhook(ctx, AuditAction.WEBHOOK_REMOVED, removed)
    return redirect(url_for("webhooks.index"), 303)


@blueprint.post("/<webhook_id>/test")
@requires(Action.MANAGE)
def test(ctx: ViewContext, webhook_id: str) -> Response:
    """Have a test event sent."""
    _webhooks(ctx).test(ctx.scope.target(), webhook_id)
    return _back_to(webhook_id)


@blueprint.post("/<webhook_id>/deliveries/<delivery_id>/send-again")
@requires(Action.MANAGE)
def send_again(ctx: ViewContext, webhook_id: str, delivery_id: str) -> Response:
    """Send an event again."""
    _webhooks(ctx).send_again(ctx.scope.target(), webhook_id, delivery_id)
    return _back_to(webhook_id)


def _index(ctx: ViewContext, fields: dict[str, str], problems: dict[str, str]) -> str:
    return render_template(
        "webhooks/list.html",
        webhooks=_webhooks(ctx).of_project(ctx.scope.target()),
        events=SUBSCRIBABLE,
        fields=fields,
        problems=problems,
    )


def _page(ctx: ViewContext, webhook: Webhook, secret: str | None = None) -> Response:
    page = _webhooks(ctx).deliveries(webhook, limit=PAGE_SIZE, cursor=request.args.get("cursor"))
    text = render_template(
        "webhooks/one.html",
        webhook=webhook,
        secret=secret,
        now=datetime.now(UTC),
        deliveries=page.deliveries,
        next_cursor=page.next_cursor,
    )
    return make_response(text)


def _problems(fields: dict[str, str]) -> dict[str, str]:
    """What is wrong with each field."""
    problems = {}
    try:
        check_url(fields.get("url", "").strip())
    except InvalidRequest as error:
        problems["url"] = str(error)
    if not _ticked(fields):
        problems["events"] = "Choose at least one event."
    return problems


def _ticked(fields: dict[str, str]) -> list[str]:
    return [event.value for event in SUBSCRIBABLE if event in fields]


def _back_to(webhook_id: str) -> Response:
    return redirect(url_for("webhooks.show", webhook_id=webhook_id), 303)


def _webhook(ctx: ViewContext, webhook_id: str) -> Webhook:
    return _webhooks(ctx).get(ctx.scope.target(), webhook_id)


def _webhooks(ctx: ViewContext) -> Webhooks:
    return ctx.services.identity.webhooks
