"""The mark in a bucket that says whose files these are."""

from __future__ import annotations

from app.core.ranges import ByteRange
from app.storage.s3.bucket import Bucket

MARK = ".sluice-library"
"""The name of the object. Stores that keep files cannot have an object where another library's
prefix is a folder, so it is a name that nobody gives a prefix."""

MARK_BYTES = 64
"""What is read of it. An object of that name that is not ours may have any length."""


class BucketMark:
    """A short text in an object; raises the bucket's errors."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def read(self) -> str | None:
        """The text; None if there is no such object."""
        self._bucket.probe()  # Without a bucket there would be no object either.
        known = self._bucket.head(MARK)
        if known is None:
            return None
        span = ByteRange(0, min(known.length, MARK_BYTES))
        try:
            with self._bucket.open(MARK, span, known.length) as opened:
                return (opened.read(span.length) or b"").decode("ascii", "replace")
        except FileNotFoundError:  # It was removed this moment.
            return None

    def write(self, text: str) -> None:
        """Replace it."""
        self._bucket.put_object(MARK, text.encode("ascii"), content_type="text/plain")
