"""The audit log over HTTP."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from app.access import audit
from app.access.audit import AuditAction, without_formula
from app.core.access import LOCAL, Role
from app.http.services import Services
from tests.acting import acting
from tests.web.application import application


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlaskClient]:
    with application(tmp_path_factory.mktemp("audit")) as app:
        yield app.test_client()


def services_of(client: FlaskClient) -> Services:
    services: Services = client.application.extensions["sluice"]
    return services


def uploaded(client: FlaskClient, name: str) -> str:
    answer = client.post("/upload", data={"file": (io.BytesIO(b"film"), name)})
    return str(answer.get_json()["id"])


def asked(client: FlaskClient, wanted: Mapping[str, object]) -> dict[str, Any]:
    page: dict[str, Any] = client.get("/api/audit", query_string=dict(wanted)).get_json()
    return page


def told(client: FlaskClient, **wanted: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = asked(client, wanted)["entries"]
    return entries


def test_renames_and_deletions_are_told(client: FlaskClient) -> None:
    video = uploaded(client, "one.mp4")
    client.patch(f"/api/videos/{video}", json={"filename": "two.mp4"})
    client.delete(f"/api/videos/{video}")
    client.delete(f"/api/videos/{video}")  # 410: nothing was done.
    deleted, renamed = told(client)
    assert (renamed["action"], deleted["action"]) == ("video.renamed", "video.deleted")
    assert renamed["details"] == {"filename": "one.mp4", "renamed_to": "two.mp4"}
    assert deleted["subject"] == f"video:{video}"
    assert (deleted["actor"], deleted["address"]) == ("local", "127.0.0.1")
    assert deleted["project"] == "local"


def test_a_video_deleted_by_its_client_is_told_and_a_cancelled_upload_of_ones_own_is_not(
    client: FlaskClient,
) -> None:
    before = len(told(client, limit="500"))
    tus = {"Tus-Resumable": "1.0.0"}
    video = uploaded(client, "by-tus.mp4")
    assert client.delete(f"/tus/{video}", headers=tus).status_code == 204
    begun = client.post("/api/uploads", json={"name": "own.mp4", "size": 9}).get_json()["id"]
    assert client.delete(f"/api/uploads/{begun}").status_code == 204
    (newest, *_), after = told(client), len(told(client, limit="500"))
    assert newest["subject"] == f"video:{video}"
    assert after == before + 1


def test_it_is_chosen_by_what_who_and_when_and_comes_in_pages(client: FlaskClient) -> None:
    context = services_of(client).context
    for number in range(5):
        caller = replace(LOCAL, name="Ben" if number else "Ana")
        audit.note(context.acting(caller), AuditAction.KEY_MADE, f"key:{number}")
    first = asked(client, {"action": "key.made", "limit": 3})
    rest = {"action": "key.made", "limit": 3, "cursor": first["next"]}
    second = asked(client, rest)
    subjects = [entry["subject"] for page in (first, second) for entry in page["entries"]]
    assert subjects == [f"key:{number}" for number in (4, 3, 2, 1, 0)]
    assert second["next"] is None
    assert [entry["subject"] for entry in told(client, actor="Ana")] == ["key:0"]
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    assert told(client, since=tomorrow) == []
    assert told(client, until=tomorrow, action="key.made")


@pytest.mark.parametrize(
    "query", ["action=nothing", "since=yesterday", "until=", "limit=0", "limit=501", "cursor=x"]
)
def test_bad_parameters_are_refused_and_empty_ones_ignored(client: FlaskClient, query: str) -> None:
    status = client.get(f"/api/audit?{query}").status_code
    assert status == (200 if query.endswith("=") else 400)


def test_the_exports_hold_every_entry(client: FlaskClient) -> None:
    client.delete(f"/api/videos/{uploaded(client, '=1+1, 2.mp4')}")
    context, count = services_of(client).context, len(told(client, limit="500"))
    evil = replace(LOCAL, name="+1+1")
    audit.note(context.acting(evil), AuditAction.SESSION_REFUSED, "@evil")
    lines = client.get("/api/audit/export.jsonl").text.splitlines()
    table = list(csv.DictReader(io.StringIO(client.get("/api/audit/export.csv").text)))
    assert len(lines) == len(table) == count + 1
    assert (table[0]["subject"], table[0]["actor_name"]) == ("'@evil", "'+1+1")
    assert (
        json.loads(lines[1])["details"]["filename"] == json.loads(table[1]["details"])["filename"]
    )
    assert client.get("/api/audit/export.xls").status_code == 404


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠"])
def test_no_cell_is_a_formula(sign: str) -> None:
    assert without_formula(f"{sign}1") == f"'{sign}1"
    assert without_formula(f"1{sign}") == f"1{sign}"


def test_the_page_shows_entries_and_keeps_the_choice(client: FlaskClient) -> None:
    ctx = services_of(client).context.acting(LOCAL)
    for _ in range(51):
        audit.note(ctx, AuditAction.PROJECT_MADE, "<b>", name="<script>")
    page = client.get("/audit?action=project.made&cursor=&ending=x").text
    assert "&lt;script&gt;" in page
    assert "<script>" not in page
    assert re.search(r"\?cursor=\d+&amp;action=project.made\" rel=\"next\"", page)


def test_who_manages_a_project_sees_that_one_and_administrators_all(tmp_path: Path) -> None:
    with application(tmp_path, access="accounts") as app:
        client = app.test_client()
        services = services_of(client)
        ctx = services.context.acting(LOCAL)
        audit.note(ctx, AuditAction.SESSION_BEGAN)
        audit.note(ctx, AuditAction.KEY_MADE, project="other")
        audit.note(ctx, AuditAction.KEY_REVOKED, project="local")

        def answer(role: Role) -> tuple[int, list[str]]:
            keys = services.identity.keys
            _, secret = keys.make(acting(services.context, "local"), name="k", role=role)
            headers = {"Authorization": f"Bearer {secret}"}
            found = client.get("/api/audit", headers=headers)
            return found.status_code, [
                each["action"] for each in found.get_json().get("entries", [])
            ]

        assert answer(Role.MANAGER) == (200, ["key.made", "key.revoked"])
        assert answer(Role.EDITOR) == (403, [])
        assert client.get("/api/audit").status_code == 401
    with application(tmp_path) as app:
        assert len(told(app.test_client())) == 5
        of_project = told(app.test_client(), project="local")
        assert [each["action"] for each in of_project] == ["key.made", "key.made", "key.revoked"]
        of_unknown = app.test_client().get("/api/audit?project=other")
        assert (of_unknown.status_code, of_unknown.get_json()["code"]) == (404, "entry_not_found")
