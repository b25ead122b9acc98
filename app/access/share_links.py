"""Share links: made, opened by guests, revoked.

A guest comes by three steps. The page of the link is open to everyone who has its code, and shows
no video. To *visit* it takes the password, if there is one, and counts as a view; the visitor's
browser then has a cookie for some hours. The visitor's page has a *ticket* in the URLs of its
videos, which is all that the requests for their bytes carry.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, insert, or_, select, update

from app.access import audit
from app.access.attempts import LinkPasswords
from app.access.audit import AuditAction
from app.access.creators import require_role
from app.access.keys import digest_of
from app.access.recent import Recent
from app.access.signing import Signing, Tickets
from app.core.access import Caller, CallerKind, Role
from app.core.errors import InvalidRequest, LinkClosed, LinkNotFound
from app.core.upload import Upload, UploadId
from app.db.context import Context, RequestContext
from app.db.sql import insert_row
from app.db.tables import share_links, shared_videos

# ---- rows ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareLink:
    """Lets everyone who has its code watch `videos`, at least one, in their order.

    `views` counts visits, at most `max_views`. Where its videos are gone from
    the records there is none left.
    """

    id: str
    project_id: str
    code: str
    name: str
    videos: tuple[UploadId, ...]
    can_download: bool
    created_by: str
    created_at: datetime
    password_hash: str | None = None
    max_views: int | None = None
    views: int = 0
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    @property
    def is_used_up(self) -> bool:
        """Whether it has had all of its views."""
        return self.max_views is not None and self.views >= self.max_views

    def works(self, now: datetime) -> bool:
        """Whether it was neither revoked nor has expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


# ---- use cases -----------------------------------------------------------------------------------


CODE_BYTES = 16
"""128 random bits: a link cannot be guessed."""

MAX_VIDEOS = 1000
"""Of one link; as many as an archive may have."""

MAX_VIEWS = 10**9

MAX_TEXT_CHARACTERS = 200
"""Of a name or a password."""

_DIGEST_CHARACTERS = 32
"""Of a digest that tells the passwords of a link apart."""

VISIT_TIME = timedelta(hours=12)
"""Who comes again within this time is the same visitor: no further view, no password."""

TICKET_SECONDS = 3600.0
"""A ticket is good for at least this long, or twice as long as the film if that is longer."""

DOWNLOAD_TICKET_SECONDS = 12 * 3600.0
"""A ticket for a download is good for at least this long, so that browsers can resume it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareTerms:
    """What a link allows; with None for a password, a changed link keeps the one it has."""

    name: str = ""
    can_download: bool = False
    password: str | None = None
    max_views: int | None = None
    expires_at: datetime | None = None


class _Known(NamedTuple):
    link: ShareLink
    caller: Caller


class ShareLinks:
    """What members do with share links, and whom a ticket stands for."""

    def __init__(self, ctx: Context, signing: Signing, passwords: LinkPasswords) -> None:
        self._ctx = ctx
        self._passwords = passwords
        self._visits = Tickets(signing, "visit of a share link", clock=ctx.clock)
        self._tickets = Tickets(signing, "ticket of a share link", clock=ctx.clock)
        self._recent = Recent(self._look_up)

    def make(self, ctx: RequestContext, videos: Sequence[Upload], terms: ShareTerms) -> ShareLink:
        """A new link to `videos`, which are of one project; raises `InvalidRequest`.

        Raises `NotAllowed` if its maker has no role in the project any more.
        """
        now = ctx.clock()
        if not 0 < len(videos) <= MAX_VIDEOS:
            raise InvalidRequest(f"A link is to 1 to {MAX_VIDEOS} videos.")
        if len({video.owner for video in videos}) > 1:
            raise InvalidRequest("The videos of a link must be of one project.")
        self._check(terms, now)
        link = ShareLink(
            id=ctx.new_id(),
            project_id=videos[0].owner,
            code=secrets.token_urlsafe(CODE_BYTES),
            name=terms.name,
            videos=tuple(dict.fromkeys(video.id for video in videos)),
            can_download=terms.can_download,
            created_by=ctx.caller.sender,
            created_at=now,
            password_hash=self._passwords.hash(terms.password or ""),
            max_views=terms.max_views,
            expires_at=terms.expires_at,
        )
        shown = [
            {"link_id": link.id, "upload_id": video, "position": position}
            for position, video in enumerate(link.videos)
        ]
        with ctx.database.write() as connection:
            require_role(connection, link.created_by, link.project_id)
            insert_row(connection, share_links, link)
            connection.execute(insert(shared_videos), shown)
        _audit(ctx, AuditAction.LINK_MADE, link)
        return link

    def of_project(self, project_id: str) -> list[ShareLink]:
        """The links of a project that were not revoked, the newest first."""
        links = share_links.c
        return self._all((links.project_id == project_id) & links.revoked_at.is_(None))

    def get(self, project_id: str, link_id: str) -> ShareLink:
        """A link of the project that was not revoked; raises `LinkNotFound`."""
        found = self._all(_is_in_force(project_id, link_id))
        if not found:
            raise LinkNotFound("The project has no such share link.")
        return found[0]

    def change(self, ctx: RequestContext, link: ShareLink, terms: ShareTerms) -> ShareLink:
        """The link with other terms; its address, its videos and its views stay.

        Only what differs from `link` is written, as another member may have changed the rest.
        Raises `InvalidRequest`, and `LinkNotFound` if it was revoked.
        """
        is_kept = terms.expires_at == link.expires_at
        self._check(terms, None if is_kept else ctx.clock())
        wanted: dict[str, Any] = {
            "name": terms.name,
            "can_download": terms.can_download,
            "max_views": terms.max_views,
            "expires_at": terms.expires_at,
        }
        if terms.password is not None:
            wanted["password_hash"] = self._passwords.hash(terms.password)
        other = {name: value for name, value in wanted.items() if value != getattr(link, name)}
        if other:
            change = update(share_links).where(_is_in_force(link.project_id, link.id))
            with ctx.database.write() as connection:
                connection.execute(change.values(other))
        self._recent.forget()
        changed = self.get(link.project_id, link.id)
        _audit(ctx, AuditAction.LINK_CHANGED, changed)
        return changed

    def revoke(self, ctx: RequestContext, project_id: str, link_id: str) -> None:
        """End a link at once; raises `LinkNotFound` unless the project has it."""
        link = self.get(project_id, link_id)
        change = update(share_links).where(_is_in_force(project_id, link_id))
        with ctx.database.write() as connection:
            was_revoked = connection.execute(change.values(revoked_at=ctx.clock())).rowcount == 1
        self._recent.forget()
        if not was_revoked:
            raise LinkNotFound("The project has no such share link.")
        _audit(ctx, AuditAction.LINK_CLOSED, link)

    def opened(self, code: str) -> ShareLink:
        """The link with that code; raises `LinkNotFound` or `LinkClosed`."""
        found = self._all(share_links.c.code == code)
        if not found:
            raise LinkNotFound("There is no such link. Is the address complete?")
        (link,) = found
        if not link.works(self._ctx.clock()):
            raise LinkClosed(_why_closed(link))
        return link

    def visit(self, link: ShareLink, password: str, *, address: str) -> str:
        """Count a view, and let a guest in: what its browser is to keep for `VISIT_TIME`.

        Raises `InvalidField` or `TooManyAttempts`, or `LinkClosed` if there are no more views.
        """
        if link.password_hash is not None:
            self._passwords.check(link.id, link.password_hash, password, address=address)
        now, links = self._ctx.clock(), share_links.c
        count = update(share_links).where(
            links.id == link.id,
            links.revoked_at.is_(None),
            or_(links.expires_at.is_(None), links.expires_at > now),
            or_(links.max_views.is_(None), links.views < links.max_views),
        )
        with self._ctx.database.write() as connection:
            is_counted = connection.execute(count.values(views=links.views + 1)).rowcount == 1
        if not is_counted:
            raise LinkClosed(_why_closed(self._get(link.id) or link))
        return self._visits.make(_visit_to(link), now + VISIT_TIME)

    def is_visited(self, link: ShareLink, kept: str) -> bool:
        """Whether `kept` is what `visit` has returned for this link with its password of now."""
        return self._visits.subject_of(kept) == _visit_to(link)

    def ticket(
        self, link: ShareLink, film_seconds: float = 0, *, at_least: float = TICKET_SECONDS
    ) -> str:
        """What the URLs of its videos begin with, for a film of this length; good for `at_least`.

        For half of its lifetime all viewers get the same one, so that browsers keep what they have
        loaded. It never outlives the link.
        """
        good_for = max(at_least, 2 * film_seconds)
        step = good_for / 2
        periods = self._ctx.clock().timestamp() // step + 1
        expires_at = datetime.fromtimestamp(periods * step + good_for, UTC)
        return self._tickets.make(link.id, min(expires_at, link.expires_at or expires_at))

    def guest(self, ticket: str) -> Caller:
        """Who has that ticket; raises `LinkNotFound` if it or its link does not work."""
        return self.guest_by(self._tickets.subject_of(ticket))

    def guest_by(self, link_id: str | None) -> Caller:
        """Who was let in by a link, also after the ticket has ended; raises `LinkNotFound`."""
        known = None if link_id is None else self._recent.get(link_id)
        if known is None or not known.link.works(self._ctx.clock()):
            raise LinkNotFound("The link does not exist, or works no longer.")
        return known.caller

    def _look_up(self, link_id: str) -> _Known | None:
        link = self._get(link_id)
        return None if link is None else _Known(link, guest_of(link))

    def _get(self, link_id: str) -> ShareLink | None:
        """The link with that id, whether or not it still works."""
        return next(iter(self._all(share_links.c.id == link_id)), None)

    def _all(self, condition: ColumnElement[bool]) -> list[ShareLink]:
        """Those that meet the condition, the newest first."""
        links, shared = share_links.c, shared_videos.c
        query = select(share_links).where(condition).order_by(links.created_at.desc(), links.id)
        listed = (
            select(shared.link_id, shared.upload_id)
            .join(share_links)
            .where(condition)
            .order_by(shared.link_id, shared.position)
        )
        with self._ctx.database.read() as connection:
            rows = connection.execute(query).all()
            videos: dict[str, list[UploadId]] = defaultdict(list)
            for shares in connection.execute(listed):
                videos[shares.link_id].append(UploadId(shares.upload_id))
        return [ShareLink(**row._mapping, videos=tuple(videos[row.id])) for row in rows]

    def _check(self, terms: ShareTerms, now: datetime | None) -> None:
        """Raise `InvalidRequest` for terms that cannot be, or that have expired at `now`."""
        if len(terms.name) > MAX_TEXT_CHARACTERS or not terms.name.isprintable():
            raise InvalidRequest(f"The name must be one line of {MAX_TEXT_CHARACTERS} characters.")
        if len(terms.password or "") > MAX_TEXT_CHARACTERS:
            raise InvalidRequest(f"A password has at most {MAX_TEXT_CHARACTERS} characters.")
        if terms.max_views is not None and not 0 < terms.max_views <= MAX_VIEWS:
            raise InvalidRequest(f"A link has 1 to {MAX_VIEWS} views, or any number.")
        if terms.expires_at is not None and now is not None and terms.expires_at <= now:
            raise InvalidRequest("The link would have expired already.")


def guest_of(link: ShareLink) -> Caller:
    """Who watches by that link."""
    return Caller(
        kind=CallerKind.SHARE_LINK,
        id=link.id,
        name=link.name,
        project=link.project_id,
        roles={link.project_id: Role.GUEST},
        videos=frozenset(link.videos),
        can_download=link.can_download,
    )


def _visit_to(link: ShareLink) -> str:
    """What the cookie of a visit names: with another password it is worth nothing."""
    if link.password_hash is None:
        return link.id
    return f"{link.id} {digest_of(link.password_hash)[:_DIGEST_CHARACTERS]}"


def _why_closed(link: ShareLink) -> str:
    if link.revoked_at is not None:
        return "The person who shared this has closed the link."
    return "It has been opened as often as it may be." if link.is_used_up else "It has expired."


def terms_of(link: ShareLink) -> ShareTerms:
    """What the link allows now; its password stays."""
    return ShareTerms(
        name=link.name,
        can_download=link.can_download,
        max_views=link.max_views,
        expires_at=link.expires_at,
    )


def _is_in_force(project_id: str, link_id: str) -> ColumnElement[bool]:
    links = share_links.c
    return (links.id == link_id) & (links.project_id == project_id) & links.revoked_at.is_(None)


def _audit(ctx: RequestContext, action: AuditAction, link: ShareLink) -> None:
    subject = f"share_link:{link.id}"
    audit.note(ctx, action, subject, project=link.project_id, name=link.name)
