"""Is the server alive; can it take uploads."""

from __future__ import annotations

from dataclasses import asdict

from flask import Blueprint, Response, jsonify

from app.http.context import current_owner, current_services

blueprint = Blueprint("health", __name__)


@blueprint.get("/healthz")
def alive() -> Response:
    """The process answers."""
    return jsonify({"status": "ok"})


@blueprint.get("/readyz")
def ready() -> tuple[Response, int]:
    """Whether uploads can be taken, and what is wrong with the folders where they cannot."""
    services = current_services()
    services.uploads.active(current_owner(), 1)
    problems = services.store.problems()
    is_ready = not any(problem.is_fatal for problem in problems)
    document = {
        "status": "ready" if is_ready else "not ready",
        "problems": [asdict(problem) for problem in problems],
    }
    return jsonify(document), 200 if is_ready else 503
