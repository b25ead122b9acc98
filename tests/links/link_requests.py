"""Members and strangers of a server in this process, and what they send."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from flask.testing import FlaskClient
from werkzeug.test import Client, TestResponse

TUS = {"Tus-Resumable": "1.0.0"}
HTML = {"Accept": "text/html"}

MakeLink = Callable[..., dict[str, Any]]


def told(answer: TestResponse) -> Any:
    """The JSON of an answer."""
    return answer.json


def send(client: FlaskClient, link: dict[str, Any], name: str, length: int) -> TestResponse:
    """Send a whole file as curl does."""
    file = (io.BytesIO(bytes(length)), name)
    return client.post(f"{link['path']}/upload", data={"file": file})


def sent(client: FlaskClient, link: dict[str, Any], name: str, length: int) -> str:
    """The id of a file that was sent as `send` does."""
    answer = send(client, link, name, length)
    assert answer.status_code == 200, answer.text
    upload_id: str = told(answer)["id"]
    return upload_id


def create(client: Client, link: dict[str, Any], length: int, name: str = "") -> TestResponse:
    """Create an upload as tus clients do."""
    headers = {**TUS, "Upload-Length": str(length)}
    if name:
        headers["Upload-Metadata"] = f"filename {name}"
    return client.post(f"{link['path']}/tus/", headers=headers)


def counted(member: FlaskClient, link: dict[str, Any]) -> tuple[int, int]:
    """The files and bytes that the link has taken."""
    found = told(member.get(f"/api/upload-links/{link['id']}"))
    return found["files"], found["bytes"]


def code(answer: TestResponse) -> object:
    return (answer.status_code, told(answer) and told(answer)["code"])
