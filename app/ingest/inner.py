"""Requests that arrive inside another one, as messages of its connection."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

INNER_KEY = "sluice.inner_requests"
"""Key of the WSGI environment for the `InnerRequests` of a connection that becomes another's."""


@dataclass(frozen=True, slots=True)
class InnerRequest:
    """A POST by the sender of the outer request: the same cookies, link, origin and address.

    `path` is below whatever link the outer one was.
    """

    path: str
    query: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InnerAnswer:
    """`retry_after` is the header's, if there is one; `body` is empty for none."""

    status: int
    retry_after: str | None
    body: bytes


class InnerRequests(Protocol):
    """Runs them as if each had come by itself."""

    @property
    def is_ending(self) -> bool:
        """Whether the server takes no more of them."""
        ...

    def run(self, inner: InnerRequest, /) -> InnerAnswer:
        """The answer to one; an exception of the application never gets here."""
        ...
