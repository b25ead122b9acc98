"""Upload links: made, shown, changed and closed by members, and who comes through them."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.domain.access import Caller, CallerKind, Role
from app.domain.errors import InvalidRequest, LinkNotFound
from app.identity.key_format import digest_of
from app.identity.recent import Recent
from app.records.identity.upload_links import (
    Received,
    UploadLink,
    UploadLinkRecords,
)

CODE_BYTES = 16
"""128 random bits: a code cannot be guessed."""

VISITOR_COOKIE = "sluice_visitor"

VISITOR_CHARACTERS = 32

MAX_NAME_CHARACTERS = 200
MAX_MESSAGE_CHARACTERS = 2000
MAX_EXTENSIONS = 50

MOST_BYTES = 2**63 - 1
MOST_FILES = 2**31 - 1
"""Greater limits do not fit into the database, and limit nothing."""

_CODE = re.compile(r"[A-Za-z0-9_-]{22}")
_EXTENSION = re.compile(r"[a-z0-9]{1,20}")
_VISITOR = re.compile(rf"(?:^|;\s*){VISITOR_COOKIE}=([A-Za-z0-9_-]{{22,64}})(?:;|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTerms:
    """What a link takes, and says to its visitors; raises `InvalidRequest` for what cannot be."""

    name: str = ""
    message: str = ""
    max_files: int | None = None
    max_bytes: int | None = None
    max_file_bytes: int | None = None
    extensions: tuple[str, ...] = ()
    asks_name: bool = False
    expires_at: datetime | None = None

    def __post_init__(self) -> None:
        """Check all of it."""
        if len(self.name) > MAX_NAME_CHARACTERS:
            raise InvalidRequest(f"The name is over {MAX_NAME_CHARACTERS} characters.")
        if len(self.message) > MAX_MESSAGE_CHARACTERS:
            raise InvalidRequest(f"The message is over {MAX_MESSAGE_CHARACTERS} characters.")
        if len(self.extensions) > MAX_EXTENSIONS:
            raise InvalidRequest(f"A link takes at most {MAX_EXTENSIONS} types.")
        if not all(_EXTENSION.fullmatch(each) for each in self.extensions):
            raise InvalidRequest("A type is an extension of file names, such as mp4 or mov.")
        for limit, most in (
            (self.max_files, MOST_FILES),
            (self.max_bytes, MOST_BYTES),
            (self.max_file_bytes, MOST_BYTES),
        ):
            if limit is not None and not 0 < limit <= most:
                raise InvalidRequest("A limit must be a number above zero.")


class UploadLinks:
    """What members do with upload links, and whom a link stands for."""

    def __init__(
        self,
        records: UploadLinkRecords,
        *,
        clock: Callable[[], datetime],
        new_id: Callable[[], str],
    ) -> None:
        self._records = records
        self._clock = clock
        self._new_id = new_id
        self._recent = Recent(records.find)

    # ---- for members ----

    def make(self, project_id: str, terms: LinkTerms, *, created_by: str) -> UploadLink:
        """A new link."""
        link = UploadLink(
            id=self._new_id(),
            project_id=project_id,
            code=secrets.token_urlsafe(CODE_BYTES),
            created_by=created_by,
            created_at=self._clock(),
            **_columns(terms),
        )
        self._records.add(link)
        return link

    def of_project(self, project_id: str) -> list[UploadLink]:
        """All links of a project, the newest first."""
        return self._records.of_project(project_id)

    def get(self, project_id: str, link_id: str) -> UploadLink:
        """A link of the project; raises `LinkNotFound`."""
        return self._records.get(link_id, project_id)

    def terms(self, link: UploadLink) -> LinkTerms:
        """What the link says now."""
        return LinkTerms(**{name: getattr(link, name) for name in LinkTerms.__slots__})

    def change(self, link: UploadLink, terms: LinkTerms) -> UploadLink:
        """The link with other terms; what it has taken stays, even if that is more than them."""
        self._recent.forget()
        return self._records.change(link, **_columns(terms))

    def close(self, link: UploadLink) -> UploadLink:
        """Refuse every further request through the link; closing it again changes nothing."""
        if link.closed_at is not None:
            return link
        closed = self._records.change(link, closed_at=self._clock())
        self._recent.forget()
        return closed

    def received(self, link: UploadLink, limit: int) -> list[Received]:
        """What came through the link and what is on its way, the newest first."""
        return self._records.received(link.id, limit)

    # ---- for visitors ----

    def visited(self, code: str) -> UploadLink:
        """The link with that code; raises `LinkNotFound`, and `LinkClosed` if it is not open."""
        link = self._recent.get(code) if _CODE.fullmatch(code) else None
        if link is None:
            raise LinkNotFound("No link has this address: is it complete?")
        return link.require_open(self._clock())

    def caller(self, code: str, *, cookies: str) -> Caller:
        """Who comes through the link of that code; raises as `visited` does."""
        link = self.visited(code)
        return Caller(
            kind=CallerKind.UPLOAD_LINK,
            id=link.id,
            name=link.name,
            project=link.project_id,
            roles={link.project_id: Role.SENDER},
            # Programs without cookies find nothing of others, and go on by the ids of uploads.
            visitor=visitor_in(cookies) or secrets.token_hex(VISITOR_CHARACTERS // 2),
        )

    def name_sender(self, link: UploadLink, visitor: str, name: str) -> None:
        """Note what a visitor is called; raises `InvalidRequest` for an empty or too long name."""
        name = " ".join(name.split())
        if not 0 < len(name) <= MAX_NAME_CHARACTERS:
            raise InvalidRequest(f"A name has 1 to {MAX_NAME_CHARACTERS} characters.")
        self._records.name_sender(link.id, visitor, name, self._clock())

    def sender_name(self, link: UploadLink, visitor: str) -> str | None:
        """What the visitor has said to be called."""
        return self._records.sender_name(link.id, visitor)


def new_visitor() -> str:
    """The value of the cookie by which a visitor finds the own uploads again."""
    return secrets.token_urlsafe(CODE_BYTES)


def visitor_in(cookies: str) -> str | None:
    """The visitor that the header of cookies tells of; records show it instead of the cookie."""
    found = _VISITOR.search(cookies)
    return None if found is None else digest_of(found[1])[:VISITOR_CHARACTERS]


def _columns(terms: LinkTerms) -> dict[str, Any]:
    return {name: getattr(terms, name) for name in LinkTerms.__slots__}
