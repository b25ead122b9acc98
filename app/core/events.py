"""Events that other parts of the program can subscribe to."""

from __future__ import annotations

from dataclasses import dataclass

from app.core.upload import Upload


@dataclass(frozen=True, slots=True)
class UploadCompleted:
    """Sent once per upload, by the process that published it."""

    upload: Upload
