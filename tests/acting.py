"""Contexts of requests, for tests that call use cases."""

from __future__ import annotations

from app.core.access import Caller, CallerKind, Role, Scope
from app.db.context import Context, RequestContext


def acting(context: Context, project: str, *, by: str = "") -> RequestContext:
    """The context of who manages the project: "person:ID", "key:ID" or, if empty, the operator."""
    kind, _, maker = by.rpartition(":")
    caller = Caller(
        kind=CallerKind(kind or "local"),
        id=maker,
        name="Ann",
        project=project,
        roles={project: Role.MANAGER},
    )
    return context.acting(caller, scope=Scope(project))
