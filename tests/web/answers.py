"""Requests to the API, kept with their answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from tests.dropzone_client import form_headers


@dataclass(frozen=True, slots=True)
class Answer:
    """A real answer, and the operation that gave it."""

    method: str
    path: str
    response: TestResponse

    @property
    def status(self) -> int:
        return self.response.status_code

    def json(self) -> Any:
        return self.response.get_json(force=True)


@dataclass
class Conversation:
    """The requests so far, with their answers."""

    client: FlaskClient
    _answers: list[Answer] = field(default_factory=list)

    def ask(self, method: str, path: str, upload_id: str = "", **request: Any) -> Any:
        """Send a request; the JSON of its answer, if it is JSON.

        `within` are the parts of the path that are not of an upload.
        """
        height, more = request.pop("height", 720), request.pop("within", {})
        url = path.format(upload_id=upload_id, height=height, **more)
        response = self.client.open(url, method=method, buffered=True, **request)
        self._answers.append(Answer(method, path, response))
        return response.get_json(silent=True)

    def send(self, body: bytes, path: str = "/upload", **headers: str) -> Any:
        """Post a form."""
        return self.ask("post", path, data=body, headers={**form_headers(), **headers})

    def answers(self, method: str, path: str, status: int) -> list[Answer]:
        """The answers of one operation with that status."""
        wanted = (method, path, status)
        return [answer for answer in self._answers if _key(answer) == wanted]

    def all(self) -> list[Answer]:
        """Every answer so far."""
        return list(self._answers)


def _key(answer: Answer) -> tuple[str, str, int]:
    return answer.method, answer.path, answer.status
