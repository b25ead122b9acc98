"""The JSON of upload links, from clients and to them, for the API and the pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from app.access.upload_links import LinkTerms, Received, UploadLink
from app.core.errors import InvalidRequest
from app.core.moments import instant, optional_instant, parse_expiry
from app.http.context import ViewContext
from app.http.proxy import absolute_url


def link_url(link: UploadLink) -> str:
    """The address that strangers get."""
    return absolute_url("upload_link.page", code=link.code)


def subject_of(link: UploadLink) -> str:
    """How the audit log names a link."""
    return f"upload_link:{link.id}"


def link_document(link: UploadLink) -> dict[str, Any]:
    """A link for members, with what it has taken."""
    return {
        "id": link.id,
        "url": link_url(link),
        "name": link.name,
        "message": link.message,
        "state": link.state(datetime.now(UTC)).value,
        "files": link.files,
        "bytes": link.bytes,
        "max_files": link.max_files,
        "max_bytes": link.max_bytes,
        "max_file_bytes": link.max_file_bytes,
        "extensions": list(link.extensions),
        "expires": optional_instant(link.expires_at),
        "asks_name": link.asks_name,
        "has_password": link.password_hash is not None,
        "created": instant(link.created_at),
    }


def received_document(received: Received) -> dict[str, Any]:
    """An upload that came through a link."""
    upload = received.upload
    return {
        "id": upload.id,
        "filename": upload.filename,
        "length": upload.length,
        "state": upload.state.value,
        "created": instant(upload.created_at),
        "sender_name": received.sender_name or None,
    }


def terms_in(ctx: ViewContext, body: Mapping[str, Any], given: LinkTerms) -> LinkTerms:
    """The terms that a client has sent; those it does not name are `given`.

    Raises `InvalidRequest`.
    """
    if "password" in body:
        password = _string("password", body["password"])  # Blanks at its ends are part of it.
        given = ctx.services.identity.upload_links.with_password(given, password)
    sent = {
        "expires_at" if name == "expires" else name: parse(name, body[name])
        for name, parse in _PARSERS.items()
        if name in body
    }
    return replace(given, **sent)


def _string(name: str, value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidRequest(f"The member {name} must be a string.")
    return value


def _text(name: str, value: object) -> str:
    return _string(name, value).strip()


def _lines(name: str, value: object) -> str:
    """Forms of browsers end lines with CRLF."""
    return _text(name, value).replace("\r\n", "\n")


def _number(name: str, value: object) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # JSON has one kind of number: 3.0 is 3.
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise InvalidRequest(f"The member {name} must be a whole number, or null.")


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidRequest(f"The member {name} must be true or false.")
    return value


def _extensions(name: str, value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise InvalidRequest(f"The member {name} must be a list of strings.")
    found = [each.strip().lower().removeprefix(".") for each in value]
    return tuple(dict.fromkeys(each for each in found if each))


def _expiry(_name: str, value: object) -> datetime | None:
    return parse_expiry(value, datetime.now(UTC))


_PARSERS: Mapping[str, Callable[[str, object], Any]] = {
    "name": _text,
    "message": _lines,
    "max_files": _number,
    "max_bytes": _number,
    "max_file_bytes": _number,
    "extensions": _extensions,
    "expires": _expiry,
    "asks_name": _flag,
}
