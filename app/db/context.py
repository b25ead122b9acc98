"""Contexts passed to use cases: one `Context` per process, one `RequestContext` per request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from app.core.access import EVERYTHING, Caller, Scope
from app.db.engine import Database
from app.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Services for work outside requests; created once, by the composition root."""

    database: Database
    clock: Callable[[], datetime]
    """This machine's clock; for uploads and videos, the clock that nodes share."""
    new_id: Callable[[], str]
    settings: Settings

    def acting(
        self, caller: Caller, *, scope: Scope = EVERYTHING, address: str = ""
    ) -> RequestContext:
        """Returns a context for `caller` outside a request, such as an operator's command."""
        return RequestContext(
            database=self.database,
            clock=self.clock,
            new_id=self.new_id,
            settings=self.settings,
            caller=caller,
            scope=scope,
            address=address,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext(Context):
    """What a use case needs from a request: its sender, the sender's scope, and its IP address."""

    caller: Caller
    scope: Scope
    address: str
    """The client's IP address; empty if unknown, as for the operator's commands."""

    @property
    def project(self) -> str:
        """The project that new objects belong to."""
        return self.scope.target()
