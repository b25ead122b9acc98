"""Asks for a rendition of a film, and waits until the server has made it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sluice_client.errors import Interrupted, RenditionFailed
from sluice_client.transport import Transport

FIRST_POLL_SECONDS = 0.3
LONGEST_POLL_SECONDS = 2.0
"""Pauses between two looks at the progress grow from the first to the second."""

ProgressOfMaking = Callable[[float], None]
"""Receives how much of a rendition is made, from 0 to 1."""


def make_rendition(
    transport: Transport, video_id: str, height: int, on_progress: ProgressOfMaking
) -> None:
    """Return once the rendition of that height is ready.

    Raises `RenditionFailed` if it cannot be made or is cancelled, `Refused` if the server makes no
    such rendition, `Interrupted` on request; the server then goes on making it.
    """
    found = _look(transport, video_id, height)
    if found.get("state") == "ready":
        return
    path = f"/api/videos/{video_id}/renditions/{height}"
    transport.patiently(lambda: transport.request("POST", path))
    pause_seconds = FIRST_POLL_SECONDS
    while True:
        found = _look(transport, video_id, height)
        if found.get("state") == "ready":
            return
        if found.get("state") != "making":
            raise RenditionFailed(_reason(found, height))
        on_progress(float(found.get("progress") or 0))
        if transport.stop.wait(pause_seconds):
            raise Interrupted(f"Stopped waiting; the server goes on making {height}p.")
        pause_seconds = min(LONGEST_POLL_SECONDS, pause_seconds * 1.5)


def _look(transport: Transport, video_id: str, height: int) -> dict[str, Any]:
    """What the server says about the rendition; empty if it does not list it."""
    video = transport.json("GET", f"/api/videos/{video_id}")
    renditions = (video.get("playback") or {}).get("renditions") or []
    return next((dict(item) for item in renditions if item.get("height") == height), {})


def _reason(rendition: dict[str, Any], height: int) -> str:
    if rendition.get("state") != "failed":
        return f"The server no longer makes {height}p: it was cancelled."
    detail = (rendition.get("problem") or {}).get("detail")
    return f"The server could not make {height}p{f': {detail}' if detail else '.'}"
