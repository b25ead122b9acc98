"""Parses the headers that describe the bytes in a request. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.core.errors import InvalidRequest
from app.protocols.ietf.interop import (
    UPLOAD_COMPLETE,
    InconsistentLength,
    InteropVersion,
    parse_boolean,
    parse_length,
)


@dataclass(frozen=True, slots=True)
class Transfer:
    """The content of a creation or an append; lengths and offsets in bytes.

    `content_length` is None for a chunked body, `upload_length` if the request does not say.
    """

    is_last: bool
    offset: int
    content_length: int | None
    upload_length: int | None

    @property
    def end(self) -> int:
        """The offset at which the bytes end, as far as that is known before they arrive."""
        return self.offset + (self.content_length or 0)

    def length(self, known: int | None) -> int | None:
        """The length of the file, `known` if an earlier request stated it; None if still unknown.

        Raises `InconsistentLength` if stated lengths differ, or the bytes reach beyond the length.
        """
        is_rest = self.is_last and self.content_length is not None
        stated = {known, self.upload_length, self.end if is_rest else None} - {None}
        if len(stated) > 1:
            raise InconsistentLength("The request states different lengths of the upload.")
        length = stated.pop() if stated else None
        if length is not None and self.end > length:
            raise InconsistentLength(
                f"The content ends at byte {self.end}, but the upload has {length} bytes."
            )
        return length


def parse_creation(
    headers: Mapping[str, str], version: InteropVersion, content_length: int | None
) -> Transfer:
    """The content of a request that creates an upload; raises `InvalidRequest`."""
    if _number(headers, "Upload-Offset"):
        raise InvalidRequest("An upload begins at byte 0; append to its own URL.")
    return _transfer(headers, version, content_length, offset=0, default=None)


def parse_append(
    headers: Mapping[str, str], version: InteropVersion, content_length: int | None
) -> Transfer:
    """The content of a request that continues an upload; raises `InvalidRequest`."""
    offset = _number(headers, "Upload-Offset")
    if offset is None:
        raise InvalidRequest("The Upload-Offset header is missing.")
    default = version.default_completeness
    return _transfer(headers, version, content_length, offset=offset, default=default)


def _transfer(
    headers: Mapping[str, str],
    version: InteropVersion,
    content_length: int | None,
    *,
    offset: int,
    default: bool | None,
) -> Transfer:
    is_last = _completeness(headers, version)
    is_last = default if is_last is None else is_last
    if is_last is None:
        raise InvalidRequest(f"The {version.completeness_header} header is missing.")
    return Transfer(is_last, offset, content_length, _upload_length(headers, version))


def _completeness(headers: Mapping[str, str], version: InteropVersion) -> bool | None:
    name = version.completeness_header
    if name not in headers:
        return None
    return parse_boolean(headers[name], name) == (name == UPLOAD_COMPLETE)


def _upload_length(headers: Mapping[str, str], version: InteropVersion) -> int | None:
    try:
        return _number(headers, "Upload-Length")
    except InvalidRequest:
        if not version.ignores_malformed_length:
            raise
        return None


def _number(headers: Mapping[str, str], name: str) -> int | None:
    return parse_length(headers[name], name) if name in headers else None
