"""The records of upload links, of what they have left, and of who sends through them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any

from sqlalchemy import (
    Connection,
    Row,
    Select,
    bindparam,
    func,
    insert,
    literal_column,
    or_,
    select,
    update,
)

from app.domain.errors import LinkClosed, LinkFull, LinkNotFound, TooLarge, TypeNotAllowed
from app.domain.lifecycle import UploadState
from app.domain.upload import Upload, UploadKind
from app.records import statements
from app.records.driver import fetch, run
from app.records.engine import Database
from app.records.identity.link_names import keep_name, name_of
from app.records.identity.makers import require_role
from app.records.identity.tables import link_senders, upload_links
from app.records.tables import HAS_SENDER, IS_WITHOUT_LENGTH, UPLOAD, uploads
from app.records.tables import parts as parts_table

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

    `files` and `bytes` are what it has taken, with what is on its way. Without extensions it takes
    files of every type.
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

    def check_parts(self, parts: int) -> None:
        """Raise `LinkFull` for more unfinished parts than its files need."""
        if self.files_left == 0:
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
        """The link with the bytes of its other uploads of unknown length counted too.

        `upload_id` is None for an upload without a record. Raises `LinkNotFound`.
        """
        with self._database.read() as connection:
            return _as_left_to(connection, upload_id, get_link(connection, link_id))

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


def take(connection: Connection, link_id: str, upload: Upload, *, files: int, length: int) -> None:
    """Count files and bytes of an upload, if the link has room for them; raises `LinkFull`.

    A single statement counts: of many that try at the same time, as many succeed as there is room
    for. What uploads of unknown length hold is compared while that keeps the others waiting.
    """
    counted = {"link_id": link_id, "more_files": files, "more_bytes": length}
    if run(connection, _TAKE, counted) == 0:
        raise get_link(connection, link_id).full()
    if length <= 0:
        return
    link = _as_left_to(connection, upload.id, get_link(connection, link_id))
    if link.most_bytes is not None and link.bytes > link.most_bytes:
        raise replace(link, files=link.files - files, bytes=link.bytes - length).full()


def count_parts(connection: Connection, link_id: str) -> int:
    """How many parts of files that came through the link are not part of a file yet."""
    start = sender_prefix(link_id)
    query = select(func.count()).where(
        HAS_SENDER,
        uploads.c.sender >= start,
        uploads.c.sender < start + "~",
        uploads.c.state.in_([UploadState.RECEIVING, UploadState.HELD]),
        uploads.c.kind == UploadKind.PARTIAL,
    )
    return connection.execute(query).scalar_one()


def give_back(connection: Connection, link_id: str, *, files: int, length: int) -> None:
    """Count files and bytes no longer; harmless if the link is gone."""
    counted = {"link_id": link_id, "more_files": -files, "more_bytes": -length}
    run(connection, _COUNT, counted)


def is_in_whole(connection: Connection, part: Upload) -> bool:
    """Whether a concatenation was ever put together from that part."""
    return connection.execute(_WHOLES, {"part_id": part.id, "but": ""}).first() is not None


def length_of_fresh_parts(connection: Connection, whole: Upload) -> int:
    """The bytes of those parts of a concatenation that no other one was put together from."""
    query = select(parts_table.c.part_id, uploads.c.length).distinct()
    query = query.join(uploads, uploads.c.id == parts_table.c.part_id)
    rows = connection.execute(query.where(parts_table.c.upload_id == whole.id)).all()
    return sum(
        row.length or 0
        for row in rows
        if connection.execute(_WHOLES, {"part_id": row.part_id, "but": whole.id}).first() is None
    )


def _as_left_to(connection: Connection, upload_id: str | None, link: UploadLink) -> UploadLink:
    if link.most_bytes is None:
        return link
    start = sender_prefix(link.id)
    senders = {"project": link.project_id, "start": start, "end": start + "~"}
    rows = fetch(connection, _WITHOUT_LENGTH, {**senders, "but": upload_id or ""})
    return replace(link, bytes=link.bytes + sum(received.total for (received,) in rows))


_LINKS = select(upload_links)

_WITHOUT_LENGTH = select(uploads.c.received).where(
    uploads.c.owner == bindparam("project"),
    IS_WITHOUT_LENGTH,
    uploads.c.sender >= bindparam("start"),
    uploads.c.sender < bindparam("end"),
    uploads.c.id != bindparam("but"),
)

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
    or_(
        upload_links.c.max_files.is_(None),
        upload_links.c.files + bindparam("more_files") <= upload_links.c.max_files,
    ),
    or_(
        upload_links.c.max_bytes.is_(None),
        upload_links.c.bytes + bindparam("more_bytes") <= upload_links.c.max_bytes,
    ),
)

_WHOLES: Select[Any] = (
    select(literal_column("1"))
    .join_from(parts_table, uploads, uploads.c.id == parts_table.c.upload_id)
    .where(
        parts_table.c.part_id == bindparam("part_id"),
        parts_table.c.upload_id != bindparam("but"),
        uploads.c.length.is_not(None),
    )
    .limit(1)
)


def _from_row(row: Row[Any]) -> UploadLink:
    return UploadLink(**{**row._mapping, "extensions": tuple(row.extensions.split())})
