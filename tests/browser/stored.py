"""What the server has stored, as it sends it back."""

from __future__ import annotations

import hashlib
from typing import Any

import requests

from tests.live_server import Server

READ_BYTES = 1024 * 1024


def videos_of(server: Server) -> list[dict[str, Any]]:
    """The whole library, newest first."""
    videos: list[dict[str, Any]] = []
    parameters: dict[str, str] | None = {"limit": "200"}
    while parameters:
        page = server.get("/api/videos", params=parameters).json()
        videos.extend(page["videos"])
        parameters = {"limit": "200", "cursor": page["next"]} if page["next"] else None
    return videos


def digests_of(server: Server) -> dict[str, str]:
    """SHA-256 of the bytes of each video, by its name."""
    with requests.Session() as session:
        return {
            video["filename"]: _digest(session, f"{server.url}/media/{video['id']}")
            for video in videos_of(server)
        }


def _digest(session: requests.Session, url: str) -> str:
    digest = hashlib.sha256()
    with session.get(url, stream=True, timeout=60) as response:
        response.raise_for_status()
        for piece in response.iter_content(READ_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def open_uploads_of(server: Server) -> list[dict[str, Any]]:
    """The unfinished uploads on the server."""
    uploads: list[dict[str, Any]] = server.get("/api/uploads").json()["uploads"]
    return uploads
