"""/u/CODE: the page on which people without an account send files through an upload link.

The page sends its uploads to /u/CODE/upload and so on: see `app/http/mounts.py`.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

from flask import Blueprint, Response, redirect, render_template, request
from werkzeug.wrappers import Response as BaseResponse

from app.access import link_visitors
from app.access.link_visitors import LinkVisitors
from app.access.upload_links import UploadLink, sender_prefix
from app.core import errors
from app.core.access import Action, Scope
from app.http.access import requires
from app.http.bodies import form_fields
from app.http.context import ViewContext
from app.http.origins import widen_policy
from app.http.proxy import absolute_url
from app.web.pages import closed_page, form_page, set_link_cookie

SENT_SHOWN = 1000
"""Maximum of the visitor's files that the page lists; it counts all."""

blueprint = Blueprint("upload_link", __name__)
blueprint.after_request(widen_policy)


@blueprint.get("/u/<code>")
@requires(Action.VISIT)
def page(ctx: ViewContext, code: str) -> BaseResponse:
    """The page for choosing files; if required, first the form for a password and a name."""
    link = _visitors(ctx).visited(code)
    visitor = _visitor(ctx, link)
    sender = None if visitor is None else _visitors(ctx).sender_name(link, visitor)
    asks_password = _asks_password(ctx, link)
    if asks_password or (link.asks_name and sender is None):
        return _private(_gate(link, asks_password=asks_password))
    response = Response(_drop_page(ctx, link, sender, visitor))
    if visitor is None and request.method != "HEAD":
        # Without a cookie, clients of a network are one visitor.
        with suppress(errors.TooManyRequests):
            _keep_new_visitor(ctx, response, link)
    return _private(response)


@blueprint.post("/u/<code>")
@requires(Action.VISIT)
def enter(ctx: ViewContext, code: str) -> BaseResponse:
    """Check the password and store the name; a correct password is not asked for again."""
    visitors, link = _visitors(ctx), _visitors(ctx).visited(code)
    asks_password = _asks_password(ctx, link)
    response = redirect(f"{request.script_root}/u/{link.code}", 303)
    fields = form_fields(ctx)
    name = fields.get("name", "")
    try:
        if asks_password:
            entry = visitors.enter(link, fields.get("password", ""), address=_address())
            _keep(response, link, link_visitors.ENTRY_COOKIE, entry, link_visitors.ENTRY_TIME)
            asks_password = False
        if link.asks_name:
            visitor = _visitor(ctx, link) or _keep_new_visitor(ctx, response, link)
            visitors.name_sender(link, visitor, name)
    except (
        errors.InvalidField,
        errors.TooManyAttempts,
        errors.TooManyRequests,
        errors.ServerBusy,
    ) as error:
        cookies = response.headers.getlist("Set-Cookie")
        response = _gate(link, asks_password=asks_password, name=name, error=error)
        response.headers.extend({"Set-Cookie": cookies})
    return _private(response)


@blueprint.errorhandler(errors.LinkClosed)
@blueprint.errorhandler(errors.LinkNotFound)
def closed(error: errors.LinkClosed | errors.LinkNotFound) -> BaseResponse:
    """The page of a closed or unknown link."""
    return _private(closed_page(error, str(error)))


def _gate(
    link: UploadLink,
    *,
    asks_password: bool,
    name: str = "",
    error: errors.UploadError | None = None,
) -> BaseResponse:
    field = None  # The error's own name for it.
    if not isinstance(error, errors.InvalidField):
        is_of_name = isinstance(error, errors.TooManyRequests) or not asks_password
        field = "name" if is_of_name else "password"
    return form_page(
        "upload_link/gate.html",
        error,
        field=field,
        link=link,
        asks_password=asks_password,
        name=name,
    )


def _drop_page(ctx: ViewContext, link: UploadLink, sender: str | None, visitor: str | None) -> str:
    services, settings, sent = ctx.services, ctx.settings, None
    if visitor is not None:
        scope = Scope(link.project_id, sender_prefix(link.id) + visitor)
        sent = services.uploads.sent(scope, SENT_SHOWN)
    link = services.identity.upload_links.get(link.project_id, link.id)  # It may be full by now.
    most = settings.max_upload_bytes
    return render_template(
        "upload_link/drop.html",
        link=link,
        sender=sender,
        accept=",".join(f".{each}" for each in link.extensions),
        root=f"{request.script_root}/u/{link.code}",
        url=absolute_url("upload_link.page", code=link.code),
        chunk_bytes=settings.chunk_bytes,
        least_chunk_bytes=settings.least_chunk_bytes,
        max_upload_bytes=min(link.max_file_bytes or most, most),
        uploaded=request.args.get("uploaded", default=0, type=int),
        sent=sent,
    )


def _visitor(ctx: ViewContext, link: UploadLink) -> str | None:
    return _visitors(ctx).visitor(link, _cookies())


def _asks_password(ctx: ViewContext, link: UploadLink) -> bool:
    return not _visitors(ctx).has_entered(link, _cookies())


def _visitors(ctx: ViewContext) -> LinkVisitors:
    return ctx.services.identity.link_visitors


def _cookies() -> str:
    return request.headers.get("Cookie", "")


def _address() -> str:
    return request.remote_addr or ""


def _private(response: BaseResponse) -> BaseResponse:
    """Keep the page's URL out of search engines and of Referer headers to other sites."""
    response.headers["Referrer-Policy"] = "same-origin"
    response.headers["X-Robots-Tag"] = "noindex"
    return response


def _keep_new_visitor(ctx: ViewContext, response: BaseResponse, link: UploadLink) -> str:
    """Set the cookie of a new visitor; returns the visitor's id."""
    new = _visitors(ctx).new_visitor(link, address=_address())
    _keep(response, link, link_visitors.VISITOR_COOKIE, new.cookie, link_visitors.VISITOR_TIME)
    return new.id


def _keep(response: BaseResponse, link: UploadLink, name: str, value: str, time: timedelta) -> None:
    """Set a cookie that is sent only to this link."""
    path = f"{request.script_root}/u/{link.code}"
    set_link_cookie(response, name, value, path=path, lifetime=time)
