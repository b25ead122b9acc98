"""What the servers below ours cost: gunicorn's threads alone, with Flask, and with sendfile."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flask import Flask, Response, jsonify

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse

    App = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]


def plain(_environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
    """What /healthz answers, and nothing around it."""
    body = b'{"status":"ok"}\n'
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    start_response("200 OK", headers)
    return [body]


def with_flask() -> Flask:
    """The same, as a view."""
    app = Flask(__name__)

    @app.get("/healthz")
    def alive() -> Response:
        return jsonify({"status": "ok"})

    return app


def ranged(folder: str) -> App:
    """Sends the range that is asked for of a file in `folder`; looks at nothing else."""

    def app(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        first, last = map(int, environ["HTTP_RANGE"].removeprefix("bytes=").split("-"))
        file = FileIO(folder + environ["PATH_INFO"])  # gunicorn closes it.
        file.seek(first)
        length = last + 1 - first
        start_response("206 Partial Content", [("Content-Length", str(length))])
        body: Iterable[bytes] = environ["wsgi.file_wrapper"](file)
        return body

    return app


@dataclass(frozen=True, slots=True)
class Gunicorn:
    """One worker of gunicorn's own class with eight threads, as ours has, and one of the above."""

    name: str
    app: str

    @property
    def version(self) -> str:
        """The packages'."""
        return f"gunicorn {version('gunicorn')}, Flask {version('flask')}"

    @property
    def needs(self) -> Sequence[Path | None]:
        """Nothing but this interpreter."""
        return []

    def command(self, folder: Path, port: int) -> list[str]:
        """The application may name the folder of the files."""
        app = f"{__name__}:{self.app.format(files=folder / 'files')}"
        words = [sys.executable, "-m", "gunicorn", "--worker-class", "gthread", "--threads", "8"]
        return [*words, "--keep-alive", "75", "--bind", f"127.0.0.1:{port}", app]
