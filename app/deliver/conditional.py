"""What the conditional headers of a request ask for (RFC 9110, section 13). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto

from werkzeug.http import parse_date, parse_etags, parse_if_range_header


class Outcome(Enum):
    """How to answer."""

    SEND = auto()
    NOT_MODIFIED = auto()
    PRECONDITION_FAILED = auto()


@dataclass(frozen=True, slots=True)
class Validators:
    """Identify one version of a file: a strong entity tag, and the time of publication."""

    etag: str
    last_modified: datetime


def evaluate(headers: Mapping[str, str], validators: Validators) -> Outcome:
    """The outcome for a GET or HEAD, in the order of precedence of RFC 9110, 13.2.2."""
    if "If-Match" in headers:
        if not parse_etags(headers["If-Match"]).contains(validators.etag):
            return Outcome.PRECONDITION_FAILED
    elif _is_newer(validators, headers.get("If-Unmodified-Since")) is True:
        return Outcome.PRECONDITION_FAILED
    if "If-None-Match" in headers:
        if parse_etags(headers["If-None-Match"]).contains_weak(validators.etag):
            return Outcome.NOT_MODIFIED
    elif _is_newer(validators, headers.get("If-Modified-Since")) is False:
        return Outcome.NOT_MODIFIED
    return Outcome.SEND


def range_applies(headers: Mapping[str, str], validators: Validators) -> bool:
    """Whether If-Range allows a part: both validators must match strongly."""
    if "If-Range" not in headers:
        return True
    condition = parse_if_range_header(headers["If-Range"])
    if condition.date is not None:
        return condition.date == validators.last_modified
    return condition.etag == validators.etag and not headers["If-Range"].startswith(("W/", "w/"))


def _is_newer(validators: Validators, header: str | None) -> bool | None:
    """Whether the file is newer than a date header says; None without a valid one."""
    date = parse_date(header)
    return None if date is None else validators.last_modified > date
