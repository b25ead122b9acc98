"""What other parts of the program may want to hear of."""

from __future__ import annotations

from dataclasses import dataclass

from app.domain.upload import Upload


@dataclass(frozen=True, slots=True)
class UploadCompleted:
    """Raised once for an upload, by whoever published it."""

    upload: Upload
