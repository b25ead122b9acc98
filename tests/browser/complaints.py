"""What a browser complains about: errors of scripts, refused content, failed requests."""

from __future__ import annotations

from playwright.sync_api import BrowserContext, ConsoleMessage, WebError

FAILED_REQUEST = "Failed to load resource"
"""How Chromium begins its line for a request that failed or was refused."""


class Complaints:
    """Collected from every page of a test; the test says which ones it provokes."""

    def __init__(self) -> None:
        self._found: list[str] = []
        self._allowed: list[str] = []

    def watch(self, context: BrowserContext) -> None:
        """Collect from all pages of a context."""
        context.on("console", self._note_message)
        context.on("weberror", self._note_uncaught)

    def allow(self, beginning: str) -> None:
        """Expect complaints that begin like this."""
        self._allowed.append(beginning)

    def allow_failed_requests(self) -> None:
        """Expect requests to fail, as in every test that takes the server or the line away."""
        self.allow(FAILED_REQUEST)

    @property
    def unexpected(self) -> list[str]:
        """All that the test did not provoke."""
        return [text for text in self._found if not text.startswith(tuple(self._allowed))]

    def _note_uncaught(self, event: WebError) -> None:
        self._found.append(f"uncaught: {event.error}")

    def _note_message(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning", "assert"}:
            self._found.append(message.text)
