"""Events that other parts of the program can listen to."""

from __future__ import annotations

from dataclasses import dataclass

from app.core.upload import Upload


@dataclass(frozen=True, slots=True)
class UploadCompleted:
    """Sent once for each upload, by whoever published it."""

    upload: Upload
