"""Strangers who come through upload links: how they enter, and how they are distinguished.

The page of a link gives each browser a signed cookie, by which it finds its uploads again after a
reload. Programs have none: those of one network are one visitor, so that limits hold for them and
their own keys work. They find nothing of others, and resume by the ids of their uploads. A forged
cookie counts as none. A link with a password asks a browser for it once, and gives it a second
cookie then; programs send it in every request.
"""

from __future__ import annotations

import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from app.access.attempts import LinkPasswords
from app.access.keys import digest_of
from app.access.recent import Recent
from app.access.signing import Signing, Tickets
from app.access.upload_links import MAX_NAME_CHARACTERS, UploadLink, find_link, keep_name, name_of
from app.core.access import Caller, CallerKind, Role
from app.core.addresses import network_of
from app.core.errors import InvalidField, LinkNotFound, NotSignedIn, too_many
from app.db.context import Context
from app.db.minute_counts import MinuteCounts

VISITOR_COOKIE = "sluice_visitor"
ENTRY_COOKIE = "sluice_entry"
"""The second one is kept by those who have given the password."""

ENTRY_TIME = timedelta(days=30)
"""A browser is asked for the password again after this time."""

VISITOR_TIME = timedelta(days=365)
"""As long as any link is likely to be open."""

VISITOR_CHARACTERS = 32
"""128 bits, in hexadecimal."""

NEW_VISITORS_PER_MINUTE = 60
"""Of one link and network, which all guests of a party share; others then get no cookie."""

REMEMBERED_PASSWORDS = 1000
"""Right ones that a process knows again: a program sends its own with every chunk."""

_CODE = re.compile(r"[A-Za-z0-9_-]{22}")
_VISITOR = re.compile(rf"(?:^|;\s*){VISITOR_COOKIE}=([A-Za-z0-9._-]{{1,400}})(?:;|$)")
_ENTRY = re.compile(rf"(?:^|;\s*){ENTRY_COOKIE}=([A-Za-z0-9._-]{{1,400}})(?:;|$)")


@dataclass(frozen=True, slots=True)
class NewVisitor:
    """A visitor as records name it, and the cookie by which it comes again."""

    id: str
    cookie: str


class LinkVisitors:
    """Whom a link stands for."""

    def __init__(
        self,
        ctx: Context,
        signing: Signing,
        passwords: LinkPasswords,
        counts: MinuteCounts,
        *,
        new_per_minute: int = NEW_VISITORS_PER_MINUTE,
    ) -> None:
        self._ctx = ctx
        self._passwords = passwords
        self._counts = counts
        self._new_per_minute = new_per_minute
        self._signing = signing
        self._entries = Tickets(signing, "entry to an upload link", clock=ctx.clock)
        self._visitors = Tickets(signing, "visitor of an upload link", clock=ctx.clock)
        self._recent = Recent(partial(find_link, ctx))
        self._right: set[str] = set()

    def visited(self, code: str) -> UploadLink:
        """The link with that code; raises `LinkNotFound`, and `LinkClosed` if it is not open."""
        link = self._recent.get(code) if _CODE.fullmatch(code) else None
        if link is None:
            raise LinkNotFound("No link has this address. Is it complete?")
        return link.require_open(self._ctx.clock())

    def caller(
        self, code: str, *, cookies: str = "", password: str = "", address: str = ""
    ) -> Caller:
        """Who comes through the link of that code, with all cookies and the password of Basic.

        Raises as `visited` does, `NotSignedIn` without its password, and `TooManyAttempts`.
        """
        link = self.visited(code)
        if link.password_hash is not None and not self.has_entered(link, cookies):
            self._check(link, link.password_hash, password, address)
        visitor = self.visitor(link, cookies)
        return Caller(
            kind=CallerKind.UPLOAD_LINK,
            id=link.id,
            name=link.name,
            project=link.project_id,
            roles={link.project_id: Role.SENDER},
            visitor=visitor or self._network_visitor(address),
            is_crowd=visitor is None,
        )

    def visitor(self, link: UploadLink, cookies: str) -> str | None:
        """The visitor who was given one of these cookies for this link, as records name it."""
        found = _VISITOR.search(cookies)
        subject = None if found is None else self._visitors.subject_of(found[1])
        link_id, _, visitor = (subject or "").partition(" ")
        return visitor if link_id == link.id else None

    def new_visitor(self, link: UploadLink, *, address: str) -> NewVisitor:
        """Another visitor, for `VISITOR_TIME`; raises `TooManyRequests` for one too many.

        Limits hold for each visitor, so that no client can become many.
        """
        count = self._counts.add(f"visitor {link.id} {network_of(address)}")
        if count > self._new_per_minute:
            wait_seconds = self._counts.seconds_left
            raise too_many("new visitors", self._new_per_minute, wait_seconds=wait_seconds)
        visitor = secrets.token_hex(VISITOR_CHARACTERS // 2)
        expires_at = self._ctx.clock() + VISITOR_TIME
        return NewVisitor(visitor, self._visitors.make(f"{link.id} {visitor}", expires_at))

    def enter(self, link: UploadLink, password: str, *, address: str) -> str:
        """The value of the cookie of those who know the password, for `ENTRY_TIME`.

        Raises `InvalidField` for another password, and `TooManyAttempts`.
        """
        if link.password_hash is not None:
            self._passwords.check(link.id, link.password_hash, password, address=address)
        return self._entries.make(_entry_to(link), self._ctx.clock() + ENTRY_TIME)

    def has_entered(self, link: UploadLink, cookies: str) -> bool:
        """Whether a browser with these cookies need not enter the password."""
        if link.password_hash is None:
            return True
        found = _ENTRY.search(cookies)
        return found is not None and self._entries.subject_of(found[1]) == _entry_to(link)

    def name_sender(self, link: UploadLink, visitor: str, name: str) -> None:
        """Note what a visitor is called; raises `InvalidField` for no name, or one too long."""
        name = " ".join(name.split())
        if not 0 < len(name) <= MAX_NAME_CHARACTERS or not name.isprintable():
            words = f"A name of 1 to {MAX_NAME_CHARACTERS} characters, please."
            raise InvalidField(words, field="name")
        with self._ctx.database.write() as connection:
            keep_name(connection, link.id, visitor, name=name, now=self._ctx.clock())

    def sender_name(self, link: UploadLink, visitor: str) -> str | None:
        """What the visitor has said to be called."""
        with self._ctx.database.read() as connection:
            return name_of(connection, link.id, visitor)

    def forget(self) -> None:
        """Look every link up again: one was changed in this process."""
        self._recent.forget()

    def _network_visitor(self, address: str) -> str:
        """The visitor that a network stands for; its name does not tell the address."""
        text = f"visitor {network_of(address)}".encode()
        return hmac.digest(self._signing.secret, text, "sha256").hex()[:VISITOR_CHARACTERS]

    def _check(self, link: UploadLink, stored: str, password: str, address: str) -> None:
        if not password:
            raise NotSignedIn("This link has a password. Send it as that of Basic authentication.")
        seen = digest_of(f"{stored} {password}")
        if seen in self._right:
            return
        try:
            self._passwords.check(link.id, stored, password, address=address)
        except InvalidField as error:
            raise NotSignedIn("This is not the password of the link.") from error
        if len(self._right) >= REMEMBERED_PASSWORDS:
            self._right.clear()
        self._right.add(seen)


def _entry_to(link: UploadLink) -> str:
    """What the cookie names: with another password it is worth nothing."""
    return f"{link.id} {digest_of(link.password_hash or '')[:VISITOR_CHARACTERS]}"
