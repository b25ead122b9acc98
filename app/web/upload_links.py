"""Upload links of members: /api/upload-links, and the pages /links/upload."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from flask import (
    Blueprint,
    Response,
    jsonify,
    make_response,
    redirect,
    render_template,
    request,
    url_for,
)
from werkzeug import Response as BaseResponse

from app.access.audit import AuditAction
from app.access.upload_links import MOST_BYTES, LinkTerms, UploadLink, UploadLinks
from app.core.access import Action
from app.core.errors import InvalidField, InvalidRequest
from app.core.numbers import parse_digits
from app.http.access import requires
from app.http.audited import audited
from app.http.bodies import form_fields, json_object
from app.http.context import ViewContext
from app.http.origins import require_own_page
from app.http.upload_links import link_document, link_url, received_document, subject_of, terms_in
from app.web.share_links import LIFETIMES, expiry_in, password_in, problems_of, qr_code

# ---- JSON ----------------------------------------------------------------------------------------

# /api/upload-links: links through which strangers send files, made and closed by members.


api = Blueprint("api_upload_links", __name__, url_prefix="/api/upload-links")

LATEST_UPLOADS = 100
"""Shown of one link, with the names of their senders."""


@api.get("")
@requires(Action.SHARE)
def index(ctx: ViewContext) -> Response:
    """All upload links of the project, the newest first."""
    links = ctx.services.identity.upload_links.of_project(ctx.scope.target())
    return jsonify({"links": [link_document(link) for link in links]})


@api.post("")
@requires(Action.SHARE)
def create(ctx: ViewContext) -> tuple[Response, int]:
    """Make a link."""
    links = ctx.services.identity.upload_links
    link = links.make(
        ctx.scope.target(),
        terms_in(ctx, json_object(ctx), LinkTerms()),
        created_by=ctx.caller.sender,
    )
    audited(ctx, AuditAction.LINK_MADE, subject_of(link), name=link.name)
    return jsonify(link_document(link)), 201


@api.get("/<link_id>")
@requires(Action.SHARE)
def show(ctx: ViewContext, link_id: str) -> Response:
    """One link, and the latest of what came through it."""
    link = _link(ctx, link_id)
    received = ctx.services.identity.upload_links.received(link, LATEST_UPLOADS)
    uploads = [received_document(each) for each in received]
    return jsonify({**link_document(link), "uploads": uploads})


@api.patch("/<link_id>")
@requires(Action.SHARE)
def change(ctx: ViewContext, link_id: str) -> Response:
    """Change what is named of its terms; what it has taken stays."""
    links, link = ctx.services.identity.upload_links, _link(ctx, link_id)
    changed = links.change(link, terms_in(ctx, json_object(ctx), links.terms(link)))
    audited(ctx, AuditAction.LINK_CHANGED, subject_of(link), name=changed.name)
    return jsonify(link_document(changed))


@api.delete("/<link_id>")
@requires(Action.SHARE)
def close(ctx: ViewContext, link_id: str) -> tuple[str, int]:
    """Close the link at once, also for requests under way."""
    link = ctx.services.identity.upload_links.close(_link(ctx, link_id))
    audited(ctx, AuditAction.LINK_CLOSED, subject_of(link), name=link.name)
    return "", 204


def _link(ctx: ViewContext, link_id: str) -> UploadLink:
    links = ctx.services.identity.upload_links
    return links.get(ctx.scope.target(), link_id)


# ---- pages ---------------------------------------------------------------------------------------

# /links/upload: members make upload links, and see what came through them.


GIGABYTE = 10**9

PROPOSED_GIGABYTES = "100"
"""For all files of a new link: without a limit, whoever has its address can fill the disk."""

LATEST_UPLOADS_SHOWN = 50
"""Shown of one link."""

STANDS_STILL = timedelta(minutes=2)
"""An upload without bytes for so long is called interrupted."""

MAX_FORM_BYTES = 64 * 1024
"""The message may have 2000 characters, each of up to 12 bytes as it is sent."""

pages = Blueprint("upload_links", __name__, url_prefix="/links/upload")
pages.before_request(lambda: require_own_page(request))


@pages.get("", endpoint="index")
@requires(Action.SHARE)
def index_page(ctx: ViewContext) -> BaseResponse:
    """All upload links of the project, and a form for another."""
    return _index(ctx)


@pages.post("")
@requires(Action.SHARE)
def make(ctx: ViewContext) -> BaseResponse:
    """Make a link, and show its address."""
    fields = form_fields(ctx, MAX_FORM_BYTES)
    try:
        terms = terms_in(ctx, _body(fields), LinkTerms())
    except InvalidRequest as error:
        return _index(ctx, fields, error)
    link = _links(ctx).make(ctx.scope.target(), terms, created_by=ctx.caller.sender)
    audited(ctx, AuditAction.LINK_MADE, subject_of(link), name=link.name)
    return redirect(url_for("upload_links.show", link_id=link.id), 303)


@pages.get("/<link_id>", endpoint="show")
@requires(Action.SHARE)
def show_page(ctx: ViewContext, link_id: str) -> BaseResponse:
    """One link: its address, its terms, what it has taken, and from whom."""
    return _page(ctx, _link_page(ctx, link_id))


@pages.post("/<link_id>", endpoint="change")
@requires(Action.SHARE)
def change_page(ctx: ViewContext, link_id: str) -> BaseResponse:
    """Change the terms of a link; what it has taken stays."""
    link, fields = _link_page(ctx, link_id), form_fields(ctx, MAX_FORM_BYTES)
    try:
        changed = _links(ctx).change(link, terms_in(ctx, _body(fields), _links(ctx).terms(link)))
    except InvalidRequest as error:
        return _page(ctx, link, fields, error)
    audited(ctx, AuditAction.LINK_CHANGED, subject_of(link), name=changed.name)
    return redirect(url_for("upload_links.show", link_id=link.id, done="changed"), 303)


@pages.post("/<link_id>/close", endpoint="close")
@requires(Action.SHARE)
def close_page(ctx: ViewContext, link_id: str) -> BaseResponse:
    """Close a link at once."""
    link = _links(ctx).close(_link_page(ctx, link_id))
    audited(ctx, AuditAction.LINK_CLOSED, subject_of(link), name=link.name)
    return redirect(url_for("upload_links.show", link_id=link.id), 303)


@pages.get("/<link_id>/qr.svg")
@requires(Action.SHARE)
def qr(ctx: ViewContext, link_id: str) -> BaseResponse:
    """The address of a link for a phone's camera."""
    return qr_code(link_url(_link_page(ctx, link_id)))


def _index(
    ctx: ViewContext, fields: Mapping[str, str] | None = None, error: InvalidRequest | None = None
) -> BaseResponse:
    now = datetime.now(UTC)
    page = render_template(
        "links/uploads.html",
        links=[
            (link, link.state(now), link_url(link))
            for link in _links(ctx).of_project(ctx.scope.target())
        ],
        fields=fields or {"max_bytes": PROPOSED_GIGABYTES},
        problems=problems_of(error),
        lifetimes=LIFETIMES,
    )
    return make_response(page, error.status_hint if error else 200)


def _page(
    ctx: ViewContext,
    link: UploadLink,
    fields: Mapping[str, str] | None = None,
    error: InvalidRequest | None = None,
) -> BaseResponse:
    page = render_template(
        "links/upload.html",
        link=link,
        url=link_url(link),
        state=link.state(datetime.now(UTC)),
        received=_links(ctx).received(link, LATEST_UPLOADS_SHOWN),
        still=datetime.now(UTC) - STANDS_STILL,
        is_changed=request.args.get("done") == "changed",
        fields=_fields_of(link) if fields is None else fields,
        problems=problems_of(error),
        lifetimes=LIFETIMES,
    )
    return make_response(page, error.status_hint if error else 200)


def _fields_of(link: UploadLink) -> dict[str, str]:
    """The form that says what the link says now."""
    fields = {
        "name": link.name,
        "message": link.message,
        "max_files": str(link.max_files or ""),
        "max_bytes": _gigabytes(link.max_bytes),
        "max_file_bytes": _gigabytes(link.max_file_bytes),
        "extensions": ", ".join(link.extensions),
    }
    return {**fields, "asks_name": "1"} if link.asks_name else fields


def _gigabytes(size: int | None) -> str:
    """What `_size` reads as the same number of bytes."""
    return "" if size is None else f"{Decimal(size) / GIGABYTE:f}"


def _body(fields: Mapping[str, str]) -> dict[str, Any]:
    """The form as JSON would say it; raises `InvalidField`."""
    return {
        "name": fields.get("name", ""),
        "message": fields.get("message", ""),
        "max_files": _number(fields, "max_files"),
        "max_bytes": _size(fields, "max_bytes"),
        "max_file_bytes": _size(fields, "max_file_bytes"),
        "extensions": fields.get("extensions", "").replace(",", " ").split(),
        "asks_name": "asks_name" in fields,
        **expiry_in(fields),
        **password_in(fields),
    }


def _number(fields: Mapping[str, str], name: str) -> int | None:
    text = fields.get(name, "").strip()
    if not text:
        return None
    number = parse_digits(text)
    if not number:
        raise InvalidField("This must be a number above 0.", field=name)
    return number


def _size(fields: Mapping[str, str], name: str) -> int | None:
    """Bytes, of a number of gigabytes as people write it."""
    text = fields.get(name, "").strip().replace(",", ".")
    if not text:
        return None
    try:
        size = Decimal(text) * GIGABYTE
        if 1 <= size <= MOST_BYTES:
            return int(size)
    except ArithmeticError:  # No number, or one that cannot be compared.
        pass
    raise InvalidField("This must be a number above 0.", field=name)


def _links(ctx: ViewContext) -> UploadLinks:
    return ctx.services.identity.upload_links


def _link_page(ctx: ViewContext, link_id: str) -> UploadLink:
    return _links(ctx).get(ctx.scope.target(), link_id)
