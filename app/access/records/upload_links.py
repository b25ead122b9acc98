"""The records of upload links, of what they have left, and of who sends through them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    bindparam,
    func,
    insert,
    or_,
    select,
    update,
)

from app.access.records.link_names import keep_name, name_of
from app.access.records.makers import require_role
from app.core.errors import LinkClosed, LinkFull, LinkNotFound, TooLarge, TypeNotAllowed
from app.core.lifecycle import UploadState
from app.core.upload import Upload, UploadKind
from app.db.engine import Database
from app.db.sql import run
from app.db.tables import IS_RESERVING, UPLOAD, link_senders, upload_links, uploads
from app.records import statements

SENDER_KIND = "upload_link"
"""How the sender of an upload begins that came through a link; see `Caller.sender`."""

PARTS_PER_FILE = 64
"""Most unfinished parts for each file that a link takes; further ones are refused. Clients that
send a file in parts use a handful."""


class LinkState(StrEnum):
    """Whether a link takes files."""

    OPEN = "open"
    FULL = "full"
    EXPIRED = "expired"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadLink:
    """A link through which strangers send files to a project; sizes are bytes.

    `files` and `bytes` are what it has taken, with what unfinished uploads hold. Without extensions
    it takes files of every type.
    """

    id: str
    project_id: str
    code: str
    name: str
    message: str
    created_by: str
    created_at: datetime
    max_files: int | None = None
    max_bytes: int | None = None
    max_file_bytes: int | None = None
    extensions: tuple[str, ...] = ()
    asks_name: bool = False
    password_hash: str | None = None
    files: int = 0
    bytes: int = 0
    expires_at: datetime | None = None
    closed_at: datetime | None = None

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
            raise LinkClosed(WHY_CLOSED[state])
        return self

    def check_type(self, filename: str) -> None:
        """Raise `TypeNotAllowed` for the name of a file that it does not take."""
        extension = PurePosixPath(filename).suffix.lower().removeprefix(".")
        if self.extensions and extension not in self.extensions:
            allowed = ", ".join(self.extensions)
            raise TypeNotAllowed(f"This link takes only files of these types: {allowed}.")

    def check_length(self, length: int) -> None:
        """Raise `TooLarge` for the length of a file that it never takes."""
        if self.max_file_bytes is not None and length > self.max_file_bytes:
            raise TooLarge(f"This link takes files of up to {self.max_file_bytes} bytes.")

    def check_parts(self, parts: int, length: int) -> None:
        """Raise `LinkFull` for more unfinished parts, or bytes of them, than its files need."""
        if self.files_left == 0 or (self.bytes_left is not None and length > self.bytes_left):
            raise self.full()
        if self.max_files is not None and parts > self.max_files * PARTS_PER_FILE:
            raise LinkFull(
                f"This link takes at most {self.max_files * PARTS_PER_FILE} unfinished parts of "
                "files: finish or cancel some first."
            )

    def full(self) -> LinkFull:
        """The error that says what it has left."""
        if self.files_left == 0:
            return LinkFull(f"This link has taken all of its {self.max_files} files.")
        return LinkFull(f"This link takes {self.bytes_left} more bytes.")


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


class UploadLinkRecords:
    """Every call is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, link: UploadLink) -> None:
        """Store a new link; raises `NotAllowed` if its maker has no role in the project now."""
        values = {column.name: getattr(link, column.name) for column in upload_links.columns}
        values["extensions"] = " ".join(link.extensions)
        with self._database.write() as connection:
            require_role(connection, link.created_by, link.project_id)
            connection.execute(insert(upload_links).values(values))

    def find(self, code: str) -> UploadLink | None:
        """The link with that code, whether or not it is open."""
        with self._database.read() as connection:
            row = connection.execute(_LINKS.where(upload_links.c.code == code)).first()
        return None if row is None else _from_row(row)

    def get(self, link_id: str, project_id: str | None = None) -> UploadLink:
        """The link, of that project or of any; raises `LinkNotFound`."""
        with self._database.read() as connection:
            link = get_link(connection, link_id)
        if project_id not in {None, link.project_id}:
            raise LinkNotFound("No link has this id.")
        return link

    def as_left_to(self, upload_id: str | None, link_id: str) -> UploadLink:
        """The link without what it counts for that upload; raises `LinkNotFound`.

        `upload_id` is None for an upload without a record.
        """
        with self._database.read() as connection:
            link = get_link(connection, link_id)
            is_counted = (uploads.c.id == upload_id) & (uploads.c.kind == UploadKind.FILE)
            own = connection.execute(select(uploads.c.reserved).where(is_counted)).scalar()
        return replace(link, bytes=link.bytes - (own or 0))

    def of_project(self, project_id: str) -> list[UploadLink]:
        """All links of a project, the newest first."""
        query = _LINKS.where(upload_links.c.project_id == project_id).order_by(
            upload_links.c.created_at.desc(), upload_links.c.id
        )
        with self._database.read() as connection:
            return [_from_row(row) for row in connection.execute(query)]

    def change(self, link_id: str, **values: Any) -> UploadLink:
        """The link as it is stored after the change of these columns alone."""
        if "extensions" in values:
            values["extensions"] = " ".join(values["extensions"])
        with self._database.write() as connection:
            if values:
                change = update(upload_links).where(upload_links.c.id == link_id)
                connection.execute(change.values(values))
            return get_link(connection, link_id)

    def received(self, link_id: str, limit: int) -> list[Received]:
        """What came through the link and what is on its way, the newest first."""
        start = sender_prefix(link_id)
        visitor = func.substr(uploads.c.sender, len(start) + 1)
        query = (
            select(*UPLOAD, link_senders.c.name)
            .outerjoin(
                link_senders,
                (link_senders.c.link_id == link_id) & (link_senders.c.visitor == visitor),
            )
            .where(uploads.c.sender >= start, uploads.c.sender < start + "~")
            .where(uploads.c.state.in_(_SHOWN), uploads.c.kind != UploadKind.PARTIAL)
            .order_by(uploads.c.created_at.desc(), uploads.c.id)
            .limit(limit)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return [Received(statements.from_row(row[:-1]), row[-1] or "") for row in rows]

    def name_sender(self, link_id: str, visitor: str, name: str, now: datetime) -> None:
        """Note what a visitor of a link is called; the latest name counts."""
        with self._database.write() as connection:
            keep_name(connection, link_id, visitor, name=name, now=now)

    def sender_name(self, link_id: str, visitor: str) -> str | None:
        """What the visitor has said to be called."""
        with self._database.read() as connection:
            return name_of(connection, link_id, visitor)


# ---- within the transactions of uploads ----------------------------------------------------------


def get_link(connection: Connection, link_id: str) -> UploadLink:
    """The link; raises `LinkNotFound`."""
    row = connection.execute(_BY_ID, {"link_id": link_id}).first()
    if row is None:
        raise LinkNotFound("No link has this id.")
    return _from_row(row)


def take(connection: Connection, link_id: str, *, files: int, length: int) -> UploadLink:
    """The link after it has counted more files and bytes.

    A single statement counts: of many that try at the same time, as many succeed as there is room
    for; and none after the link was closed. Raises `LinkFull` and `LinkClosed`.
    """
    counted = {"link_id": link_id, "more_files": files, "more_bytes": length}
    is_taken = run(connection, _TAKE, counted) > 0
    link = get_link(connection, link_id)
    if not is_taken and link.closed_at is not None:
        raise LinkClosed(WHY_CLOSED[LinkState.CLOSED])
    if not is_taken:
        raise link.full()
    if length > 0 and link.most_bytes is not None and link.bytes > link.most_bytes:
        raise replace(link, files=link.files - files, bytes=link.bytes - length).full()
    return link


def parts_beside(connection: Connection, link_id: str, part: Upload) -> tuple[int, int]:
    """How many other parts of files came through the link and are in no file yet; their bytes.

    Whoever has the row of the link locked gets the exact numbers.
    """
    query = select(func.count(), _sum_reserved()).where(
        *_reserving(link_id), uploads.c.kind == UploadKind.PARTIAL, uploads.c.id != part.id
    )
    count, length = connection.execute(query).one()
    return count, int(length)


def reserved_beside(connection: Connection, link_id: str, upload: Upload) -> tuple[int, int]:
    """What unfinished uploads hold beside that one: of its link, and of all links; in bytes."""
    is_other = uploads.c.id != upload.id
    of_link = select(_sum_reserved()).where(*_reserving(link_id), is_other)
    of_all = select(_sum_reserved()).where(IS_RESERVING, is_other)
    return (
        int(connection.execute(of_link).scalar_one()),
        int(connection.execute(of_all).scalar_one()),
    )


def give_back(connection: Connection, link_id: str, *, files: int, length: int) -> None:
    """Count files and bytes no longer; harmless if the link is gone."""
    counted = {"link_id": link_id, "more_files": -files, "more_bytes": -length}
    run(connection, _COUNT, counted)


def _sum_reserved() -> ColumnElement[int]:
    return func.coalesce(func.sum(uploads.c.reserved), 0)


def _reserving(link_id: str) -> tuple[Any, ...]:
    """Conditions of the unfinished uploads through a link."""
    start = sender_prefix(link_id)
    return IS_RESERVING, uploads.c.sender >= start, uploads.c.sender < start + "~"


_LINKS = select(upload_links)

_BY_ID = _LINKS.where(upload_links.c.id == bindparam("link_id"))

_SHOWN = (UploadState.RECEIVING, UploadState.VERIFYING, UploadState.COMPLETE)

_COUNT = (
    update(upload_links)
    .where(upload_links.c.id == bindparam("link_id"))
    .values(
        files=upload_links.c.files + bindparam("more_files"),
        bytes=upload_links.c.bytes + bindparam("more_bytes"),
    )
)

_TAKE = _COUNT.where(
    upload_links.c.closed_at.is_(None),
    or_(
        upload_links.c.max_files.is_(None),
        upload_links.c.files + bindparam("more_files") <= upload_links.c.max_files,
    ),
    or_(
        upload_links.c.max_bytes.is_(None),
        upload_links.c.bytes + bindparam("more_bytes") <= upload_links.c.max_bytes,
    ),
)


def _from_row(row: Row[Any]) -> UploadLink:
    return UploadLink(**{**row._mapping, "extensions": tuple(row.extensions.split())})
