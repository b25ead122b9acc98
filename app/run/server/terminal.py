"""Messages to a person at a terminal when the server starts and stops."""

from __future__ import annotations

import sys

from app.settings import Settings
from app.storage.folder_owner import shown


def greet(settings: Settings) -> None:
    """Print the server's URL, and how to stop it."""
    _say(
        f"\n  Sluice is ready: open {settings.own_url}\n\n"
        f"  uploads in progress   {shown(settings.staging_dir)}\n"
        f"  finished files        {shown(settings.library_dir)}\n\n"
        "  Press Ctrl-C to stop.\n\n"
    )


def say_stopping(settings: Settings) -> None:
    """Print that the server is stopping, and how long that may take."""
    drain = settings.drain_seconds
    when = f" in {drain:g} s, once load balancers have noticed; Ctrl-C stops now" if drain else ""
    seconds = settings.graceful_seconds
    _say(f"\n  Stopping{when}. Running requests have up to {seconds:g} s to finish.\n")


def say_goodbye() -> None:
    """Print that the server has stopped."""
    _say("  Sluice has stopped.\n")


def _say(text: str) -> None:
    if sys.stdout.isatty():
        sys.stdout.write(text)
        sys.stdout.flush()
