"""The description of the API against the routes, the error tree and real answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
import schemathesis
import yaml
from flask import Flask
from schemathesis import checks
from schemathesis.schemas import BaseSchema
from werkzeug.routing import Rule

from app import __version__
from app.access.audit import AuditAction
from app.access.webhooks import SUBSCRIBABLE
from app.core.errors import UploadError, over_quota
from app.core.lifecycle import UploadState
from app.http.problems import Problem
from tests.architecture.sources import ROOT
from tests.live_server import Server
from tests.web.answers import Answer, Conversation
from tests.web.application import application
from tests.web.conversation import hold_conversation
from tests.web.description import (
    DOCUMENT,
    OPERATIONS,
    SCHEMAS,
    described_codes,
    described_response,
)

DESCRIBED_BLUEPRINTS = {
    "api_uploads",
    "api_videos",
    "api_share_links",
    "api_upload_links",
    "api_server",
    "api_session",
    "api_projects",
    "api_keys",
    "api_audit",
    "api_webhooks",
    "api_status",
    "api_openapi",
    "archive",
    "delivery",
    "upload",
    "batch",
    "health",
}

RARE = {"408", "500", "503", "507"}
"""They need a client that stalls, or a broken, slow or full disk: tests/e2e has some of them."""

ELSEWHERE = {
    ("post", "/batch", "413"),
    ("post", "/api/videos/{upload_id}/renditions/{height}", "409"),
    ("post", "/api/session", "429"),
    ("post", "/api/projects/{project_id}/members", "429"),
    ("post", "/api/uploads/{upload_id}/cells", "200"),
    ("post", "/api/uploads/{upload_id}/cells/stored", "200"),
}
"""Needs 20,001 files; needs a server with other settings: tests/deliver has it; needs many slow
attempts, and a server of mail: tests/web has both; need a bucket: test_direct.py has them."""


def needs_accounts(method: str, path: str, status: str) -> bool:
    """Whether only a server with accounts gives that answer: tests/access has them all."""
    of_callers = {"not_signed_in", "not_allowed", "no_project"}
    return described_codes(method, path, status) <= of_callers and status in {"401", "403"}


REACHABLE = [
    (method, path, status)
    for (method, path), operation in OPERATIONS.items()
    for status in operation["responses"]
    if status not in RARE and (method, path, status) not in ELSEWHERE
    if not needs_accounts(method, path, status)
]

PROBLEMS = [
    (method, path, status)
    for (method, path), operation in OPERATIONS.items()
    for status in operation["responses"]
    if described_codes(method, path, status)
]

WITH_EXAMPLES = [name for name, schema in SCHEMAS.items() if "examples" in schema]

PATH_PARAMETERS = dict.fromkeys(
    ("upload_id", "project_id", "person_id", "key_id", "link_id", "webhook_id", "delivery_id"),
    "0" * 32,
) | {"ending": "csv"}

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


def test_the_description_is_valid_openapi(schema: BaseSchema) -> None:
    assert DOCUMENT["openapi"].startswith("3.1.")
    schema.validate()


def test_the_description_is_served_as_json_and_as_yaml(server: Server) -> None:
    as_json, as_yaml = server.get("/openapi.json"), server.get("/openapi.yaml")
    assert as_json.headers["Content-Type"] == "application/json"
    assert as_yaml.headers["Content-Type"] == "application/yaml"
    assert as_json.json() == yaml.safe_load(as_yaml.text) == DOCUMENT


def test_every_route_is_described_and_nothing_else(app: Flask) -> None:
    assert {pair for rule in app.url_map.iter_rules() for pair in routed(rule)} == set(OPERATIONS)


def routed(rule: Rule) -> set[tuple[str, str]]:
    """Method and path of a route; HEAD only for files, as it says nothing elsewhere."""
    if rule.endpoint.partition(".")[0] not in DESCRIBED_BLUEPRINTS:
        return set()
    path = re.sub(r"<(?:int:)?(\w+)>", r"{\1}", rule.rule)
    methods = {method.lower() for method in rule.methods or ()} - {"options"}
    return {(method, path) for method in methods if method != "head" or path.startswith("/media")}


def test_names_are_those_of_the_code() -> None:
    assert SCHEMAS["AuditAction"]["enum"] == [action.value for action in AuditAction]
    events = SCHEMAS["NewWebhook"]["properties"]["events"]["items"]["enum"]
    assert events == [event.value for event in SUBSCRIBABLE]
    assert DOCUMENT["info"]["version"] == __version__
    assert SCHEMAS["UploadState"]["enum"] == [state.value for state in UploadState]


def test_what_is_said_of_classes_and_members_is_in_the_description() -> None:
    upload = SCHEMAS["Upload"]
    assert upload["description"].startswith("An upload, with everything")
    assert upload["properties"]["offset"]["description"].startswith("Bytes that have arrived")
    assert upload["examples"][0]["filename"] == "film.mp4"
    assert {"id", "direct"} <= set(upload["required"])
    assert "media" not in upload["required"]
    with_secret = SCHEMAS["WebhookWithSecret"]["properties"]
    assert with_secret["secret"]["description"] == "What signatures are made with."
    assert "- `held`: Every byte" in SCHEMAS["UploadState"]["description"]


def test_a_body_says_what_may_be_left_out() -> None:
    new = SCHEMAS["NewUpload"]
    assert new["required"] == ["name", "size"]
    assert {"type": "null"} in new["properties"]["fingerprint"]["anyOf"]
    assert SCHEMAS["WebhookChange"]["required"] == []


def test_the_access_rule_says_what_is_refused() -> None:
    assert described_codes("get", "/api/videos", 401) == {"not_signed_in"}
    assert "401" not in OPERATIONS["get", "/api/server"]["responses"]
    assert "forbidden" not in described_codes("get", "/api/keys", 403)
    assert "forbidden" in described_codes("post", "/api/keys", 403)


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_fit_their_schema(name: str) -> None:
    validator = jsonschema_rs.validator_for({**DOCUMENT, "$ref": f"#/components/schemas/{name}"})
    for example in SCHEMAS[name]["examples"]:
        assert list(validator.iter_errors(example)) == []


def known_errors(error: type[UploadError] = UploadError) -> dict[str, int]:
    """Each code of the error tree with its HTTP status."""
    known: dict[str, int] = {}
    for child in error.__subclasses__():
        if child.__module__.startswith("app.core."):
            known |= {child.code: child.status_hint, **known_errors(child)}
    return known


def problem_codes() -> list[str]:
    codes: list[str] = SCHEMAS["Problem"]["properties"]["code"]["enum"]
    return codes


def test_every_error_has_its_code_in_the_description() -> None:
    codes = problem_codes()
    assert len(codes) == len(set(codes))
    assert known_errors().keys() <= set(codes)


@pytest.mark.parametrize(("method", "path", "status"), PROBLEMS)
def test_a_described_code_exists_and_has_that_status(method: str, path: str, status: str) -> None:
    known = known_errors()
    for code in described_codes(method, path, status):
        assert code in problem_codes()
        assert known.get(code, int(status)) == int(status)


def test_every_code_in_the_protocol_document_is_in_the_description() -> None:
    text = (ROOT / "docs/http-api.md").read_text(encoding="utf-8").partition("\n## Errors")[2]
    rows = re.findall(r"^\| [0-9]{3} \| ([^|]+) \|", text, re.MULTILINE)
    documented = {code for row in rows for code in re.findall(r"`(\w+)`", row)}
    assert documented
    assert documented <= set(problem_codes())


def test_each_operation_has_its_own_name() -> None:
    names = [operation["operationId"] for operation in OPERATIONS.values()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("method", "path", "status"), REACHABLE)
def test_a_real_answer_is_as_described(
    schema: BaseSchema, conversation: Conversation, method: str, path: str, status: str
) -> None:
    answers = conversation.answers(method, path, int(status))
    assert answers, "no request of the conversation gets this answer"
    for answer in answers:
        case = schema[path][method.upper()].Case(path_parameters=PATH_PARAMETERS)
        case.validate_response(answer.response, checks=CHECKS)
        if codes := described_codes(method, path, status):
            assert answer.json()["code"] in codes


@pytest.mark.parametrize(
    "name", ["Upload", "Video", "BatchReceipt", "Server", "Ready", "Status", "ShareLink"]
)
def test_a_real_answer_has_no_undescribed_member(conversation: Conversation, name: str) -> None:
    given: set[str] = set()
    for answer in conversation.all():
        if documented_schema(answer) == {"$ref": f"#/components/schemas/{name}"}:
            given |= answer.json().keys()
    assert given == set(SCHEMAS[name]["properties"])


def test_a_real_receipt_has_no_undescribed_member(conversation: Conversation) -> None:
    receipts = conversation.answers("post", "/upload", 200)
    described = SCHEMAS["Receipt"]["properties"] | SCHEMAS["StoredUpload"]["properties"]
    given = {name for answer in receipts for name in answer.json()}
    assert given == described.keys() - {"crc32c"}  # Only a server with a bucket gives that.


def documented_schema(answer: Answer) -> Any:
    response = described_response(answer.method, answer.path, answer.status)
    return response.get("content", {}).get("application/json", {}).get("schema")


def test_a_problem_has_the_described_members() -> None:
    described = SCHEMAS["Problem"]["properties"]
    special = over_quota(2, left=1, quota=3).members
    problem = Problem(400, "", "", "", retryable=False, members=special)
    assert [*problem.to_json(), "field"] == list(described)
