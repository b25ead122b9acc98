"""Share links of members: /api/share-links, and the page /links."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, TypedDict

import segno
from flask import Blueprint, Response, jsonify, render_template, request
from msgspec import UNSET, Struct, UnsetType
from werkzeug import Response as BaseResponse

from app.access import share_links
from app.access.share_links import MAX_VIEWS, ShareLink, ShareLinks, ShareTerms, terms_of
from app.core.access import Action, Scope
from app.core.errors import InvalidField, InvalidRequest, UploadGone, UploadNotFound
from app.core.json_types import Count, Expiry, Id, Instant, Positive, Url, keywords
from app.core.moments import instant, optional_instant, parse_expiry
from app.core.numbers import parse_digits
from app.core.upload import Upload, parse_upload_id
from app.http.access import requires
from app.http.bodies import form_fields, json_body, takes
from app.http.context import ViewContext
from app.http.openapi import JSON, describes
from app.http.proxy import absolute_url
from app.web.pages import form_page, number_in, page_blueprint, see_other

# ---- JSON ----------------------------------------------------------------------------------------

# /api/share-links: list, create, change, revoke.


api = Blueprint("api_share_links", __name__, url_prefix="/api/share-links")

Text = Annotated[str, keywords(maxLength=share_links.MAX_TEXT_CHARACTERS)]


class ShareTermsDocument(Struct, kw_only=True):
    """Terms of a share link. Members that are not sent stay as they are."""

    name: Text | UnsetType | None = UNSET
    """What guests read above the videos."""
    can_download: bool | UnsetType | None = UNSET
    """Null is false."""
    password: Text | UnsetType | None = UNSET
    """Null takes it away."""
    expires: Expiry | UnsetType = UNSET
    """When it stops to work, as a time or as seconds from now; without it, never."""
    max_views: Annotated[int, keywords(minimum=1, maximum=MAX_VIEWS)] | UnsetType | None = UNSET
    """How often it can be opened. A guest who comes again within 12 hours counts once."""


class NewShareLink(ShareTermsDocument, kw_only=True):
    """A new share link."""

    videos: Annotated[list[Id], keywords(minItems=1, maxItems=share_links.MAX_VIDEOS)]
    """Ids of videos of one project, in the order in which they are shown."""


class ShareLinkDocument(TypedDict):
    """A share link, as its members see it."""

    id: Id
    url: Url
    """What to send to guests."""
    name: str
    videos: list[Id]
    can_download: bool
    has_password: bool
    views: Count
    max_views: Positive | None
    created: Instant
    expires: Instant | None


class ShareLinksDocument(TypedDict):
    """All share links of a project."""

    links: list[ShareLinkDocument]


@api.get("")
@requires(Action.SHARE)
@describes("listShareLinks", {200: ShareLinksDocument})
def index(ctx: ViewContext) -> Response:
    """List the project's share links, newest first.

    Without those that were revoked.
    """
    links = _links(ctx).of_project(ctx.caller.project)
    return jsonify({"links": [link_document(link) for link in links]})


@api.post("")
@requires(Action.SHARE)
@takes(NewShareLink)
@describes("createShareLink", {201: ShareLinkDocument}, UploadNotFound, UploadGone)
def create(ctx: ViewContext, new: NewShareLink) -> tuple[Response, int]:
    """Create a link through which anyone can watch some videos."""
    link = _links(ctx).make(ctx, _videos(ctx, new.videos), terms_in(new, ShareTerms()))
    return jsonify(link_document(link)), 201


@api.patch("/<link_id>")
@requires(Action.SHARE)
@describes("changeShareLink", {200: ShareLinkDocument}, bodies={JSON: ShareTermsDocument})
def change(ctx: ViewContext, link_id: str) -> Response:
    """Change some terms of a share link.

    Members that are not sent stay as they are, and so do its address, its videos and its views. A
    link that has expired works again with another `expires`.
    """
    link = _link(ctx, link_id)
    terms = terms_in(json_body(ctx, ShareTermsDocument), terms_of(link))
    changed = _links(ctx).change(ctx, link, terms)
    return jsonify(link_document(changed))


@api.delete("/<link_id>")
@requires(Action.SHARE)
@describes("revokeShareLink", {204: "Revoked."})
def revoke(ctx: ViewContext, link_id: str) -> tuple[str, int]:
    """Revoke a share link.

    Its page closes at once, and its videos stop within five seconds.
    """
    _links(ctx).revoke(ctx, ctx.caller.project, link_id)
    return "", 204


def link_url(link: ShareLink) -> str:
    """The URL of the link's page."""
    return absolute_url("shared.show", code=link.code)


def link_document(link: ShareLink) -> ShareLinkDocument:
    """A link as shown to members, with its terms and view count."""
    return {
        "id": link.id,
        "url": link_url(link),
        "name": link.name,
        "videos": list(link.videos),
        "can_download": link.can_download,
        "has_password": link.password_hash is not None,
        "views": link.views,
        "max_views": link.max_views,
        "created": instant(link.created_at),
        "expires": optional_instant(link.expires_at),
    }


def terms_in(sent: ShareTermsDocument, given: ShareTerms) -> ShareTerms:
    """The terms that a client has sent; missing ones are taken from `given`.

    Null removes a limit, a name or a password. Raises `InvalidRequest`.
    """
    terms: dict[str, Any] = {}
    if sent.name is not UNSET:
        terms["name"] = sent.name or ""
    if sent.can_download is not UNSET:
        terms["can_download"] = bool(sent.can_download)
    if sent.password is not UNSET:
        terms["password"] = sent.password or ""
    if sent.max_views is not UNSET:
        terms["max_views"] = sent.max_views
    if sent.expires is not UNSET:
        terms["expires_at"] = parse_expiry(sent.expires, datetime.now(UTC))
    return replace(given, **terms)


# ---- pages ---------------------------------------------------------------------------------------

# /links: share links of a project, for people without an account.


DAY = 24 * 3600
FOREVER = ""
KEPT = "kept"
"""The choice that keeps the expiry of a changed link."""

LIFETIMES = (
    (str(DAY), "a day"),
    (str(7 * DAY), "a week"),
    (str(30 * DAY), "30 days"),
    (FOREVER, "no end"),
)
"""Lifetimes of a link, in seconds."""

pages = page_blueprint("links", __name__, url_prefix="/links")


@pages.get("", endpoint="index")
@requires(Action.SHARE)
def index_page(ctx: ViewContext) -> str:
    """All share links, newest first."""
    return render_template(
        "links/index.html",
        links=[
            (link, _title(ctx, link), link_url(link))
            for link in _links(ctx).of_project(ctx.caller.project)
        ],
        now=datetime.now(UTC),
    )


@pages.get("/share")
@requires(Action.SHARE)
def share(ctx: ViewContext) -> BaseResponse:
    """The form for a link to the videos in `videos`, a list of ids separated by commas."""
    return _form(_videos(ctx, request.args.get("videos", "").split(",")))


@pages.post("/share")
@requires(Action.SHARE)
def make(ctx: ViewContext) -> BaseResponse:
    """Create the link, and show its URL."""
    fields = form_fields(ctx)
    videos = _videos(ctx, fields.get("videos", "").split(","))
    try:
        link = _links(ctx).make(ctx, videos, terms_in(_body(fields), ShareTerms()))
    except InvalidRequest as error:
        return _form(videos, fields, error)
    return see_other("links.show", link_id=link.id)


@pages.get("/share/<link_id>")
@requires(Action.SHARE)
def show(ctx: ViewContext, link_id: str) -> BaseResponse:
    """One link: its URL, and a form with its terms."""
    return _page(ctx, _link(ctx, link_id))


@pages.post("/share/<link_id>", endpoint="change")
@requires(Action.SHARE)
def change_page(ctx: ViewContext, link_id: str) -> BaseResponse:
    """Change the terms of a link."""
    link, fields = _link(ctx, link_id), form_fields(ctx)
    try:
        _links(ctx).change(ctx, link, terms_in(_body(fields), terms_of(link)))
    except InvalidRequest as error:
        return _page(ctx, link, fields, error)
    return see_other("links.show", link_id=link.id, done="changed")


@pages.post("/share/<link_id>/revoke", endpoint="revoke")
@requires(Action.SHARE)
def revoke_page(ctx: ViewContext, link_id: str) -> BaseResponse:
    """End a link at once."""
    _links(ctx).revoke(ctx, ctx.caller.project, link_id)
    return see_other("links.index")


@pages.get("/share/<link_id>/qr.svg")
@requires(Action.SHARE)
def qr(ctx: ViewContext, link_id: str) -> BaseResponse:
    """The URL of a link as a QR code."""
    return qr_code(link_url(_link(ctx, link_id)))


def qr_code(url: str) -> BaseResponse:
    """A QR code of a URL: dark on light even if the page is dark, as cameras need it."""
    picture = segno.make(url, micro=False).svg_inline(scale=4, border=3, light="#fff")
    picture = picture.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return BaseResponse(picture, content_type="image/svg+xml")


def link_page(template: str, error: InvalidRequest | None, **shown: Any) -> BaseResponse:
    """A page with a link's form; an error that names no field is shown beside the name."""
    field = error.field if isinstance(error, InvalidField) else "name"
    return form_page(template, error, field=field, lifetimes=LIFETIMES, **shown)


def expiry_in(fields: Mapping[str, str]) -> int | UnsetType | None:
    """The form's `expires` in the JSON format."""
    lifetime = fields.get("lifetime", FOREVER)
    return UNSET if lifetime == KEPT else parse_digits(lifetime)


def password_in(fields: Mapping[str, str]) -> str | UnsetType:
    """The form's `password`."""
    password = fields.get("password", "")
    return password if password or "no_password" in fields else UNSET


def _form(
    videos: list[Upload],
    fields: Mapping[str, str] | None = None,
    error: InvalidRequest | None = None,
) -> BaseResponse:
    return link_page("links/share.html", error, videos=videos, fields=fields or {})


def _page(
    ctx: ViewContext,
    link: ShareLink,
    fields: Mapping[str, str] | None = None,
    error: InvalidRequest | None = None,
) -> BaseResponse:
    return link_page(
        "links/shared.html",
        error,
        link=link,
        title=_title(ctx, link),
        url=link_url(link),
        videos=list(present_videos(ctx, link, ctx.scope)),
        is_over=not link.works(datetime.now(UTC)),
        is_changed=request.args.get("done") == "changed",
        fields=fields,
    )


def _body(fields: Mapping[str, str]) -> ShareTermsDocument:
    """The form in the JSON format; raises `InvalidField`."""
    return ShareTermsDocument(
        name=fields.get("name", "").strip(),
        can_download="can_download" in fields,
        max_views=number_in(fields, "max_views"),
        expires=expiry_in(fields),
        password=password_in(fields),
    )


def _links(ctx: ViewContext) -> ShareLinks:
    return ctx.services.identity.share_links


def _link(ctx: ViewContext, link_id: str) -> ShareLink:
    return _links(ctx).get(ctx.caller.project, link_id)


def _videos(ctx: ViewContext, ids: list[str]) -> list[Upload]:
    library, scope = ctx.services.library, ctx.scope
    return [library.get(scope, parse_upload_id(each)) for each in ids]


def present_videos(ctx: ViewContext, link: ShareLink, scope: Scope) -> Iterator[Upload]:
    """The link's videos that have not been deleted."""
    for video in link.videos:
        with suppress(UploadNotFound, UploadGone):
            yield ctx.services.library.get(scope, video)


def _title(ctx: ViewContext, link: ShareLink) -> str:
    """The link's name, or the name of its first video that exists."""
    if link.name:
        return link.name
    present = (video.filename for video in present_videos(ctx, link, ctx.scope))
    return next(present, "A video that was deleted")
