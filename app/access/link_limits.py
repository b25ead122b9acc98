"""Counts what comes through upload links, and refuses what is too much.

`observe` counts in the transactions of the uploads. An unfinished upload counts with its
reservation, so that nobody holds a link by what it only claims; its whole length must fit when it
begins. What has stalled counts no file until its next byte. What ends unfinished no longer counts;
what is complete does, even if it is deleted later. Parts of files count neither files nor bytes
before they are put together, but there may be no more of them than the link has left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from app.access.records.upload_links import (
    UploadLink,
    UploadLinkRecords,
    get_link,
    give_back,
    link_of,
    parts_beside,
    reserved_beside,
    take,
)
from app.core.errors import TooMuchReserved
from app.core.lifecycle import GONE, UploadState
from app.core.numbers import bytes_in_words
from app.core.policy import UNNAMED
from app.core.upload import Upload, UploadKind
from app.db.sql import lock_name


@dataclass(frozen=True, slots=True)
class ReservedLimits:
    """The most bytes that unfinished uploads may hold, of a link and of all; 0 for no limit."""

    of_link: int = 0
    of_all_links: int = 0


class LinkLimits:
    """The limits of upload links."""

    def __init__(
        self,
        records: UploadLinkRecords,
        clock: Callable[[], datetime],
        limits: ReservedLimits = ReservedLimits(),
    ) -> None:
        self._records = records
        self._clock = clock
        self._limits = limits

    def observe(self, connection: Connection, before: Upload | None, after: Upload | None) -> None:
        """An `Observer` of uploads.

        Raises `LinkClosed`, `LinkFull`, `TooLarge`, `TypeNotAllowed` or `TooMuchReserved` for what
        it refuses.
        """
        changed = after or before
        link_id = link_of(changed.sender) if changed is not None else None
        if link_id is None or (before is not None and _is_settled(before)):
            return
        files, length = _more(before, after)
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

        Raises `LinkClosed`, `LinkFull` or `TypeNotAllowed`.
        """
        link_id = link_of(sender)
        if link_id is None:
            return None
        link = self._records.as_left_to(upload_id, link_id).require_open(self._clock())
        if filename is not None:
            link.check_type(filename)
        if upload_id is None and link.is_full:
            raise link.full()
        return link.largest_file

    def _check(
        self, connection: Connection, link_id: str, before: Upload | None, after: Upload
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
        link.require_open(self._clock())
        # A part needs no name, and an upload may get its name until its first byte.
        may_be_named = _is_unnamed(after) and after.state is UploadState.RECEIVING
        if after.kind is not UploadKind.PARTIAL and not may_be_named:
            link.check_type(after.filename)
        if link.files_left == 0:
            raise link.full()

    def _check_reserved(self, connection: Connection, link: UploadLink, upload: Upload) -> None:
        """Compare what is held with the limits; the row of the link is locked."""
        held = upload.held_bytes
        if upload.kind is UploadKind.PARTIAL:
            count, length = parts_beside(connection, link.id, upload)
            link.check_parts(count + 1, length + held)
        if self._limits.of_all_links:
            lock_name(connection, "reservations of links")
        of_link, of_all = reserved_beside(connection, link.id, upload)
        for limit, others, whose in (
            (self._limits.of_link, of_link, "this link"),
            (self._limits.of_all_links, of_all, "all upload links"),
        ):
            if limit and others + held > limit:
                raise TooMuchReserved(
                    f"Unfinished uploads through {whose} would hold "
                    f"{bytes_in_words(others + held)}; at most {bytes_in_words(limit)} may be held "
                    "at once."
                )


def _is_settled(upload: Upload) -> bool:
    """Whether no later change counts: it has ended, or arrived."""
    return upload.state in GONE or upload.published_at is not None


def _more(before: Upload | None, after: Upload | None) -> tuple[int, int]:
    """How many more files and bytes a link has taken."""
    files, length = _taken(after)
    files_before, length_before = _taken(before)
    return files - files_before, length - length_before


def _taken(upload: Upload | None) -> tuple[int, int]:
    """The files and bytes that a link counts for an upload that is not settled."""
    if upload is None or upload.state in GONE or upload.kind is UploadKind.PARTIAL:
        return 0, 0
    if upload.kind is UploadKind.CONCATENATION and upload.length is None:
        return 0, 0
    return 0 if upload.is_stalled else 1, upload.held_bytes


def _is_unnamed(upload: Upload) -> bool:
    return upload.kind is UploadKind.FILE and upload.filename == UNNAMED
