"""The description of the API against the routes, the errors and real answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from flask import Flask
from schemathesis import checks
from schemathesis.schemas import BaseSchema
from werkzeug.routing import Rule

from app.api.openapi.document import openapi_document
from app.domain.errors import UploadError
from app.wire.problems import Problem
from tests.api.application import application
from tests.api.conversation import Answer, Conversation, hold_conversation
from tests.architecture.sources import ROOT
from tests.server import Server

DESCRIBED_BLUEPRINTS = {
    "api_uploads",
    "api_videos",
    "api_server",
    "api_status",
    "api_openapi",
    "delivery",
    "upload",
    "batch",
    "health",
}

RARE = {"408", "500", "503", "507"}
"""A client that stalls, a disk that is broken, held up or full: tests/e2e has some of them."""

TOO_COSTLY = {("post", "/batch", "413")}
"""20,001 files."""

PATHS: dict[str, dict[str, Any]] = openapi_document()["paths"]

OPERATIONS = {
    (method, path): operation
    for path, operations in PATHS.items()
    for method, operation in operations.items()
    if method != "parameters"
}

REACHABLE = [
    (method, path, status)
    for (method, path), operation in OPERATIONS.items()
    for status in operation["responses"]
    if status not in RARE and (method, path, status) not in TOO_COSTLY
]

CHECKS = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flask]:
    extensions = frozenset({"mp4", "txt"})
    with application(tmp_path_factory.mktemp("app"), extensions=extensions) as app:
        yield app


@pytest.fixture(scope="module")
def schema(app: Flask) -> BaseSchema:
    return schemathesis.openapi.from_wsgi("/openapi.json", app)


@pytest.fixture(scope="module")
def conversation(app: Flask) -> Conversation:
    return hold_conversation(app)


def test_the_description_is_served_and_valid_openapi(server: Server, schema: BaseSchema) -> None:
    response = server.get("/openapi.json")
    assert response.headers["Content-Type"] == "application/json"
    assert response.json() == openapi_document()
    assert response.json()["openapi"].startswith("3.1.")
    schema.validate()


def test_every_route_is_described_and_nothing_else(app: Flask) -> None:
    assert {pair for rule in app.url_map.iter_rules() for pair in routed(rule)} == set(OPERATIONS)


def routed(rule: Rule) -> set[tuple[str, str]]:
    """Method and path of a route; HEAD only for files, as it says nothing elsewhere."""
    if rule.endpoint.partition(".")[0] not in DESCRIBED_BLUEPRINTS:
        return set()
    path = re.sub(r"<(\w+)>", r"{\1}", rule.rule)
    methods = {method.lower() for method in rule.methods or ()} - {"options"}
    return {(method, path) for method in methods if method != "head" or path.startswith("/media")}


def test_every_error_of_ours_has_its_code_in_the_description() -> None:
    def tree(error: type[UploadError]) -> set[str]:
        below = (tree(item) for item in error.__subclasses__())
        own = {error.code} if error.__module__ == UploadError.__module__ != "" else set()
        return own.union(*below)

    codes = problem_codes()
    assert len(codes) == len(set(codes))
    known = set().union(*(tree(item) for item in UploadError.__subclasses__()))
    assert known <= set(codes)


def problem_codes() -> list[str]:
    codes: list[str] = openapi_document()["components"]["schemas"]["Problem"]["properties"]["code"][
        "enum"
    ]
    return codes


def test_every_code_in_the_protocol_document_is_in_the_description() -> None:
    text = (ROOT / "docs/http-api.md").read_text(encoding="utf-8").partition("\n## Errors")[2]
    rows = re.findall(r"^\| [0-9]{3} \| ([^|]+) \|", text, re.MULTILINE)
    documented = {code for row in rows for code in re.findall(r"`(\w+)`", row)}
    assert documented
    assert documented <= set(problem_codes())


def test_operations_have_names_of_their_own() -> None:
    names = [operation["operationId"] for operation in OPERATIONS.values()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("method", "path", "status"), REACHABLE)
def test_a_real_answer_is_as_described(
    schema: BaseSchema, conversation: Conversation, method: str, path: str, status: str
) -> None:
    answers = conversation.answers(method, path, int(status))
    assert answers, "no request of the conversation is answered so"
    for answer in answers:
        case = schema[path][method.upper()].Case(path_parameters={"upload_id": "0" * 32})
        case.validate_response(answer.response, checks=CHECKS)


@pytest.mark.parametrize("name", ["Upload", "Video", "Receipt", "BatchReceipt", "Server", "Ready"])
def test_a_real_answer_has_no_member_that_is_not_described(
    conversation: Conversation, name: str
) -> None:
    reference = f"#/components/schemas/{name}"
    described = set(openapi_document()["components"]["schemas"][name]["properties"])
    given: set[str] = set()
    for answer in conversation.all():
        if documented_schema(answer) == {"$ref": reference}:
            given |= answer.json().keys()
    assert given == described


def documented_schema(answer: Answer) -> Any:
    response = OPERATIONS[answer.method, answer.path]["responses"][str(answer.status)]
    return response.get("content", {}).get("application/json", {}).get("schema")


def test_a_problem_has_the_described_members() -> None:
    described = openapi_document()["components"]["schemas"]["Problem"]["properties"]
    assert list(Problem(400, "", "", "", retryable=False).to_json()) == list(described)
