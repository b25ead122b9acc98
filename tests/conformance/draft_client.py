"""A small client of the IETF draft on resumable uploads, in each version in the field."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import urljoin

from tests.conformance.tus_client import settled
from tests.conformance.wire import Connection, Reply, exchange, exchange_chunked

PARTIAL_UPLOAD = "application/partial-upload"
PROBLEM_TYPES = "https://iana.org/assignments/http-problem-types#"
VERSION_HEADER = "Upload-Draft-Interop-Version"

Field = str | int | bool | None
"""True and False are written ?1 and ?0; None leaves the header out."""


@dataclass(frozen=True)
class Version:
    """How one interop version looks on the wire."""

    number: int
    draft: str
    says_incomplete: bool = False
    """`Upload-Incomplete` instead of `Upload-Complete`."""
    has_media_type: bool = True
    has_length: bool = True
    has_limits: bool = True


VERSIONS = {
    3: Version(3, "-01", True, has_media_type=False, has_length=False, has_limits=False),
    5: Version(5, "-03", has_media_type=False, has_length=False, has_limits=False),
    6: Version(6, "-04 and -05"),
    8: Version(8, "-09 to -11"),
}
"""The versions that clients in the field use: iOS 17, 18.0, 18.1 and 26."""


@dataclass(frozen=True)
class Draft:
    """A client of a server of the draft, in one version; `url` is where uploads are created."""

    url: str
    version: Version

    def headers(self, **fields: Field) -> dict[str, str]:
        """Header fields, given with `_` for `-`, and the version's number."""
        named = {name.replace("_", "-"): value for name, value in fields.items()}
        with_version = {VERSION_HEADER: self.version.number, **named}
        return {name: _text(value) for name, value in with_version.items() if value is not None}

    def completeness(self, is_complete: bool | None) -> dict[str, Field]:
        """The field that says whether the content is the end of the upload."""
        if is_complete is None:
            return {}
        if self.version.says_incomplete:
            return {"Upload_Incomplete": not is_complete}
        return {"Upload_Complete": is_complete}

    def request(self, method: str, url: str, body: bytes = b"", /, **fields: Field) -> Reply:
        """The answer to a request."""
        return exchange(method, url, self.headers(**fields), body)

    def post(self, body: bytes = b"", /, *, complete: bool | None, **fields: Field) -> Reply:
        """The answer to a request that creates an upload."""
        return self.request("POST", self.url, body, **{**self.completeness(complete), **fields})

    def create(self, body: bytes = b"", /, **fields: Field) -> str:
        """The URL of a new, incomplete upload."""
        return self.location(self.post(body, complete=False, **fields))

    def location(self, reply: Reply) -> str:
        """The URL of an upload resource, which may be relative to the request's."""
        assert 200 <= reply.status < 300 or reply.status == 104, reply
        return urljoin(self.url, reply["Location"])

    def append_fields(self, offset: int | str | None, complete: bool | None) -> dict[str, Field]:
        """The header fields of an append."""
        media_type = PARTIAL_UPLOAD if self.version.has_media_type else None
        fields: dict[str, Field] = {"Upload_Offset": offset, "Content_Type": media_type}
        return {**fields, **self.completeness(complete)}

    def patch(
        self,
        url: str,
        offset: int | str | None,
        body: bytes = b"",
        /,
        *,
        complete: bool | None,
        **fields: Field,
    ) -> Reply:
        """The answer to an append."""
        named = {**self.append_fields(offset, complete), **fields}
        return self.request("PATCH", url, body, **named)

    def post_chunked(self, pieces: Sequence[bytes], *, complete: bool) -> Reply:
        """As `post`, with a chunked body."""
        headers = self.headers(**self.completeness(complete))
        return exchange_chunked("POST", self.url, headers, pieces)

    def patch_chunked(
        self, url: str, offset: int, pieces: Sequence[bytes], *, complete: bool
    ) -> Reply:
        """As `patch`, with a chunked body."""
        headers = self.headers(**self.append_fields(offset, complete))
        return exchange_chunked("PATCH", url, headers, pieces)

    def head(self, url: str, /, **fields: Field) -> Reply:
        """The answer to a request for the offset."""
        return self.request("HEAD", url, **fields)

    def delete(self, url: str, /, **fields: Field) -> Reply:
        """The answer to a cancellation."""
        return self.request("DELETE", url, **fields)

    def offset(self, url: str) -> int:
        """How many bytes an upload has."""
        return int(self.head(url)["Upload-Offset"])

    def settled_offset(self, url: str, wanted: int) -> int:
        """The offset once it is `wanted`, or whatever it is after a while."""
        return settled(lambda: self.offset(url), wanted)

    def is_complete(self, reply: Reply) -> bool | None:
        """An answer's completeness, or None."""
        name = "Upload-Incomplete" if self.version.says_incomplete else "Upload-Complete"
        value = reply.get(name)
        assert value in {None, "?0", "?1"}, reply
        return None if value is None else (value == "?1") != self.version.says_incomplete

    def half_sent(
        self, url: str, offset: int, length: int, body: bytes, *, complete: bool
    ) -> Connection:
        """An append of `length` bytes of which only `body` was sent."""
        connection = Connection(url)
        fields = {**self.append_fields(offset, complete), "Content_Length": length}
        connection.begin("PATCH", url, self.headers(**fields))
        connection.send_and_stall(body)
        return connection

    def begun(self, length: int, *, complete: bool, **fields: Field) -> Connection:
        """A creation with `length` bytes of content, of which none was sent."""
        connection = Connection(self.url)
        named = {**self.completeness(complete), "Content_Length": length, **fields}
        connection.begin("POST", self.url, self.headers(**named))
        return connection

    @cached_property
    def is_spoken(self) -> bool:
        """Whether the server answers in this version: its 104 has the number."""
        reply = self.post(complete=False)
        return any(
            interim.status == 104 and interim.get(VERSION_HEADER) == str(self.version.number)
            for interim in reply.interim
        )


def problem_of(reply: Reply) -> dict[str, Any]:
    """The members of a problem document (RFC 9457); empty if the answer is not one."""
    if (reply.get("Content-Type") or "").split(";")[0] != "application/problem+json":
        return {}
    members: dict[str, Any] = json.loads(reply.body)
    return members


def content_of(draft: Draft, url: str, reply: Reply) -> bytes | None:
    """The bytes of an upload that `reply` completed, or None if they cannot be read.

    The draft does not say how a file is read. Ours names it in the answer; some answer to a GET of
    the upload's URL, which by the newest draft tells the offset alone.
    """
    if (reply.get("Content-Type") or "").startswith("application/json"):
        url = urljoin(draft.url, json.loads(reply.body).get("media") or url)
    download = exchange("GET", url)
    return download.body or None if download.status == 200 else None


def limits_of(reply: Reply) -> dict[str, int]:
    """The limits in an answer; every value the drafts define is an Integer."""
    limits = {}
    for member in reply.items("Upload-Limit"):
        name, _, value = member.partition("=")
        limits[name] = int(value)
    return limits


def _text(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "?1" if value else "?0"
    return str(value)
