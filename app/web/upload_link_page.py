"""/u/CODE: the page on which people without an account send files through an upload link.

The page sends its uploads to /u/CODE/upload and so on: see `app/http/mounts.py`.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

from flask import Blueprint, Response, redirect, render_template, request
from werkzeug.wrappers import Response as BaseResponse

from app.access.link_visitors import (
    ENTRY_COOKIE,
    ENTRY_TIME,
    VISITOR_COOKIE,
    VISITOR_TIME,
    LinkVisitors,
)
from app.access.upload_links import UploadLink, sender_prefix
from app.core.access import Action, Scope
from app.core.errors import (
    InvalidField,
    LinkClosed,
    LinkNotFound,
    ServerBusy,
    TooManyAttempts,
    TooManyRequests,
    UploadError,
)
from app.http.access import requires
from app.http.bodies import form_fields
from app.http.context import ViewContext
from app.http.origins import widen_policy
from app.http.problems import Problem, answer_json, prefers_html, with_retry_after
from app.http.proxy import absolute_url
from app.records.uploads import Sent

SENT_SHOWN = 1000
"""Maximum of the visitor's files that the page lists; it counts all."""

blueprint = Blueprint("upload_link", __name__)
blueprint.after_request(widen_policy)


@blueprint.get("/u/<code>")
@requires(Action.VISIT)
def page(ctx: ViewContext, code: str) -> BaseResponse:
    """The page for choosing files; if required, first the form for a password and a name."""
    link = _visitors(ctx).visited(code)
    sender = _sender(ctx, link)
    asks_password = _asks_password(ctx, link)
    if asks_password or (link.asks_name and sender is None):
        return _private(_gate(link, asks_password=asks_password))
    response = Response(_drop_page(ctx, link, sender))
    if _visitor(ctx, link) is None and request.method != "HEAD":
        with suppress(TooManyRequests):  # Without a cookie, clients of a network are one visitor.
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
            _keep(response, link, ENTRY_COOKIE, entry, ENTRY_TIME)
            asks_password = False
        if link.asks_name:
            visitor = _visitor(ctx, link) or _keep_new_visitor(ctx, response, link)
            visitors.name_sender(link, visitor, name)
    except (InvalidField, TooManyAttempts, TooManyRequests, ServerBusy) as error:
        cookies = response.headers.getlist("Set-Cookie")
        response = _gate(link, asks_password=asks_password, name=name, error=error)
        response.headers.extend({"Set-Cookie": cookies})
    return _private(response)


@blueprint.errorhandler(LinkClosed)
@blueprint.errorhandler(LinkNotFound)
def closed(error: LinkClosed | LinkNotFound) -> BaseResponse:
    """The page of a closed or unknown link."""
    problem = Problem.of(error)
    if not prefers_html():
        return answer_json(problem)
    words = render_template("shared/closed.html", title=problem.title, words=str(error))
    return _private(Response(words, status=problem.status))


def _gate(
    link: UploadLink,
    *,
    asks_password: bool,
    name: str = "",
    error: UploadError | None = None,
) -> BaseResponse:
    page = render_template(
        "upload_link/gate.html",
        link=link,
        asks_password=asks_password,
        problems={_field(error, asks_password=asks_password): str(error)} if error else {},
        name=name,
    )
    response = Response(page, status=error.status_hint if error else 200)
    return with_retry_after(response, error)


def _field(error: UploadError, *, asks_password: bool) -> str | None:
    if isinstance(error, InvalidField):
        return error.field
    return "name" if isinstance(error, TooManyRequests) or not asks_password else "password"


def _drop_page(ctx: ViewContext, link: UploadLink, sender: str | None) -> str:
    services, visitor = ctx.services, _visitor(ctx, link)
    settings = services.settings
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
        sent=None if visitor is None else _sent(ctx, link, visitor),
    )


def _sent(ctx: ViewContext, link: UploadLink, visitor: str) -> Sent:
    sender = sender_prefix(link.id) + visitor
    return ctx.services.uploads.sent(Scope(link.project_id, sender), SENT_SHOWN)


def _sender(ctx: ViewContext, link: UploadLink) -> str | None:
    visitor = _visitor(ctx, link)
    return None if visitor is None else _visitors(ctx).sender_name(link, visitor)


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
    _keep(response, link, VISITOR_COOKIE, new.cookie, VISITOR_TIME)
    return new.id


def _keep(response: BaseResponse, link: UploadLink, name: str, value: str, time: timedelta) -> None:
    """Set a cookie that is sent only to this link."""
    response.set_cookie(
        name,
        value,
        max_age=time,
        path=f"{request.script_root}/u/{link.code}",
        secure=request.is_secure,
        httponly=True,
        samesite="Lax",
    )
