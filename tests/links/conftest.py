"""A server in this process, who runs it, and a stranger."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from tests.links.link_requests import MakeLink, told
from tests.web.application import application


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, database_url: str | None) -> Iterator[Flask]:
    with application(tmp_path_factory.mktemp("app"), database_url=database_url) as app:
        yield app


@pytest.fixture
def member(app: Flask) -> FlaskClient:
    """Whoever runs the server."""
    return app.test_client()


@pytest.fixture
def stranger(app: Flask) -> FlaskClient:
    return app.test_client()


@pytest.fixture
def make_link(member: FlaskClient) -> MakeLink:
    def make(**terms: object) -> dict[str, Any]:
        answer = member.post("/api/upload-links", json=terms)
        assert answer.status_code == 201, answer.json
        link: dict[str, Any] = told(answer)
        return {**link, "path": link["url"].removeprefix("http://localhost")}

    return make
