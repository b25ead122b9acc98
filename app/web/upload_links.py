"""Upload links of members: /api/upload-links, and the pages /links/upload."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from flask import (
    Blueprint,
    Response,
    jsonify,
    redirect,
    request,
    url_for,
)
from werkzeug import Response as BaseResponse

from app.access.upload_links import (
    MAX_EXTENSIONS,
    MOST_BYTES,
    LinkTerms,
    Received,
    UploadLink,
    UploadLinks,
    terms_of,
)
from app.core.access import Action
from app.core.errors import InvalidField, InvalidRequest
from app.core.moments import instant, optional_instant, parse_expiry
from app.core.numbers import parse_digits
from app.http.access import requires
from app.http.bodies import form_fields, json_object
from app.http.context import ViewContext
from app.http.origins import require_own_page
from app.http.proxy import absolute_url
from app.web.share_links import expiry_in, form_page, password_in, qr_code

# ---- JSON ----------------------------------------------------------------------------------------

# /api/upload-links: links through which people without an account send files.


api = Blueprint("api_upload_links", __name__, url_prefix="/api/upload-links")

LATEST_UPLOADS = 100
"""Maximum of uploads shown for a link, with the names of their senders."""


@api.get("")
@requires(Action.SHARE)
def index(ctx: ViewContext) -> Response:
    """All upload links of the project, newest first."""
    links = _links(ctx).of_project(ctx)
    return jsonify({"links": [link_document(link) for link in links]})


@api.post("")
@requires(Action.SHARE)
def create(ctx: ViewContext) -> tuple[Response, int]:
    """Create a link."""
    link = _links(ctx).make(ctx, terms_in(ctx, json_object(ctx), LinkTerms()))
    return jsonify(link_document(link)), 201


@api.get("/<link_id>")
@requires(Action.SHARE)
def show(ctx: ViewContext, link_id: str) -> Response:
    """One link, and its latest uploads."""
    link = _link(ctx, link_id)
    received = _links(ctx).received(link, LATEST_UPLOADS)
    uploads = [received_document(each) for each in received]
    return jsonify({**link_document(link), "uploads": uploads})


@api.patch("/<link_id>")
@requires(Action.SHARE)
def change(ctx: ViewContext, link_id: str) -> Response:
    """Change the given terms; files already received stay."""
    link = _link(ctx, link_id)
    terms = terms_in(ctx, json_object(ctx), terms_of(link))
    changed = _links(ctx).change(ctx, link, terms)
    return jsonify(link_document(changed))


@api.delete("/<link_id>")
@requires(Action.SHARE)
def close(ctx: ViewContext, link_id: str) -> tuple[str, int]:
    """Close the link immediately, also for active requests."""
    _links(ctx).close(ctx, _link(ctx, link_id))
    return "", 204


def link_url(link: UploadLink) -> str:
    """The URL of the link's page."""
    return absolute_url("upload_link.page", code=link.code)


def link_document(link: UploadLink) -> dict[str, Any]:
    """A link as shown to members, with what it has received."""
    return {
        "id": link.id,
        "url": link_url(link),
        "name": link.name,
        "message": link.message,
        "state": link.state(datetime.now(UTC)).value,
        "files": link.files,
        "bytes": link.bytes,
        "max_files": link.max_files,
        "max_bytes": link.max_bytes,
        "max_file_bytes": link.max_file_bytes,
        "extensions": list(link.extensions),
        "expires": optional_instant(link.expires_at),
        "asks_name": link.asks_name,
        "has_password": link.password_hash is not None,
        "created": instant(link.created_at),
    }


def received_document(received: Received) -> dict[str, Any]:
    """An upload that came through a link."""
    upload = received.upload
    return {
        "id": upload.id,
        "filename": upload.filename,
        "length": upload.length,
        "state": upload.state.value,
        "created": instant(upload.created_at),
        "sender_name": received.sender_name or None,
    }


def terms_in(ctx: ViewContext, body: Mapping[str, Any], given: LinkTerms) -> LinkTerms:
    """The terms that a client has sent; missing ones are taken from `given`.

    Raises `InvalidRequest`.
    """
    if "password" in body:
        password = _string("password", body["password"])  # Leading and trailing blanks count.
        given = ctx.services.identity.upload_links.with_password(given, password)
    sent = {
        "expires_at" if name == "expires" else name: parse(name, body[name])
        for name, parse in _PARSERS.items()
        if name in body
    }
    return replace(given, **sent)


def _string(name: str, value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidRequest(f"The member {name} must be a string.")
    return value


def _text(name: str, value: object) -> str:
    return _string(name, value).strip()


def _lines(name: str, value: object) -> str:
    """A text of several lines; browsers end lines in forms with CRLF."""
    return _text(name, value).replace("\r\n", "\n")


def _whole_number(name: str, value: object) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # JSON has one kind of number: 3.0 is 3.
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise InvalidRequest(f"The member {name} must be a whole number, or null.")


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidRequest(f"The member {name} must be true or false.")
    return value


def _extensions(name: str, value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise InvalidRequest(f"The member {name} must be a list of strings.")
    if len(value) > MAX_EXTENSIONS:
        raise InvalidField(f"At most {MAX_EXTENSIONS} types.", field=name)
    given = [each.removeprefix(".") for each in value]
    # Some letters beyond ASCII are ASCII in lower case; the terms refuse them as they are.
    return tuple(dict.fromkeys(each.lower() if each.isascii() else each for each in given))


def _expiry(_name: str, value: object) -> datetime | None:
    return parse_expiry(value, datetime.now(UTC))


_PARSERS: Mapping[str, Callable[[str, object], Any]] = {
    "name": _text,
    "message": _lines,
    "max_files": _whole_number,
    "max_bytes": _whole_number,
    "max_file_bytes": _whole_number,
    "extensions": _extensions,
    "expires": _expiry,
    "asks_name": _flag,
}


# ---- pages ---------------------------------------------------------------------------------------

# /links/upload: members create upload links, and see what was received.


GIGABYTE = 10**9

PROPOSED_GIGABYTES = "100"
"""Proposed size limit of a new link: without a limit, anyone with its URL can fill the disk."""

LATEST_UPLOADS_SHOWN = 50
"""Maximum of uploads shown on a link's page."""

STANDS_STILL = timedelta(minutes=2)
"""An upload that receives no bytes for this long is shown as interrupted."""

MAX_FORM_BYTES = 64 * 1024
"""The message may have 2000 characters, each encoded in up to 12 bytes."""

pages = Blueprint("upload_links", __name__, url_prefix="/links/upload")
pages.before_request(lambda: require_own_page(request))


@pages.get("", endpoint="index")
@requires(Action.SHARE)
def index_page(ctx: ViewContext) -> BaseResponse:
    """All upload links of the project, and a form to create one."""
    return _index(ctx)


@pages.post("")
@requires(Action.SHARE)
def make(ctx: ViewContext) -> BaseResponse:
    """Create a link, and show its URL."""
    fields = form_fields(ctx, MAX_FORM_BYTES)
    try:
        link = _links(ctx).make(ctx, terms_in(ctx, _body(fields), LinkTerms()))
    except InvalidRequest as error:
        return _index(ctx, fields, error)
    return redirect(url_for("upload_links.show", link_id=link.id), 303)


@pages.get("/<link_id>", endpoint="show")
@requires(Action.SHARE)
def show_page(ctx: ViewContext, link_id: str) -> BaseResponse:
    """One link: its URL, terms, received files and their senders."""
    return _page(ctx, _link(ctx, link_id))


@pages.post("/<link_id>", endpoint="change")
@requires(Action.SHARE)
def change_page(ctx: ViewContext, link_id: str) -> BaseResponse:
    """Change the terms of a link; files already received stay."""
    link, fields = _link(ctx, link_id), form_fields(ctx, MAX_FORM_BYTES)
    try:
        _links(ctx).change(ctx, link, terms_in(ctx, _body(fields), terms_of(link)))
    except InvalidRequest as error:
        return _page(ctx, link, fields, error)
    return redirect(url_for("upload_links.show", link_id=link.id, done="changed"), 303)


@pages.post("/<link_id>/close", endpoint="close")
@requires(Action.SHARE)
def close_page(ctx: ViewContext, link_id: str) -> BaseResponse:
    """Close a link at once."""
    link = _links(ctx).close(ctx, _link(ctx, link_id))
    return redirect(url_for("upload_links.show", link_id=link.id), 303)


@pages.get("/<link_id>/qr.svg")
@requires(Action.SHARE)
def qr(ctx: ViewContext, link_id: str) -> BaseResponse:
    """The URL of a link as a QR code."""
    return qr_code(link_url(_link(ctx, link_id)))


def _index(
    ctx: ViewContext, fields: Mapping[str, str] | None = None, error: InvalidRequest | None = None
) -> BaseResponse:
    now = datetime.now(UTC)
    return form_page(
        "links/uploads.html",
        error,
        links=[(link, link.state(now), link_url(link)) for link in _links(ctx).of_project(ctx)],
        fields=fields or {"max_bytes": PROPOSED_GIGABYTES},
    )


def _page(
    ctx: ViewContext,
    link: UploadLink,
    fields: Mapping[str, str] | None = None,
    error: InvalidRequest | None = None,
) -> BaseResponse:
    return form_page(
        "links/upload.html",
        error,
        link=link,
        url=link_url(link),
        state=link.state(datetime.now(UTC)),
        received=_links(ctx).received(link, LATEST_UPLOADS_SHOWN),
        still=datetime.now(UTC) - STANDS_STILL,
        is_changed=request.args.get("done") == "changed",
        fields=_fields_of(link) if fields is None else fields,
    )


def _fields_of(link: UploadLink) -> dict[str, str]:
    """The form's fields with the link's current terms."""
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
    """A number of gigabytes that `_size` parses to the same number of bytes."""
    return "" if size is None else f"{Decimal(size) / GIGABYTE:f}"


def _body(fields: Mapping[str, str]) -> dict[str, Any]:
    """The form in the JSON format; raises `InvalidField`."""
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
    """Bytes from a number of gigabytes as people write it."""
    text = fields.get(name, "").strip().replace(",", ".")
    if not text:
        return None
    try:
        size = Decimal(text) * GIGABYTE
        if 1 <= size <= MOST_BYTES:
            return int(size)
    except ArithmeticError:  # Not a number, or NaN.
        pass
    raise InvalidField("This must be a number above 0.", field=name)


def _links(ctx: ViewContext) -> UploadLinks:
    return ctx.services.identity.upload_links


def _link(ctx: ViewContext, link_id: str) -> UploadLink:
    return _links(ctx).get(ctx.scope.target(), link_id)
