"""A body of which nothing may be kept unless all of it arrives."""

from __future__ import annotations

from app.ingest.source import BodySource, Watch, no_watch


class AllOrNothing:
    """A source that keeps its reader from recording bytes before the last one.

    For clients which take an offset inside of a chunk for its end.
    """

    is_verified_at_end = True

    def __init__(self, source: BodySource) -> None:
        self._source = source

    @property
    def remaining(self) -> int | None:
        """Bytes still to come, or None."""
        return self._source.remaining

    def readinto(self, buffer: memoryview, /) -> int | None:
        """See `BodySource.readinto`."""
        return self._source.readinto(buffer)

    def finish(self, watch: Watch = no_watch, /) -> None:
        """See `BodySource.finish`."""
        self._source.finish(watch)
