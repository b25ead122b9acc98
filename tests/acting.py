"""Contexts of requests, for tests that call use cases."""

from __future__ import annotations

from app.core.access import Caller, CallerKind, Role, Scope
from app.db.context import Context, RequestContext


def acting(context: Context, project: str, *, by: str = "1" * 32) -> RequestContext:
    """The context of a person who manages the project; `by` is the person's id."""
    roles = {project: Role.MANAGER}
    caller = Caller(kind=CallerKind.PERSON, id=by, name="Ann", project=project, roles=roles)
    return context.acting(caller, scope=Scope(project))
