"""A browser's complaints: script errors, blocked content, failed requests."""

from __future__ import annotations

from playwright.sync_api import BrowserContext, ConsoleMessage, WebError

FAILED_REQUEST = "Failed to load resource"
"""The start of Chromium's line about a failed or refused request."""


class Complaints:
    """Complaints from every page of a test; the test names those it expects."""

    def __init__(self) -> None:
        self._found: list[str] = []
        self._allowed: list[str] = []

    def watch(self, context: BrowserContext) -> None:
        """Collect the complaints of all pages of a context."""
        context.on("console", self._note_message)
        context.on("weberror", self._note_uncaught)

    def allow(self, beginning: str) -> None:
        """Expect complaints that start like this."""
        self._allowed.append(beginning)

    def allow_failed_requests(self) -> None:
        """Expect requests to fail, as in every test that takes the server or the network away."""
        self.allow(FAILED_REQUEST)

    @property
    def unexpected(self) -> list[str]:
        """The complaints that the test did not expect."""
        return [text for text in self._found if not text.startswith(tuple(self._allowed))]

    def _note_uncaught(self, event: WebError) -> None:
        self._found.append(f"uncaught: {event.error}")

    def _note_message(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning", "assert"}:
            self._found.append(message.text)
