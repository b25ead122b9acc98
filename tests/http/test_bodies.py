"""JSON bodies: limited, and checked member by member."""

import json
from collections.abc import Callable
from functools import cache
from io import BytesIO
from typing import Any

import pytest
from flask import Flask

from app.core.errors import InvalidRequest, TooLarge
from app.http.bodies import MAX_JSON_BYTES, json_object, member
from app.http.context import view_context
from app.run.build import build_services
from app.run.factory import create_app
from app.settings import Settings


@cache
def application() -> Flask:
    """The real application; it opens nothing, as no view runs."""
    return create_app(build_services(Settings()))


def read(body: bytes, *, length: int | None = None) -> dict[str, Any]:
    with application().test_request_context(
        method="POST",
        input_stream=BytesIO(body),
        environ_overrides={"CONTENT_LENGTH": str(length or len(body))},
    ):
        return json_object(view_context())


def test_an_object_is_read() -> None:
    assert read('{"name": "été", "size": 5}'.encode()) == {"name": "été", "size": 5}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"a": 1} x',
        b"\xff\xfe",
        b"[1]",
        b'"text"',
        b"null",
        b"5",
        b"[" * 50_000,
        b'{"a": ' + b"9" * 5000 + b"}",
    ],
)
def test_a_body_that_is_not_an_object_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        read(body)


def test_a_large_body_is_refused_by_its_announced_length() -> None:
    with pytest.raises(TooLarge):
        read(b"{}", length=MAX_JSON_BYTES + 1)


def test_the_largest_body_is_accepted() -> None:
    padding = "x" * (MAX_JSON_BYTES - len('{"a": ""}'))
    assert read(json.dumps({"a": padding}).encode()) == {"a": padding}


def test_members_are_found_under_the_first_name_present() -> None:
    body = {"filename": "a.mp4", "size": 5, "none": None}
    assert member(body, "name", "filename", kind=str) == "a.mp4"
    assert member(body, "none", "size", kind=int) == 5
    assert member(body, "length", kind=int, default=None) is None


def test_a_whole_number_may_have_a_zero_fraction() -> None:
    """JSON has one kind of number, and JSON Schema calls 5.0 an integer."""
    size = member({"size": 5.0}, "size", kind=int)
    assert (size, type(size)) == (5, int)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: member({}, "name", kind=str), "name is missing"),
        (lambda: member({"name": None}, "name", kind=str), "name is missing"),
        (lambda: member({"name": 5}, "name", kind=str), "name must be a string"),
        (lambda: member({"size": "5"}, "size", kind=int), "size must be a whole number"),
        (lambda: member({"size": 5.5}, "size", kind=int), "size must be a whole number"),
        (lambda: member({"size": float("inf")}, "size", kind=int), "size must be a whole number"),
        (lambda: member({"size": True}, "size", kind=int), "size must be a whole number"),
        (lambda: member({"size": []}, "size", kind=int, default=1), "size must be"),
    ],
)
def test_a_missing_or_wrong_member_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        call()
