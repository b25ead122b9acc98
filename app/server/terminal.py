"""Messages to a person at a terminal when the server starts and stops."""

from __future__ import annotations

import sys

from app.settings import Settings

_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def greet(settings: Settings) -> None:
    """Say where the server is, and how to stop it."""
    _say(
        f"\n  Sluice is ready: open {address(settings)}\n\n"
        f"  uploads in progress   {settings.staging_dir}\n"
        f"  finished files        {settings.library_dir}\n\n"
        "  Press Ctrl-C to stop.\n\n"
    )


def say_stopping(settings: Settings) -> None:
    """Say that the server stops, and how long that may take."""
    _say(f"\n  Stopping. Running requests have up to {settings.graceful_seconds:g} s to finish.\n")


def say_goodbye() -> None:
    """Say that the server has stopped."""
    _say("  Sluice has stopped.\n")


def address(settings: Settings) -> str:
    """A URL that opens the server on this machine."""
    host = settings.host.strip("[]")
    host = _ANY_ADDRESS.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"


def _say(text: str) -> None:
    if sys.stdout.isatty():
        sys.stdout.write(text)
        sys.stdout.flush()
