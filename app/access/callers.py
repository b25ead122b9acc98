"""Finds out who sends a request, from what it carries."""

from __future__ import annotations

import base64
import binascii
from dataclasses import KW_ONLY, dataclass

from app.access.keys import ApiKeys
from app.access.link_visitors import LinkVisitors
from app.access.sessions import Sessions
from app.access.share_links import ShareLinks
from app.core.access import ANONYMOUS, LOCAL, Caller
from app.core.errors import NotSignedIn


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What a request says about its sender.

    `authorization` is the header of that name. `link` is the prefix of its URL that stands for a
    link, as ("u", code); `session` is the cookie of a session, `cookies` are all cookies.
    """

    authorization: str = ""
    link: tuple[str, str] | None = None
    session: str = ""
    cookies: str = ""
    address: str = ""


@dataclass(frozen=True, slots=True)
class Callers:
    """Asks each kind of caller in turn."""

    keys: ApiKeys
    sessions: Sessions
    share_links: ShareLinks
    link_visitors: LinkVisitors
    _: KW_ONLY
    is_open: bool

    def find(self, sent: Credentials, *, fresh: bool = False) -> Caller:
        """The sender of a request, or `ANONYMOUS`; raises `NotSignedIn` for invalid credentials.

        On a server without accounts every client is `LOCAL`. A request through a link comes from a
        guest in both cases; raises `LinkNotFound` or `LinkClosed` if the link is invalid. `fresh`
        bypasses this process's cache of sessions and keys.
        """
        if sent.link is not None and sent.link[0] == "t":
            return self.share_links.guest(sent.link[1])
        if sent.link is not None:
            password = _secret_in(sent.authorization) if sent.authorization else ""
            return self.link_visitors.caller(
                sent.link[1], cookies=sent.cookies, password=password, address=sent.address
            )
        if self.is_open:
            return LOCAL
        if sent.authorization:
            caller = self.keys.caller(_secret_in(sent.authorization), fresh=fresh)
            if caller is None:
                raise NotSignedIn("The API key does not exist, has expired or was revoked.")
            return caller
        return self.sessions.caller(sent.session, fresh=fresh) or ANONYMOUS


def _secret_in(authorization: str) -> str:
    """The key in the header: a bearer token, or the password of Basic (RFC 6750 and RFC 7617)."""
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() != "basic":
        return ""
    try:
        decoded = base64.b64decode(value.strip(), validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return ""
    return decoded.partition(":")[2]
