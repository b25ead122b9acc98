"""Counts what comes through upload links, and refuses what is too much.

`observe` counts in the transactions of the uploads. An upload counts from its creation, with its
length as soon as that is known. What ends unfinished no longer counts; what is complete does, even
if it is deleted later. The parts of a concatenation count no file, and their bytes become those of
the whole. What uploads of unknown length have received is not counted, but kept from others.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from sqlalchemy import Connection

from app.domain.lifecycle import GONE, UploadState
from app.domain.policy import UNNAMED
from app.domain.upload import Upload, UploadKind
from app.records.identity.upload_links import (
    UploadLinkRecords,
    count_parts,
    get_link,
    give_back,
    is_in_whole,
    length_of_fresh_parts,
    link_of,
    take,
)


class LinkLimits:
    """The limits of upload links."""

    def __init__(self, records: UploadLinkRecords, clock: Callable[[], datetime]) -> None:
        self._records = records
        self._clock = clock

    def observe(self, connection: Connection, before: Upload | None, after: Upload | None) -> None:
        """An `Observer` of uploads.

        Raises `LinkClosed`, `LinkFull`, `TooLarge` or `TypeNotAllowed` for what it refuses.
        """
        changed = after or before
        link_id = link_of(changed.sender) if changed is not None else None
        if link_id is None:
            return
        if before is None and after is not None:
            self._begin(connection, link_id, after)
        elif before is not None and (after is None or after.state in GONE):
            self._end(connection, link_id, before)
        elif before is not None and after is not None and before.length != after.length:
            self._lengthen(connection, link_id, before, after)

    def allowance(self, sender: str, filename: str | None, *, upload_id: str | None) -> int | None:
        """An `Allowance`, as `observe` counts bytes only when their number is known.

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

    def _begin(self, connection: Connection, link_id: str, upload: Upload) -> None:
        link = get_link(connection, link_id).require_open(self._clock())
        # A part needs no name, and an upload may get its name until its first byte.
        may_be_named = _is_unnamed(upload) and upload.state is UploadState.RECEIVING
        if upload.kind is not UploadKind.PARTIAL and not may_be_named:
            link.check_type(upload.filename)
        link.check_length(upload.length or 0)
        take(connection, link_id, upload, files=_files(upload), length=upload.length or 0)
        if upload.kind is UploadKind.PARTIAL:
            link.check_parts(count_parts(connection, link_id))

    def _lengthen(
        self, connection: Connection, link_id: str, before: Upload, after: Upload
    ) -> None:
        length = (after.length or 0) - (before.length or 0)
        link = get_link(connection, link_id)
        link.check_length(after.length or 0)
        if _is_unnamed(after):
            link.check_type(after.filename)
        if after.kind is UploadKind.CONCATENATION:
            length -= length_of_fresh_parts(connection, after)
        take(connection, link_id, after, files=0, length=length)

    def _end(self, connection: Connection, link_id: str, upload: Upload) -> None:
        if upload.state in GONE or upload.published_at is not None:
            return
        # The bytes of parts belong to the whole once it is put together, even if that fails.
        is_counted_elsewhere = upload.kind is UploadKind.CONCATENATION or (
            upload.kind is UploadKind.PARTIAL and is_in_whole(connection, upload)
        )
        length = 0 if is_counted_elsewhere else upload.length or 0
        give_back(connection, link_id, files=_files(upload), length=length)


def _is_unnamed(upload: Upload) -> bool:
    return upload.kind is UploadKind.FILE and upload.filename == UNNAMED


def _files(upload: Upload) -> int:
    return 0 if upload.kind is UploadKind.PARTIAL else 1
