"""Upload links of members: /api/upload-links, and the pages /links/upload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, TypedDict

from flask import Blueprint, Response, jsonify, request
from msgspec import UNSET, Struct, UnsetType
from werkzeug import Response as BaseResponse

from app.access import upload_links
from app.access.upload_links import LinkState, LinkTerms, UploadLink, UploadLinks, terms_of
from app.core.access import Action
from app.core.errors import InvalidField, InvalidRequest
from app.core.json_types import Count, Expiry, Id, Instant, Positive, Url, keywords
from app.core.lifecycle import UploadState
from app.core.moments import instant, optional_instant, parse_expiry
from app.http.access import requires
from app.http.bodies import form_fields, json_body, takes
from app.http.context import ViewContext
from app.http.openapi import JSON, describes
from app.http.proxy import absolute_url
from app.web.pages import number_in, page_blueprint, see_other
from app.web.share_links import expiry_in, link_page, password_in, qr_code

# ---- JSON ----------------------------------------------------------------------------------------

# /api/upload-links: links through which people without an account send files.


api = Blueprint("api_upload_links", __name__, url_prefix="/api/upload-links")

LATEST_UPLOADS = 100
"""Maximum of uploads shown for a link, with the names of their senders."""


Name = Annotated[str, keywords(maxLength=upload_links.MAX_NAME_CHARACTERS)]
Message = Annotated[str, keywords(maxLength=upload_links.MAX_MESSAGE_CHARACTERS)]
Password = Annotated[str, keywords(maxLength=upload_links.MAX_PASSWORD_CHARACTERS)]
Files = Annotated[int, keywords(minimum=1, maximum=upload_links.MOST_FILES)]
Bytes = Annotated[int, keywords(minimum=1, maximum=upload_links.MOST_BYTES)]
Extension = Annotated[str, keywords(pattern=r"^\.?[A-Za-z0-9]{1,20}$")]
Extensions = Annotated[list[Extension], keywords(maxItems=upload_links.MAX_EXTENSIONS)]


class LinkTermsDocument(Struct, kw_only=True):
    """Terms of an upload link. In a change, members that are not sent stay as they are."""

    name: Name | UnsetType | None = UNSET
    """What senders read first."""
    message: Message | UnsetType | None = UNSET
    max_files: Files | UnsetType | None = UNSET
    max_bytes: Bytes | UnsetType | None = UNSET
    """Of all files together."""
    max_file_bytes: Bytes | UnsetType | None = UNSET
    extensions: Extensions | UnsetType | None = UNSET
    """Endings of file names, such as `mp4`; without any, all are taken."""
    expires: Expiry | UnsetType = UNSET
    """When it closes, as a time or as seconds from now; without it, never."""
    password: Password | UnsetType | None = UNSET
    """Null takes it away."""
    asks_name: bool | UnsetType = UNSET
    """Whether its page asks for the sender's name."""


class UploadLinkDocument(TypedDict):
    """An upload link, with what it has received."""

    id: Id
    url: Url
    """What to send to those who have files."""
    name: str
    message: str
    state: LinkState
    files: Count
    """Taken, with those on their way."""
    bytes: Count
    max_files: Positive | None
    max_bytes: Positive | None
    max_file_bytes: Positive | None
    extensions: list[str]
    expires: Instant | None
    asks_name: bool
    has_password: bool
    created: Instant


class UploadLinksDocument(TypedDict):
    """All upload links of a project, also those that are closed."""

    links: list[UploadLinkDocument]


class ReceivedDocument(TypedDict):
    """An upload that came through a link."""

    id: Id
    filename: str
    length: int | None
    state: UploadState
    created: Instant
    sender_name: str | None
    """The name that the sender has entered."""


class UploadLinkWithUploads(UploadLinkDocument):
    """An upload link, with its latest uploads."""

    uploads: list[ReceivedDocument]


@api.get("")
@requires(Action.SHARE)
@describes("listUploadLinks", {200: UploadLinksDocument})
def index(ctx: ViewContext) -> Response:
    """List the project's upload links, newest first."""
    links = _links(ctx).of_project(ctx)
    return jsonify({"links": [link_document(link) for link in links]})


@api.post("")
@requires(Action.SHARE)
@takes(LinkTermsDocument)
@describes("createUploadLink", {201: UploadLinkDocument}, InvalidField)
def create(ctx: ViewContext, sent: LinkTermsDocument) -> tuple[Response, int]:
    """Create a link through which anyone can send files.

    Below its `url` are the same endpoints for uploads as at the root, such as `tus/`, `upload` and
    `api/uploads`. They refuse what the link does not take: `link_full` and `too_large` (413),
    `type_not_allowed` (415), and everything with `link_closed` (410) once it is closed.
    """
    link = _links(ctx).make(ctx, terms_in(ctx, sent, LinkTerms()))
    return jsonify(link_document(link)), 201


@api.get("/<link_id>")
@requires(Action.SHARE)
@describes("showUploadLink", {200: UploadLinkWithUploads})
def show(ctx: ViewContext, link_id: str) -> Response:
    """Get an upload link, and its latest uploads."""
    link = _link(ctx, link_id)
    received = _links(ctx).received(link, LATEST_UPLOADS)
    uploads = [received_document(each) for each in received]
    return jsonify({**link_document(link), "uploads": uploads})


@api.patch("/<link_id>")
@requires(Action.SHARE)
@describes(
    "changeUploadLink", {200: UploadLinkDocument}, InvalidField, bodies={JSON: LinkTermsDocument}
)
def change(ctx: ViewContext, link_id: str) -> Response:
    """Change some terms of an upload link.

    Members that are not sent stay as they are. Files already received stay.
    """
    link = _link(ctx, link_id)
    terms = terms_in(ctx, json_body(ctx, LinkTermsDocument), terms_of(link))
    changed = _links(ctx).change(ctx, link, terms)
    return jsonify(link_document(changed))


@api.delete("/<link_id>")
@requires(Action.SHARE)
@describes("closeUploadLink", {204: "Closed."})
def close(ctx: ViewContext, link_id: str) -> tuple[str, int]:
    """Close an upload link.

    The next request gets 410; active ones end within five seconds.
    """
    _links(ctx).close(ctx, _link(ctx, link_id))
    return "", 204


def link_url(link: UploadLink) -> str:
    """The URL of the link's page."""
    return absolute_url("upload_link.page", code=link.code)


def link_document(link: UploadLink) -> UploadLinkDocument:
    """A link as shown to members, with what it has received."""
    return {
        "id": link.id,
        "url": link_url(link),
        "name": link.name,
        "message": link.message,
        "state": link.state(datetime.now(UTC)),
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


def received_document(received: upload_links.Received) -> ReceivedDocument:
    """An upload that came through a link."""
    upload = received.upload
    return {
        "id": upload.id,
        "filename": upload.filename,
        "length": upload.length,
        "state": upload.state,
        "created": instant(upload.created_at),
        "sender_name": received.sender_name or None,
    }


def terms_in(ctx: ViewContext, sent: LinkTermsDocument, given: LinkTerms) -> LinkTerms:
    """The terms that a client has sent; missing ones are taken from `given`.

    Raises `InvalidRequest`.
    """
    if sent.password is not UNSET:  # Leading and trailing blanks count.
        links = ctx.services.identity.upload_links
        given = links.with_password(given, sent.password or "")
    terms: dict[str, Any] = {
        name: value
        for name in ("max_files", "max_bytes", "max_file_bytes", "asks_name")
        if (value := getattr(sent, name)) is not UNSET
    }
    if sent.name is not UNSET:
        terms["name"] = (sent.name or "").strip()
    if sent.message is not UNSET:  # Browsers end lines in forms with CRLF.
        terms["message"] = (sent.message or "").strip().replace("\r\n", "\n")
    if sent.extensions is not UNSET:
        terms["extensions"] = _extensions(sent.extensions or [])
    if sent.expires is not UNSET:
        terms["expires_at"] = parse_expiry(sent.expires, datetime.now(UTC))
    return replace(given, **terms)


def _extensions(sent: list[str]) -> tuple[str, ...]:
    if len(sent) > upload_links.MAX_EXTENSIONS:
        raise InvalidField(f"At most {upload_links.MAX_EXTENSIONS} types.", field="extensions")
    given = [each.removeprefix(".") for each in sent]
    # Some letters beyond ASCII are ASCII in lower case; the terms refuse them as they are.
    return tuple(dict.fromkeys(each.lower() if each.isascii() else each for each in given))


# ---- pages ---------------------------------------------------------------------------------------

# /links/upload: members create upload links, and see what was received.


GIGABYTE = 10**9

PROPOSED_GIGABYTES = "100"
"""Proposed size limit of a new link: without a limit, anyone with its URL can fill the disk."""

LATEST_UPLOADS_SHOWN = 50
"""Maximum of uploads shown on a link's page."""

STANDS_STILL = timedelta(minutes=2)
"""An upload that receives no bytes for this long is shown as interrupted."""

pages = page_blueprint("upload_links", __name__, url_prefix="/links/upload")


@pages.get("", endpoint="index")
@requires(Action.SHARE)
def index_page(ctx: ViewContext) -> BaseResponse:
    """All upload links of the project, and a form to create one."""
    return _index(ctx)


@pages.post("")
@requires(Action.SHARE)
def make(ctx: ViewContext) -> BaseResponse:
    """Create a link, and show its URL."""
    fields = form_fields(ctx)
    try:
        link = _links(ctx).make(ctx, terms_in(ctx, _body(fields), LinkTerms()))
    except InvalidRequest as error:
        return _index(ctx, fields, error)
    return see_other("upload_links.show", link_id=link.id)


@pages.get("/<link_id>", endpoint="show")
@requires(Action.SHARE)
def show_page(ctx: ViewContext, link_id: str) -> BaseResponse:
    """One link: its URL, terms, received files and their senders."""
    return _page(ctx, _link(ctx, link_id))


@pages.post("/<link_id>", endpoint="change")
@requires(Action.SHARE)
def change_page(ctx: ViewContext, link_id: str) -> BaseResponse:
    """Change the terms of a link; files already received stay."""
    link, fields = _link(ctx, link_id), form_fields(ctx)
    try:
        _links(ctx).change(ctx, link, terms_in(ctx, _body(fields), terms_of(link)))
    except InvalidRequest as error:
        return _page(ctx, link, fields, error)
    return see_other("upload_links.show", link_id=link.id, done="changed")


@pages.post("/<link_id>/close", endpoint="close")
@requires(Action.SHARE)
def close_page(ctx: ViewContext, link_id: str) -> BaseResponse:
    """Close a link at once."""
    link = _links(ctx).close(ctx, _link(ctx, link_id))
    return see_other("upload_links.show", link_id=link.id)


@pages.get("/<link_id>/qr.svg")
@requires(Action.SHARE)
def qr(ctx: ViewContext, link_id: str) -> BaseResponse:
    """The URL of a link as a QR code."""
    return qr_code(link_url(_link(ctx, link_id)))


def _index(
    ctx: ViewContext, fields: Mapping[str, str] | None = None, error: InvalidRequest | None = None
) -> BaseResponse:
    now = datetime.now(UTC)
    return link_page(
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
    return link_page(
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


def _body(fields: Mapping[str, str]) -> LinkTermsDocument:
    """The form in the JSON format; raises `InvalidField`."""
    return LinkTermsDocument(
        name=fields.get("name", ""),
        message=fields.get("message", ""),
        max_files=number_in(fields, "max_files"),
        max_bytes=_size(fields, "max_bytes"),
        max_file_bytes=_size(fields, "max_file_bytes"),
        extensions=fields.get("extensions", "").replace(",", " ").split(),
        asks_name="asks_name" in fields,
        expires=expiry_in(fields),
        password=password_in(fields),
    )


def _size(fields: Mapping[str, str], name: str) -> int | None:
    """Bytes from a number of gigabytes as people write it."""
    text = fields.get(name, "").strip().replace(",", ".")
    if not text:
        return None
    try:
        size = Decimal(text) * GIGABYTE
        if 1 <= size <= upload_links.MOST_BYTES:
            return int(size)
    except ArithmeticError:  # Not a number, or NaN.
        pass
    raise InvalidField("This must be a number above 0.", field=name)


def _links(ctx: ViewContext) -> UploadLinks:
    return ctx.services.identity.upload_links


def _link(ctx: ViewContext, link_id: str) -> UploadLink:
    return _links(ctx).get(ctx.scope.target(), link_id)
