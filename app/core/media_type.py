"""The content type of a stored file. Never what its uploader claimed."""

from __future__ import annotations

from pathlib import PurePosixPath

PLAYABLE = {
    "mp4": "video/mp4",
    "m4v": "video/mp4",
    "mov": "video/quicktime",
    "webm": "video/webm",
    "mkv": "video/x-matroska",
    "ogv": "video/ogg",
    "mp3": "audio/mpeg",
    "m4a": "audio/mp4",
    "ogg": "audio/ogg",
    "oga": "audio/ogg",
    "opus": "audio/ogg",
    "flac": "audio/flac",
    "wav": "audio/wav",
}
"""Types a browser shows in a player and nothing else: none of them can run as a page. HTML, SVG,
PDF and anything else not listed is served as a download."""

OPAQUE = "application/octet-stream"


def media_type(filename: str) -> str:
    """The Content-Type for a file of that name."""
    extension = PurePosixPath(filename).suffix.lower().removeprefix(".")
    return PLAYABLE.get(extension, OPAQUE)
