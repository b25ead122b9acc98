"""Upload links, as members make, look at, change and close them."""

from __future__ import annotations

import re
import secrets
import unicodedata
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

from app.access import audit
from app.access.attempts import LinkPasswords
from app.access.audit import AuditAction
from app.access.creators import require_role
from app.core import errors
from app.core.access import CallerKind
from app.core.lifecycle import GONE, UploadState
from app.core.numbers import bytes_in_words
from app.core.policy import UNNAMED, extension_of
from app.core.upload import Upload, UploadKind
from app.db.context import Context, RequestContext
from app.db.sql import insert_row, insert_unless_known, lock_name
from app.db.tables import HAS_SENDER, IS_RESERVING, UPLOAD, link_senders, upload_links, uploads
from app.records import statements

SENDER_KIND = "upload_link"
"""Prefix of the sender of an upload through a link; see `Caller.sender`."""

PARTS_PER_FILE = 64
"""Most unfinished parts for each file that a link takes; further ones are refused. Clients that
send a file in parts use a handful."""


CODE_BYTES = 16
"""128 random bits: a code cannot be guessed."""

MAX_NAME_CHARACTERS = 200
"""Of a link, and of a visitor."""

MAX_MESSAGE_CHARACTERS = 2000
MAX_PASSWORD_CHARACTERS = 200
MAX_EXTENSIONS = 50

MOST_BYTES = 2**63 - 1
MOST_FILES = 2**31 - 1
"""Greater limits do not fit into the database, and limit nothing."""

_NO_TEXT = {"Cc", "Cs"}
_EXTENSION = re.compile(r"[a-z0-9]{1,20}")

# ---- rows ----------------------------------------------------------------------------------------


class LinkState(StrEnum):
    """Whether a link takes files."""

    OPEN = "open"
    FULL = "full"
    EXPIRED = "expired"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTerms:
    """What a link takes, and says to its visitors; sizes are bytes.

    Without extensions it takes files of every type.
    """

    name: str = ""
    message: str = ""
    max_files: int | None = None
    max_bytes: int | None = None
    max_file_bytes: int | None = None
    extensions: tuple[str, ...] = ()
    asks_name: bool = False
    expires_at: datetime | None = None
    password_hash: str | None = None

    def check(self) -> None:
        """Raise `InvalidField` for terms that cannot be; those stored earlier may be such."""
        if len(self.name) > MAX_NAME_CHARACTERS or not self.name.isprintable():
            words = f"The title must be one line of at most {MAX_NAME_CHARACTERS} characters."
            raise errors.InvalidField(words, field="name")
        if len(self.message) > MAX_MESSAGE_CHARACTERS:
            words = f"The message is over {MAX_MESSAGE_CHARACTERS} characters."
            raise errors.InvalidField(words, field="message")
        # Control characters, other than line breaks, and lone surrogates.
        if any(each != "\n" and unicodedata.category(each) in _NO_TEXT for each in self.message):
            words = "The message has characters that are not text."
            raise errors.InvalidField(words, field="message")
        if len(self.extensions) > MAX_EXTENSIONS:
            raise errors.InvalidField(f"At most {MAX_EXTENSIONS} types.", field="extensions")
        if not all(_EXTENSION.fullmatch(each) for each in self.extensions):
            words = "A type is the ending of file names, such as mp4 or mov."
            raise errors.InvalidField(words, field="extensions")
        for name, limit, most in (
            ("max_files", self.max_files, MOST_FILES),
            ("max_bytes", self.max_bytes, MOST_BYTES),
            ("max_file_bytes", self.max_file_bytes, MOST_BYTES),
        ):
            if limit is not None and not 0 < limit <= most:
                raise errors.InvalidField("A limit is a number above zero.", field=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadLink(LinkTerms):
    """A link through which strangers send files to a project.

    `files` and `bytes` are what it has taken, with what unfinished uploads hold.
    """

    id: str
    project_id: str
    code: str
    created_by: str
    created_at: datetime
    files: int = 0
    bytes: int = 0
    closed_at: datetime | None = None

    @classmethod
    def of(cls, row: sa.Row[Any]) -> UploadLink:
        """The link of a row of `db.tables.upload_links`."""
        return cls(**{**row._mapping, "extensions": tuple(row.extensions.split())})

    @property
    def subject(self) -> str:
        """How the audit log names it."""
        return f"{SENDER_KIND}:{self.id}"

    def state(self, now: datetime) -> LinkState:
        """Whether it takes files, and why not."""
        if self.closed_at is not None:
            return LinkState.CLOSED
        if self.expires_at is not None and now >= self.expires_at:
            return LinkState.EXPIRED
        return LinkState.FULL if self.is_full else LinkState.OPEN

    @property
    def files_left(self) -> int | None:
        """How many more files it takes; None for any number."""
        return None if self.max_files is None else max(0, self.max_files - self.files)

    @property
    def most_bytes(self) -> int | None:
        """How many bytes it takes in all; None for any number.

        Without a limit of its own, as many as its files may have: parts count no file.
        """
        if self.max_bytes is not None or self.max_files is None or self.max_file_bytes is None:
            return self.max_bytes
        return self.max_files * self.max_file_bytes

    @property
    def bytes_left(self) -> int | None:
        """How many more bytes it takes; None for any number."""
        return None if self.most_bytes is None else max(0, self.most_bytes - self.bytes)

    @property
    def is_full(self) -> bool:
        """Whether it takes nothing more."""
        return 0 in {self.files_left, self.bytes_left}

    @property
    def largest_file(self) -> int | None:
        """The length of the largest file it takes now; None for any."""
        limits = [self.max_file_bytes, self.bytes_left]
        return min((limit for limit in limits if limit is not None), default=None)

    def require_open(self, now: datetime) -> UploadLink:
        """The link itself, even if it is full: what was begun goes on; raises `LinkClosed`."""
        state = self.state(now)
        if state in WHY_CLOSED:
            raise errors.LinkClosed(WHY_CLOSED[state])
        return self

    def check_type(self, filename: str) -> None:
        """Raise `TypeNotAllowed` for the name of a file that it does not take."""
        extension = extension_of(filename)
        if self.extensions and extension not in self.extensions:
            allowed = ", ".join(self.extensions)
            raise errors.TypeNotAllowed(f"This link takes only files of these types: {allowed}.")

    def check_length(self, length: int) -> None:
        """Raise `TooLarge` for the length of a file that it never takes."""
        if self.max_file_bytes is not None and length > self.max_file_bytes:
            raise errors.TooLarge(f"This link takes files of up to {self.max_file_bytes} bytes.")

    def check_parts(self, parts: int, length: int) -> None:
        """Raise `LinkFull` for more unfinished parts, or bytes of them, than its files need."""
        if self.files_left == 0 or (self.bytes_left is not None and length > self.bytes_left):
            raise self.full()
        if self.max_files is not None and parts > self.max_files * PARTS_PER_FILE:
            raise errors.LinkFull(
                f"This link takes at most {self.max_files * PARTS_PER_FILE} unfinished parts of "
                "files: finish or cancel some first."
            )

    def full(self) -> errors.LinkFull:
        """The error that says what it has left."""
        if self.files_left == 0:
            return errors.LinkFull(f"This link has taken all of its {self.max_files} files.")
        return errors.LinkFull(f"This link takes {self.bytes_left} more bytes.")


WHY_CLOSED = {
    LinkState.EXPIRED: "This link has expired.",
    LinkState.CLOSED: "This link was closed by the people who made it.",
}


@dataclass(frozen=True, slots=True)
class Received:
    """An upload that came through a link, and what its sender is called, if anything."""

    upload: Upload
    sender_name: str


def sender_prefix(link_id: str) -> str:
    """How the senders of all uploads through a link begin."""
    return f"{SENDER_KIND}:{link_id}:"


def link_of(sender: str) -> str | None:
    """The id of the link that an upload of this sender came through."""
    kind, _, rest = sender.partition(":")
    return rest.partition(":")[0] if kind == SENDER_KIND else None


# ---- use cases -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UploadLinks:
    """What members do with upload links.

    `forget` ends what this process remembers of links, and `cancel_uploads` cancels the unfinished
    uploads whose sender begins so.
    """

    ctx: Context
    passwords: LinkPasswords
    _: KW_ONLY
    forget: Callable[[], None]
    cancel_uploads: Callable[[str], None]

    def make(self, ctx: RequestContext, terms: LinkTerms) -> UploadLink:
        """A new link; raises `InvalidField`.

        Raises `NotAllowed` if its maker has no role in the project any more.
        """
        terms.check()
        link = UploadLink(
            id=ctx.new_id(),
            project_id=ctx.project,
            code=secrets.token_urlsafe(CODE_BYTES),
            created_by=ctx.caller.sender,
            created_at=ctx.clock(),
            **_terms_of(terms),
        )
        with ctx.database.write() as connection:
            require_role(connection, link.created_by, link.project_id)
            insert_row(connection, upload_links, link, extensions=" ".join(link.extensions))
        _audit(ctx, AuditAction.LINK_MADE, link)
        return link

    def of_project(self, ctx: RequestContext) -> list[UploadLink]:
        """All links of the project, the newest first."""
        query = _LINKS.where(upload_links.c.project_id == ctx.project).order_by(
            upload_links.c.created_at.desc(), upload_links.c.id
        )
        with ctx.database.read() as connection:
            return [UploadLink.of(row) for row in connection.execute(query)]

    def get(self, project_id: str, link_id: str) -> UploadLink:
        """A link of the project; raises `LinkNotFound`."""
        with self.ctx.database.read() as connection:
            link = get_link(connection, link_id)
        if link.project_id != project_id:
            raise errors.LinkNotFound("No link has this id.")
        return link

    def with_password(self, terms: LinkTerms, password: str) -> LinkTerms:
        """The terms with another password; an empty one takes it away. Raises `InvalidField`."""
        if len(password) > MAX_PASSWORD_CHARACTERS:
            words = f"A password has at most {MAX_PASSWORD_CHARACTERS} characters."
            raise errors.InvalidField(words, field="password")
        return replace(terms, password_hash=self.passwords.hash(password))

    def change(self, ctx: RequestContext, link: UploadLink, terms: LinkTerms) -> UploadLink:
        """The link with other terms; what it has taken stays, even if that is more than them.

        Only what differs from `link` is written, as another member may have changed the rest.
        Raises `InvalidField`.
        """
        terms.check()
        before = _terms_of(link)
        other = {name: value for name, value in _terms_of(terms).items() if value != before[name]}
        changed = self._change(link, other)
        _audit(ctx, AuditAction.LINK_CHANGED, changed)
        return changed

    def close(self, ctx: RequestContext, link: UploadLink) -> UploadLink:
        """Refuse every further request through the link, and cancel what it has not received.

        Closing it again changes nothing.
        """
        if link.closed_at is None:
            link = self._change(link, {"closed_at": ctx.clock()})
        self.cancel_uploads(sender_prefix(link.id))
        _audit(ctx, AuditAction.LINK_CLOSED, link)
        return link

    def received(self, link: UploadLink, limit: int) -> list[Received]:
        """What came through the link and what is on its way, the newest first."""
        start = sender_prefix(link.id)
        visitor = sa.func.substr(uploads.c.sender, len(start) + 1)
        query = (
            sa.select(*UPLOAD, link_senders.c.name)
            .outerjoin(
                link_senders,
                (link_senders.c.link_id == link.id) & (link_senders.c.visitor == visitor),
            )
            .where(uploads.c.sender >= start, uploads.c.sender < start + "~")
            .where(uploads.c.state.in_(_SHOWN), uploads.c.kind != UploadKind.PARTIAL)
            .order_by(uploads.c.created_at.desc(), uploads.c.id)
            .limit(limit)
        )
        with self.ctx.database.read() as connection:
            rows = connection.execute(query).all()
        return [Received(statements.from_row(row[:-1]), row[-1] or "") for row in rows]

    def _change(self, link: UploadLink, values: dict[str, Any]) -> UploadLink:
        """The link as it is stored after the change of these columns alone."""
        if "extensions" in values:
            values["extensions"] = " ".join(values["extensions"])
        change = sa.update(upload_links).where(upload_links.c.id == link.id)
        with self.ctx.database.write() as connection:
            if values:
                connection.execute(change.values(values))
            changed = get_link(connection, link.id)
        self.forget()
        return changed


def terms_of(link: UploadLink) -> LinkTerms:
    """What the link says now."""
    return LinkTerms(**_terms_of(link))


def find_link(ctx: Context, code: str) -> UploadLink | None:
    """The link with that code, whether or not it is open."""
    with ctx.database.read() as connection:
        row = connection.execute(_LINKS.where(upload_links.c.code == code)).first()
    return None if row is None else UploadLink.of(row)


def _terms_of(terms: LinkTerms) -> dict[str, Any]:
    return {name: getattr(terms, name) for name in LinkTerms.__slots__}


def _audit(ctx: RequestContext, action: AuditAction, link: UploadLink) -> None:
    audit.note(ctx, action, link.subject, project=link.project_id, name=link.name)


# ---- within the transactions of uploads ----------------------------------------------------------


def get_link(connection: sa.Connection, link_id: str) -> UploadLink:
    """The link; raises `LinkNotFound`."""
    row = connection.execute(_BY_ID, {"link_id": link_id}).first()
    if row is None:
        raise errors.LinkNotFound("No link has this id.")
    return UploadLink.of(row)


def take(connection: sa.Connection, link_id: str, *, files: int, length: int) -> UploadLink:
    """The link after it has counted more files and bytes.

    A single statement counts: of many that try at the same time, as many succeed as there is room
    for; and none after the link was closed. Raises `LinkFull` and `LinkClosed`.
    """
    counted = {"link_id": link_id, "more_files": files, "more_bytes": length}
    is_taken = connection.execute(_TAKE, counted).rowcount > 0
    link = get_link(connection, link_id)
    if not is_taken and link.closed_at is not None:
        raise errors.LinkClosed(WHY_CLOSED[LinkState.CLOSED])
    if not is_taken:
        raise link.full()
    if length > 0 and link.most_bytes is not None and link.bytes > link.most_bytes:
        raise replace(link, files=link.files - files, bytes=link.bytes - length).full()
    return link


def give_back(connection: sa.Connection, link_id: str, *, files: int, length: int) -> None:
    """Count files and bytes no longer; harmless if the link is gone."""
    counted = {"link_id": link_id, "more_files": -files, "more_bytes": -length}
    connection.execute(_COUNT, counted)


_LINKS = sa.select(upload_links)

_BY_ID = _LINKS.where(upload_links.c.id == sa.bindparam("link_id"))

_SHOWN = (UploadState.RECEIVING, UploadState.VERIFYING, UploadState.COMPLETE)

_COUNT = (
    sa.update(upload_links)
    .where(upload_links.c.id == sa.bindparam("link_id"))
    .values(
        files=upload_links.c.files + sa.bindparam("more_files"),
        bytes=upload_links.c.bytes + sa.bindparam("more_bytes"),
    )
)

_TAKE = _COUNT.where(
    upload_links.c.closed_at.is_(None),
    sa.or_(
        upload_links.c.max_files.is_(None),
        upload_links.c.files + sa.bindparam("more_files") <= upload_links.c.max_files,
    ),
    sa.or_(
        upload_links.c.max_bytes.is_(None),
        upload_links.c.bytes + sa.bindparam("more_bytes") <= upload_links.c.max_bytes,
    ),
)


# ---- limits --------------------------------------------------------------------------------------

# Counts what comes through upload links, and refuses what is too much.
#
# `observe` counts in the transactions of the uploads. An unfinished upload counts with its
# reservation, so that a mere claim does not fill a link; its whole length must fit when it
# begins. What has stalled counts no file until its next byte. What ends unfinished no longer
# counts; what is complete does, even if it is deleted later. Parts of files count neither files nor
# bytes before they are put together, but there may be no more of them than the link has left.


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """The limits of upload links."""

    ctx: Context

    def observe(
        self, connection: sa.Connection, before: Upload | None, after: Upload | None
    ) -> None:
        """An `Observer` of uploads.

        Raises `LinkClosed`, `LinkFull`, `TooLarge`, `TypeNotAllowed` or `TooMuchReserved` for what
        it refuses.
        """
        changed = after or before
        link_id = link_of(changed.sender) if changed is not None else None
        if link_id is None:
            return
        if before is not None and (before.state in GONE or before.published_at is not None):
            return  # It has ended or arrived: no later change counts.
        files, length = _taken(after)
        files_before, length_before = _taken(before)
        files, length = files - files_before, length - length_before
        if after is None or after.state in GONE:
            give_back(connection, link_id, files=-files, length=-length)
            return
        self._check(connection, link_id, before, after)
        more_held = after.held_bytes - (0 if before is None else before.held_bytes)
        if before is None or files > 0 or more_held > 0:
            link = take(connection, link_id, files=files, length=length)
            if after.reserved is not None:
                self._check_reserved(connection, link, after)
        elif files or length:
            give_back(connection, link_id, files=-files, length=-length)

    def allowance(self, sender: str, filename: str | None, *, upload_id: str | None) -> int | None:
        """An `Allowance`, as `observe` counts bytes only when they are reserved.

        Raises `LinkNotFound`, `LinkClosed`, `LinkFull` or `TypeNotAllowed`.
        """
        link_id = link_of(sender)
        if link_id is None:
            return None
        is_it = (uploads.c.id == upload_id) & (uploads.c.kind == UploadKind.FILE)
        with self.ctx.database.read() as connection:
            link = get_link(connection, link_id)
            own = connection.execute(sa.select(uploads.c.reserved).where(is_it)).scalar()
        # What it counts for this upload is left to it.
        link = replace(link, bytes=link.bytes - (own or 0)).require_open(self.ctx.clock())
        if filename is not None:
            link.check_type(filename)
        if upload_id is None and link.is_full:
            raise link.full()
        return link.largest_file

    def _check(
        self, connection: sa.Connection, link_id: str, before: Upload | None, after: Upload
    ) -> None:
        """Compare name and length with what the link takes, where they are new."""
        if before is not None and before.length == after.length:
            return
        link = get_link(connection, link_id)
        link.check_length(after.length or 0)
        if before is not None:
            if _is_unnamed(after):
                link.check_type(after.filename)
            return
        link.require_open(self.ctx.clock())
        # A part needs no name, and an upload may get its name until its first byte.
        may_be_named = _is_unnamed(after) and after.state is UploadState.RECEIVING
        if after.kind is not UploadKind.PARTIAL and not may_be_named:
            link.check_type(after.filename)
        if link.files_left == 0:
            raise link.full()

    def _check_reserved(self, connection: sa.Connection, link: UploadLink, upload: Upload) -> None:
        """Compare what is held with the limits.

        The row of the link is locked: what its other uploads hold does not change.
        """
        held, start = upload.held_bytes, sender_prefix(link.id)
        is_of_link = (uploads.c.sender >= start) & (uploads.c.sender < start + "~")
        reserved = sa.func.coalesce(sa.func.sum(uploads.c.reserved), 0)
        others = sa.select(sa.func.count(), reserved).where(IS_RESERVING, uploads.c.id != upload.id)
        if upload.kind is UploadKind.PARTIAL:
            parts = others.where(is_of_link, uploads.c.kind == UploadKind.PARTIAL)
            count, length = connection.execute(parts).one()
            link.check_parts(count + 1, int(length) + held)
        lock_name(connection, "reservations of links")
        settings = self.ctx.settings
        for limit, query, whose in (
            (settings.max_reserved_bytes_per_link, others.where(is_of_link), "this link"),
            (settings.max_reserved_bytes_of_links, others, "all upload links"),
        ):
            _, length = connection.execute(query).one()
            together = int(length) + held
            if limit and together > limit:
                raise errors.TooMuchReserved(
                    f"Unfinished uploads through {whose} would hold "
                    f"{bytes_in_words(together)}; at most {bytes_in_words(limit)} may be held "
                    "at once."
                )


def _taken(upload: Upload | None) -> tuple[int, int]:
    """The files and bytes that a link counts for an upload that has not ended or arrived."""
    if upload is None or upload.state in GONE or upload.kind is UploadKind.PARTIAL:
        return 0, 0
    if upload.kind is UploadKind.CONCATENATION and upload.length is None:
        return 0, 0
    return 0 if upload.is_stalled else 1, upload.held_bytes


def _is_unnamed(upload: Upload) -> bool:
    return upload.kind is UploadKind.FILE and upload.filename == UNNAMED


# ---- names of visitors ---------------------------------------------------------------------------

MAX_IDLE_NAMES = 1000
"""Names of a link's visitors who have sent nothing; the oldest beyond them are forgotten."""


def keep_name(
    connection: sa.Connection,
    link_id: str,
    visitor: str,
    *,
    name: str,
    now: datetime,
    max_idle: int = MAX_IDLE_NAMES,
) -> None:
    """Note what a visitor is called; the latest name counts.

    Of the visitors who have sent nothing, the link keeps the latest `max_idle` names.
    """
    same = (link_senders.c.link_id == link_id) & (link_senders.c.visitor == visitor)
    row = {"link_id": link_id, "visitor": visitor, "name": name, "created_at": now}
    if insert_unless_known(connection, link_senders, row):
        of_link = link_senders.c.link_id == link_id
        sender = sa.literal(f"{CallerKind.UPLOAD_LINK}:{link_id}:").concat(link_senders.c.visitor)
        has_sent = sa.exists().where(uploads.c.sender == sender, HAS_SENDER)
        idle = sa.select(link_senders.c.visitor).where(of_link, sa.not_(has_sent))
        idle = idle.order_by(link_senders.c.created_at.desc(), link_senders.c.visitor)
        is_beyond = link_senders.c.visitor.in_(idle.offset(max_idle))
        connection.execute(sa.delete(link_senders).where(of_link, is_beyond))
    else:
        connection.execute(sa.update(link_senders).where(same).values(name=name))


def name_of(connection: sa.Connection, link_id: str, visitor: str) -> str | None:
    """What the visitor has said to be called."""
    query = sa.select(link_senders.c.name).where(
        link_senders.c.link_id == link_id, link_senders.c.visitor == visitor
    )
    return connection.execute(query).scalar()
