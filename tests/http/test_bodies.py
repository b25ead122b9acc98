"""JSON bodies: limited, and parsed into the members of a class."""

import json
from collections.abc import Mapping
from functools import cache
from io import BytesIO
from typing import Any, TypeVar

import pytest
from flask import Flask
from msgspec import UNSET, Struct, UnsetType

from app.core.errors import InvalidRequest, TooLarge
from app.http.bodies import MAX_JSON_BYTES, json_body
from app.http.context import view_context
from app.run.build import build_services
from app.run.factory import create_app
from app.settings import Settings


@cache
def application() -> Flask:
    """The real application; it opens nothing, as no view runs."""
    return create_app(build_services(Settings()))


class Part(Struct):
    start: int


class Film(Struct):
    name: str
    size: int
    seconds: float | None = None
    title: str | UnsetType | None = UNSET
    parts: list[Part] = []


T = TypeVar("T")


def parse(
    body: bytes, kind: type[T], aliases: Mapping[str, str] = {}, *, length: int | None = None
) -> T:
    with application().test_request_context(
        method="POST",
        input_stream=BytesIO(body),
        environ_overrides={"CONTENT_LENGTH": str(length or len(body))},
    ):
        return json_body(view_context(), kind, aliases)


def read(body: bytes, *, length: int | None = None) -> dict[str, Any]:
    return parse(body, dict[str, Any], length=length)


def film(**members: object) -> Film:
    return parse(json.dumps({"name": "a.mp4", "size": 5} | members).encode(), Film)


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


@pytest.mark.parametrize(
    "body", [b'{"\\ud800": 1, "name": "a", "size": 1}', b'{"name": "a", "size": "\\udfff"}']
)
def test_half_a_character_is_no_text(body: bytes) -> None:
    with pytest.raises(InvalidRequest, match="not text"):
        parse(body, Film)


def test_a_large_body_is_refused_by_its_announced_length() -> None:
    with pytest.raises(TooLarge):
        read(b"{}", length=MAX_JSON_BYTES + 1)


def test_the_largest_body_is_accepted() -> None:
    padding = "x" * (MAX_JSON_BYTES - len('{"a": ""}'))
    assert read(json.dumps({"a": padding}).encode()) == {"a": padding}


def test_members_are_found_under_their_other_names() -> None:
    body = b'{"filename": "a.mp4", "size": null, "length": 5}'
    assert parse(body, Film, {"filename": "name", "length": "size"}) == Film("a.mp4", 5)


def test_a_missing_member_is_told_from_null() -> None:
    assert film().title is UNSET
    assert film(title=None).title is None
    assert film(title="Trip", unknown=1).title == "Trip"


def test_a_whole_number_may_have_a_zero_fraction() -> None:
    """JSON has one kind of number, and JSON Schema calls 5.0 an integer."""
    size = film(size=5.0).size
    assert (size, type(size)) == (5, int)
    assert film(seconds=5).seconds == 5
    assert film(seconds=0.5).seconds == 0.5


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "The member name is missing."),
        ({"name": "a"}, "The member size is missing."),
        ({"name": None, "size": 1}, "The member name must be a string."),
        ({"name": 5}, "The member name must be a string."),
        ({"name": "a", "size": "5"}, "The member size must be a whole number."),
        ({"name": "a", "size": 5.5}, "The member size must be a whole number."),
        ({"name": "a", "size": float("inf")}, "The member size must be a whole number."),
        ({"name": "a", "size": True}, "The member size must be a whole number."),
        ({"name": "a", "size": 1, "title": []}, "The member title must be a string or null."),
        ({"name": "a", "size": 1, "parts": {}}, "The member parts must be a list."),
        ({"name": "a", "size": 1, "parts": [1]}, r"The member parts\[0\] must be an object."),
        ({"name": "a", "size": 1, "parts": [{}]}, r"The member parts\[0\].start is missing."),
    ],
)
def test_a_missing_or_wrong_member_is_named(body: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^{message}$"):
        parse(json.dumps(body).encode(), Film)
