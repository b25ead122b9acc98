"""What is waited for, said once and not at every try."""

from __future__ import annotations

import time
from collections.abc import Callable

from sluice_client.cli.outcome import json_line
from sluice_client.cli.text import plain

REPEAT_SECONDS = 60.0
"""The same notice is repeated after this long; six connections often fail at the same moment."""


class Notices:
    """Writes notices of waiting as lines for people, or as JSON events."""

    def __init__(self, write: Callable[[str], None], *, as_json: bool = False) -> None:
        self._write = write
        self._as_json = as_json
        self._said: dict[str, tuple[str, float]] = {}

    def __call__(self, text: str, name: str = "") -> None:
        """Say what the transfer `name`, or the command itself, waits for."""
        now = time.monotonic()
        last, said_at = self._said.get(name, ("", now))
        if text == last and now - said_at < REPEAT_SECONDS:
            return
        self._said[name] = (text, now)
        self._write(self._event(text, name) if self._as_json else self._line(text, name))

    def _event(self, text: str, name: str) -> str:
        return json_line({"event": "waiting", "name": name or None, "detail": text})

    def _line(self, text: str, name: str) -> str:
        return plain(f"{name}: {text}" if name else text) + " Ctrl-C stops."
