"""/links: what a project has given to people without an account; share links are made here."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

import segno
from flask import Blueprint, make_response, redirect, render_template, request, url_for
from werkzeug import Response

from app.domain.access import Action
from app.domain.audit import AuditAction
from app.domain.errors import InvalidField, InvalidRequest, LinkNotFound, UploadError
from app.domain.moments import parse_expiry
from app.domain.numbers import parse_digits
from app.domain.upload import Upload, parse_upload_id
from app.http.access_rules import requires
from app.http.audited import audited
from app.http.bodies import form_fields
from app.http.context import current_caller, current_scope, current_services
from app.http.origins import require_own_page
from app.http.proxy import absolute_url
from app.identity.share_links import ShareTerms
from app.records.identity.share_links import ShareLink

MAX_FORM_BYTES = 64 * 1024
"""A thousand ids take 33 KB."""

DAY = 24 * 3600
LIFETIMES = (
    ("", "until it is revoked"),
    (str(DAY), "for a day"),
    (str(7 * DAY), "for a week"),
    (str(30 * DAY), "for 30 days"),
)

blueprint = Blueprint("links", __name__, url_prefix="/links")
blueprint.before_request(lambda: require_own_page(request))


@blueprint.get("")
@requires(Action.SHARE)
def index() -> str:
    """All links, the newest first; `made` names the one that was just made."""
    links = current_services().identity.share_links.of_project(current_caller().project)
    return render_template(
        "links/index.html",
        links=[(link, _title(link), url_of(link)) for link in links],
        made=request.args.get("made"),
        now=datetime.now(UTC),
    )


@blueprint.get("/share")
@requires(Action.SHARE)
def share() -> Response:
    """The form for a link to the videos that `videos` lists, with commas between their ids."""
    return _form(_videos(request.args.get("videos", "")))


@blueprint.post("/share")
@requires(Action.SHARE)
def make() -> Response:
    """Make the link."""
    fields = form_fields(MAX_FORM_BYTES)
    videos = _videos(fields.get("videos", ""))
    try:
        terms = _terms(fields)
        links = current_services().identity.share_links
        link = links.make(videos, terms, created_by=current_caller().sender)
    except InvalidRequest as error:
        return _form(videos, fields, error)
    audited(AuditAction.LINK_MADE, f"share_link:{link.id}", project=link.project_id, name=link.name)
    return redirect(url_for("links.index", made=link.id), 303)


@blueprint.post("/share/<link_id>/revoke")
@requires(Action.SHARE)
def revoke(link_id: str) -> Response:
    """End a link at once."""
    current_services().identity.share_links.revoke(current_caller().project, link_id)
    audited(AuditAction.LINK_CLOSED, f"share_link:{link_id}")
    return redirect(url_for("links.index"), 303)


@blueprint.get("/share/<link_id>/qr.svg")
@requires(Action.SHARE)
def qr(link_id: str) -> Response:
    """The address of a link for a phone's camera."""
    links = current_services().identity.share_links.of_project(current_caller().project)
    for link in links:
        if link.id == link_id:
            return qr_code(url_of(link))
    raise LinkNotFound("The project has no such share link.")


def qr_code(url: str) -> Response:
    """A URL as a picture: dark on light also where the page is dark, as cameras want it."""
    picture = segno.make(url, micro=False).svg_inline(scale=4, border=3, light="#fff")
    picture = picture.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return Response(picture, content_type="image/svg+xml")


def url_of(link: ShareLink) -> str:
    """What guests open."""
    return absolute_url("shared.show", code=link.code)


def _form(
    videos: list[Upload],
    fields: Mapping[str, str] | None = None,
    error: InvalidRequest | None = None,
) -> Response:
    field = error.field if isinstance(error, InvalidField) else "name"
    page = render_template(
        "links/share.html",
        videos=videos,
        fields=fields or {},
        problems={field: str(error)} if error else {},
        lifetimes=LIFETIMES,
    )
    return make_response(page, error.status_hint if error else 200)


def _terms(fields: Mapping[str, str]) -> ShareTerms:
    lifetime, views = fields.get("lifetime", ""), fields.get("max_views", "").strip()
    seconds, most = parse_digits(lifetime), parse_digits(views)
    if views and not most:
        raise InvalidField("This must be a number above 0.", field="max_views")
    return ShareTerms(
        name=fields.get("name", "").strip(),
        can_download="can_download" in fields,
        password=fields.get("password", ""),
        max_views=most,
        expires_at=parse_expiry(seconds, datetime.now(UTC)),
    )


def _videos(ids: str) -> list[Upload]:
    library, scope = current_services().library, current_scope()
    return [library.get(scope, parse_upload_id(each)) for each in ids.split(",")]


def _title(link: ShareLink) -> str:
    """Its name, or the name of its first video that is there."""
    if link.name:
        return link.name
    library, scope = current_services().library, current_scope()
    for video in link.videos:
        with suppress(UploadError):
            return library.get(scope, video).filename
    return "A video that was deleted"
