"""Ends requests whose sender has lost its right: a key revoked, a link closed, a session ended.

A caller is checked when its request begins, but a body may arrive for hours, and a download may
take as long. Each process therefore asks again about these requests, once a second and apart
from them: a chunk pays for none of it. A request that would not be let in any more loses its
connection, as if the network had failed; what has arrived is kept or dropped as after that, and the
client's next request is told why. Whoever revokes something need only write it to the database.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock, Thread
from typing import Any

from app.core.access import Scope
from app.core.errors import UploadError
from app.http.context import SENDING_KEY, Sending
from app.ingest.gunicorn_socket.connection import break_off

LOOK_SECONDS = 1.0
"""How often to ask; with `RECENT_SECONDS` of memory a body ends 3 s after it was revoked."""

log = logging.getLogger(__name__)

Ask = Callable[[], Scope]
"""What the sender of a request may reach now; raises what refuses it."""


@dataclass(frozen=True, slots=True, eq=False)
class _Body:
    environ: dict[str, Any]
    scope: Scope
    ask: Ask
    begun_at: float = field(default_factory=time.monotonic)

    def may_go_on(self) -> bool:
        """Whether its sender still reaches all that it did; a fault of ours is no reason to end."""
        try:
            return self.ask().includes(self.scope)
        except UploadError as error:
            return error.retryable
        except Exception:  # It must not keep the others from being asked about.
            log.exception("a request of %s cannot be checked", self.scope.sender)
            return True


class _GuardedSending:
    """Counts what is sent, and has it guarded meanwhile."""

    def __init__(self, under_way: UnderWay, body: _Body, counted: Sending | None) -> None:
        self._under_way = under_way
        self._body = body
        self._counted = counted

    def began(self) -> None:
        if self._counted is not None:
            self._counted.began()
        self._under_way.guard(id(self), self._body)

    def ended(self, count: int) -> None:
        self._under_way.forget(id(self))
        if self._counted is not None:
            self._counted.ended(count)


class UnderWay:
    """The uploads and downloads of a process."""

    def __init__(self) -> None:
        self._bodies: dict[int, _Body] = {}
        self._changing = Lock()
        self._watching: Thread | None = None

    def begin(self, environ: dict[str, Any], scope: Scope, ask: Ask) -> None:
        """A request with that scope was let in; `ask` is called from another thread."""
        self.guard(id(environ), _Body(environ, scope, ask))

    def end(self, environ: dict[str, Any]) -> None:
        """The application is done with the request; its connection may get another one."""
        self.forget(id(environ))

    def begin_download(self, environ: dict[str, Any], scope: Scope, ask: Ask) -> None:
        """As `begin`, for what is sent after the application has returned."""
        body, counted = _Body(environ, scope, ask), environ.get(SENDING_KEY)
        environ[SENDING_KEY] = _GuardedSending(self, body, counted)

    def guard(self, key: int, body: _Body) -> None:
        """Ask about a body from now on, under any key of its own."""
        with self._changing:
            self._bodies[key] = body
            if self._watching is None:  # Not in a constructor: gunicorn forks after that.
                self._watching = Thread(target=self._watch, name="revocation", daemon=True)
                self._watching.start()

    def forget(self, key: int) -> None:
        """The body has ended."""
        if self._bodies:
            with self._changing:
                self._bodies.pop(key, None)

    def look(self, lasting_seconds: float = LOOK_SECONDS) -> None:
        """Ask about every request that has lasted so long, and end those refused."""
        latest = time.monotonic() - lasting_seconds
        with self._changing:
            lasting = [each for each in self._bodies.items() if each[1].begun_at <= latest]
        for key, body in lasting:
            if not body.may_go_on():
                self._end_early(key, body)

    def _end_early(self, key: int, body: _Body) -> None:
        with self._changing:  # Its connection may belong to the next request otherwise.
            if self._bodies.get(key) is body:
                log.info("ended a request of %s, who may no longer", body.scope.sender)
                break_off(body.environ)

    def _watch(self) -> None:
        while True:
            time.sleep(LOOK_SECONDS)
            try:
                self.look()
            except Exception:  # Without this thread nothing would ever be revoked again.
                log.exception("requests under way cannot be checked")
