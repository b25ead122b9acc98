"""Builds the `responses` of an operation."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from app.domain import errors
from app.domain.errors import StorageFailed, UploadError

JSON = "application/json"
PROBLEM = "application/problem+json"

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class HttpProblem:
    """A problem that no error of ours stands for: routing, preconditions, a bug."""

    code: str
    title: str
    status_hint: int


BAD_REQUEST = HttpProblem("bad_request", "The request cannot be understood", 400)
FORBIDDEN = HttpProblem("forbidden", "A page of another site sent the request", 403)
NOT_FOUND = HttpProblem("not_found", "There is nothing at this address", 404)
METHOD_NOT_ALLOWED = HttpProblem("method_not_allowed", "See the Allow header", 405)
CHANGED = HttpProblem("precondition_failed", "The file is not the one the request is about", 412)
NO_SUCH_RANGE = HttpProblem("requested_range_not_satisfiable", "No byte is in the range", 416)
BUG = HttpProblem("internal_server_error", "The server made a mistake", 500)

HTTP_PROBLEMS = (
    BAD_REQUEST,
    FORBIDDEN,
    NOT_FOUND,
    METHOD_NOT_ALLOWED,
    CHANGED,
    NO_SUCH_RANGE,
    BUG,
)

AnyProblem = HttpProblem | type[UploadError]


def upload_errors() -> list[type[UploadError]]:
    """Every error of the tree that has a code, in the order of the tree's file."""
    found = [item for item in vars(errors).values() if inspect.isclass(item)]
    return [item for item in found if issubclass(item, UploadError) and hasattr(item, "code")]


def problem_codes() -> list[str]:
    """Every `code` a problem document may have."""
    known: list[AnyProblem] = [*upload_errors(), *HTTP_PROBLEMS]
    return [problem.code for problem in known]


def reference(name: str) -> Schema:
    """A pointer to one of the shared schemas."""
    return {"$ref": f"#/components/schemas/{name}"}


def json_answer(description: str, schema: str, *headers: str) -> Schema:
    """A JSON body of that shape, with some of the shared headers besides."""
    return {
        "description": description,
        "headers": named_headers("X-Request-ID", *headers),
        "content": {JSON: {"schema": reference(schema)}},
    }


def bare_answer(description: str, *headers: str) -> Schema:
    """An answer without a body."""
    return {"description": description, "headers": named_headers("X-Request-ID", *headers)}


def named_headers(*names: str) -> Schema:
    """Pointers to some of the shared headers."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def problems(*raised: AnyProblem, members: Schema | None = None) -> Schema:
    """What is answered, by status, when one of these is raised; the disk and bugs are added.

    `members` are properties that the problem document may have besides.
    """
    by_status: dict[int, list[AnyProblem]] = defaultdict(list)
    for problem in (*raised, StorageFailed, BUG):
        by_status[problem.status_hint].append(problem)
    return {
        str(status): _problem_answer(status, by_status[status], members or {})
        for status in sorted(by_status)
    }


def _problem_answer(status: int, raised: Iterable[AnyProblem], members: Schema) -> Schema:
    raised = list(raised)
    codes = [item.code for item in raised]
    said = {"status": {"const": status}, "code": {"enum": codes}, **members}
    headers = ("Retry-After",) if status == HTTPStatus.SERVICE_UNAVAILABLE else ()
    return {
        "description": "; ".join(f"`{item.code}`: {item.title.lower()}" for item in raised) + ".",
        "headers": named_headers("X-Request-ID", *headers),
        "content": {PROBLEM: {"schema": {"allOf": [reference("Problem"), {"properties": said}]}}},
    }
