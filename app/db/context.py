"""What a use case is given: one `Context` a process, one `RequestContext` a request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from app.core.access import EVERYTHING, Caller, Scope
from app.db.engine import Database
from app.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What work outside requests needs; made once, by the composition root."""

    database: Database
    clock: Callable[[], datetime]
    """This machine's clock. Uploads and videos use the one that nodes share."""
    new_id: Callable[[], str]
    settings: Settings

    def acting(
        self, caller: Caller, *, scope: Scope = EVERYTHING, address: str = ""
    ) -> RequestContext:
        """The context of what `caller` does outside a request, as the operator's commands do."""
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
    """What a use case needs of a request: who sends it, what that reaches, and from where."""

    caller: Caller
    scope: Scope
    address: str
    """The client's IP address; empty if it is not known, as for the operator's commands."""

    @property
    def project(self) -> str:
        """The project that new things belong to."""
        return self.scope.target()
