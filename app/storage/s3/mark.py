"""The mark in a bucket that identifies the library its files belong to."""

from __future__ import annotations

from app.core.ranges import ByteRange
from app.storage.s3.bucket import Bucket

MARK = ".sluice-library"
"""The name of the object. Stores that keep objects as files cannot have an object where another
library's prefix is a folder, so this is a name that no library uses as its prefix."""

MARK_BYTES = 64
"""Most bytes read of the mark. A foreign object with this name may have any length."""


class BucketMark:
    """Stores a short text in an object; raises the bucket's errors."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def read(self) -> str | None:
        """Returns the text; None if there is no such object."""
        self._bucket.probe()  # A missing bucket must not look like a missing object.
        known = self._bucket.head(MARK)
        if known is None:
            return None
        span = ByteRange(0, min(known.length, MARK_BYTES))
        try:
            with self._bucket.open(MARK, span, known.length) as opened:
                return (opened.read(span.length) or b"").decode("ascii", "replace")
        except FileNotFoundError:  # It was removed just now.
            return None

    def write(self, text: str) -> None:
        """Replace the text."""
        self._bucket.put_object(MARK, text.encode("ascii"), content_type="text/plain")
