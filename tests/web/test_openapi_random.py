"""Requests generated from the description of the API, valid and invalid, against the API."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import schemathesis
from flask import Flask
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode, checks
from schemathesis.config import ChecksConfig, ProjectConfig, ProjectsConfig, SchemathesisConfig
from schemathesis.config._checks import NegativeDataRejectionConfig, PositiveDataAcceptanceConfig
from schemathesis.schemas import BaseSchema

from tests.dropzone_client import form_body, form_headers
from tests.long_tests import long
from tests.web.application import application
from tests.web.description import OPERATIONS, described_codes

EXAMPLES = [3, *long([40])]
"""Requests of each operation."""

TAKES_PARAMETERS = {"parameters", "requestBody"}

EVERY = [pytest.param(path, method, id=f"{method} {path}") for method, path in OPERATIONS]

CAN_BE_INVALID = [
    pytest.param(path, method, id=f"{method} {path}")
    for (method, path), operation in OPERATIONS.items()
    if TAKES_PARAMETERS & operation.keys()
]

NOT_FOR_FORMS = [checks.positive_data_acceptance, checks.negative_data_rejection]
"""No schema can say that a form's fields agree with each other and with the body, and on the wire
every field is text, whatever it was."""

WITH_FOREIGN_CURSORS = [checks.positive_data_acceptance]
"""No schema can say that a cursor belongs to a search and an order."""


WITH_FULL_PROJECTS = [checks.positive_data_acceptance]
"""A project has a limited number of them."""

WITH_EMPTY_PARAMETERS = [checks.negative_data_rejection]
"""Forms send them, and times may be days."""

WITH_NAMES = [checks.positive_data_acceptance]
"""No schema can say which characters are printable, or which times are still to come."""

WITH_PASSWORDS = [checks.positive_data_acceptance]
"""No schema can say which one is right."""

EXCLUDED = {
    "/api/projects": WITH_NAMES,
    "/api/keys": WITH_NAMES,
    "/api/upload-links": WITH_NAMES,
    "/api/share-links": WITH_NAMES,
    "/api/upload-links/{link_id}": WITH_NAMES,
    "/api/webhooks/{webhook_id}": WITH_NAMES,
    "/api/session": WITH_PASSWORDS,
    "/api/audit": WITH_EMPTY_PARAMETERS,
    "/api/audit/export.{ending}": WITH_EMPTY_PARAMETERS,
    "/api/webhooks": WITH_FULL_PROJECTS,
    "/upload": NOT_FOR_FORMS,
    "/batch": NOT_FOR_FORMS,
    "/api/videos": WITH_FOREIGN_CURSORS,
}


@dataclass(frozen=True, slots=True)
class Described:
    """The API's description, and ids that exist."""

    schema: BaseSchema
    ids: list[str]


def rules() -> SchemathesisConfig:
    """The statuses that valid and invalid requests may get."""
    accepted = ["2xx", "3xx", "404", "409", "410", "412", "413", "416"]
    refused = ["400", "404", "405", "409", "410", "412", "413", "415"]
    of_checks = ChecksConfig(
        positive_data_acceptance=PositiveDataAcceptanceConfig(expected_statuses=accepted),
        negative_data_rejection=NegativeDataRejectionConfig(expected_statuses=refused),
    )
    return SchemathesisConfig(
        seed=1, projects=ProjectsConfig(default=ProjectConfig(checks=of_checks))
    )


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Described]:
    with application(tmp_path_factory.mktemp("described")) as app:
        yield describe(app)


def describe(app: Flask) -> Described:
    client = app.test_client()
    body = form_body({}, [("film.mp4", b"0123456789")])
    video = client.post("/upload", data=body, headers=form_headers()).get_json()
    upload = client.post("/api/uploads", json={"name": "a.mp4", "size": 10}).get_json()
    schema = schemathesis.openapi.from_wsgi("/openapi.json", app, config=rules())
    return Described(schema, [video["id"], upload["id"]])


def check_answers(
    described: Described, path: str, method: str, *, mode: GenerationMode, examples: int
) -> None:
    operation = described.schema[path][method]
    excluded = EXCLUDED.get(path, [])
    names = {each["name"] for each in OPERATIONS[method, path].get("parameters", [])}

    @settings(max_examples=examples, derandomize=True, database=None)
    @given(operation.as_strategy(generation_mode=mode), st.sampled_from([None, *described.ids]))
    def check(case: Case[Any], existing: str | None) -> None:
        if mode is GenerationMode.POSITIVE and existing and "{" in path and method != "delete":
            case.path_parameters["upload_id"] = existing
        # Each operation takes it, few describe it, and Hypothesis reads words in our sources.
        assume("project" in names or "project" not in (case.query or {}))
        response = case.call_and_validate(excluded_checks=excluded, buffered=True)
        if codes := described_codes(method, path, response.status_code):
            assert response.json()["code"] in codes

    check()


@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize(("path", "method"), EVERY)
def test_a_valid_request_is_answered_as_described(
    described: Described, path: str, method: str, examples: int
) -> None:
    check_answers(described, path, method, mode=GenerationMode.POSITIVE, examples=examples)


@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize(("path", "method"), CAN_BE_INVALID)
def test_an_invalid_request_is_refused_as_described(
    described: Described, path: str, method: str, examples: int
) -> None:
    check_answers(described, path, method, mode=GenerationMode.NEGATIVE, examples=examples)
