"""Upload links, as members make, look at, change and close them."""

from __future__ import annotations

import re
import secrets
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from app.access.link_passwords import LinkPasswords
from app.access.link_visitors import MAX_NAME_CHARACTERS, LinkVisitors
from app.access.records.upload_links import (
    Received,
    UploadLink,
    UploadLinkRecords,
    sender_prefix,
)
from app.core.errors import InvalidField

CODE_BYTES = 16
"""128 random bits: a code cannot be guessed."""

MAX_MESSAGE_CHARACTERS = 2000
MAX_PASSWORD_CHARACTERS = 200
MAX_EXTENSIONS = 50

MOST_BYTES = 2**63 - 1
MOST_FILES = 2**31 - 1
"""Greater limits do not fit into the database, and limit nothing."""

_EXTENSION = re.compile(r"[a-z0-9]{1,20}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTerms:
    """What a link takes, and says to its visitors; raises `InvalidField` for what cannot be."""

    name: str = ""
    message: str = ""
    max_files: int | None = None
    max_bytes: int | None = None
    max_file_bytes: int | None = None
    extensions: tuple[str, ...] = ()
    asks_name: bool = False
    expires_at: datetime | None = None
    password_hash: str | None = None

    def __post_init__(self) -> None:
        """Check all of it."""
        if len(self.name) > MAX_NAME_CHARACTERS or not self.name.isprintable():
            words = f"The title must be one line of at most {MAX_NAME_CHARACTERS} characters."
            raise InvalidField(words, field="name")
        if len(self.message) > MAX_MESSAGE_CHARACTERS:
            words = f"The message is over {MAX_MESSAGE_CHARACTERS} characters."
            raise InvalidField(words, field="message")
        if not _is_text(self.message):
            raise InvalidField("The message has characters that are no text.", field="message")
        if len(self.extensions) > MAX_EXTENSIONS:
            raise InvalidField(f"At most {MAX_EXTENSIONS} types.", field="extensions")
        if not all(_EXTENSION.fullmatch(each) for each in self.extensions):
            words = "A type is the ending of file names, such as mp4 or mov."
            raise InvalidField(words, field="extensions")
        for name, limit, most in (
            ("max_files", self.max_files, MOST_FILES),
            ("max_bytes", self.max_bytes, MOST_BYTES),
            ("max_file_bytes", self.max_file_bytes, MOST_BYTES),
        ):
            if limit is not None and not 0 < limit <= most:
                raise InvalidField("A limit is a number above zero.", field=name)


class UploadLinks:
    """What members do with upload links."""

    def __init__(
        self,
        records: UploadLinkRecords,
        passwords: LinkPasswords,
        visitors: LinkVisitors,
        *,
        clock: Callable[[], datetime],
        new_id: Callable[[], str],
        cancel_uploads: Callable[[str], None],
    ) -> None:
        self._records = records
        self._passwords = passwords
        self._cancel_uploads = cancel_uploads
        self._visitors = visitors
        self._clock = clock
        self._new_id = new_id

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

    def with_password(self, terms: LinkTerms, password: str) -> LinkTerms:
        """The terms with another password; an empty one takes it away. Raises `InvalidField`."""
        if len(password) > MAX_PASSWORD_CHARACTERS:
            words = f"A password has at most {MAX_PASSWORD_CHARACTERS} characters."
            raise InvalidField(words, field="password")
        return replace(terms, password_hash=self._passwords.hash(password))

    def change(self, link: UploadLink, terms: LinkTerms) -> UploadLink:
        """The link with other terms; what it has taken stays, even if that is more than them.

        Only what differs from `link` is written: somebody else may have changed the rest meanwhile.
        """
        other = {
            name: value for name, value in _columns(terms).items() if value != getattr(link, name)
        }
        changed = self._records.change(link.id, **other)
        self._visitors.forget()
        return changed

    def close(self, link: UploadLink) -> UploadLink:
        """Refuse every further request through the link, and cancel what it has not received.

        Closing it again changes nothing.
        """
        if link.closed_at is None:
            link = self._records.change(link.id, closed_at=self._clock())
            self._visitors.forget()
        self._cancel_uploads(sender_prefix(link.id))
        return link

    def received(self, link: UploadLink, limit: int) -> list[Received]:
        """What came through the link and what is on its way, the newest first."""
        return self._records.received(link.id, limit)


def _columns(terms: LinkTerms) -> dict[str, Any]:
    return {name: getattr(terms, name) for name in LinkTerms.__slots__}


def _is_text(message: str) -> bool:
    """Whether it has neither control characters, other than line breaks, nor lone surrogates."""
    return all(each == "\n" or unicodedata.category(each) not in {"Cc", "Cs"} for each in message)
