"""Reads a multipart body part by part, directly from its source."""

from __future__ import annotations

from collections.abc import Iterator

from app.core.errors import ChunkMismatch, MalformedBody
from app.ingest.copy import BodyLimits, Pace, discard
from app.ingest.multipart import (
    NEED_DATA,
    End,
    Event,
    Field,
    FileBegin,
    FileData,
    FileEnd,
    MultipartScanner,
)
from app.ingest.source import FEW_BYTES, BodySource, SpliceSource, Watch, no_watch

FIELDS_READ_BYTES = FEW_BYTES
"""Size of a read between payloads; small, so that it returns as soon as the fields have arrived.
Payload of known length that it happens to read is copied three times, the rest once."""

READ_BYTES = 256 * 1024
"""Size of a read while scanning a payload. Payloads of known length are read in larger blocks, by
the code that copies them."""


class FormReader:
    """One pass over the parts of a form."""

    def __init__(self, body: BodySource, boundary: bytes, limits: BodyLimits) -> None:
        self._body = body
        self._limits = limits
        self._scanner = MultipartScanner(boundary)
        self._buffer = memoryview(bytearray(FIELDS_READ_BYTES))
        self._read_bytes = FIELDS_READ_BYTES
        self._closing_bytes = len(b"\r\n--" + boundary + b"--")

    @property
    def remaining(self) -> int | None:
        """Bytes of the body that have not been read, if that is known."""
        return self._body.remaining

    def parts(self) -> Iterator[Field | FilePart]:
        """Yields fields with their values, and files; unread bytes of a file are skipped."""
        while not isinstance(event := self._next_event(), End):
            if isinstance(event, Field):
                yield event
            elif isinstance(event, FileBegin):
                part = FilePart(self, event)
                yield part
                part.pass_over(self._limits)
        discard(self._body, limits=self._limits, watch=no_watch)

    def next_event(self) -> Event:
        """The scanner's next event, or NEED_DATA if one read was not enough."""
        event = self._scan()
        if event is NEED_DATA:
            self._read()
            event = self._scan()
        return event

    def take_payload(self, length: int) -> _ExactPayload:
        """The next `length` bytes, bypassing the scanner; `ChunkMismatch` if the body has fewer."""
        head = self._scanner.take_payload(length)
        remaining = self._body.remaining
        if remaining is None:
            return _ExactPayload(self, self._body, head, length, is_certain=False)
        after = remaining - (length - len(head))
        if len(head) < length and after < self._closing_bytes:
            raise ChunkMismatch(f"The file part has fewer than {length} bytes.")
        is_certain = len(head) < length and after == self._closing_bytes + len(b"\r\n")
        return _ExactPayload(self, self._body, head, length, is_certain=is_certain)

    def scan_payload(self) -> BodySource:
        """The bytes up to the next delimiter."""
        return _ScannedPayload(self)

    def end_payload(self, watch: Watch) -> None:
        """Read the delimiter that ends a file part; raises `MalformedBody` if it is missing."""
        if not isinstance(self._next_event(watch), FileEnd):
            raise MalformedBody("The file part does not end where it should.")

    def _next_event(self, watch: Watch = no_watch) -> Event:
        pace = Pace(self._limits)
        while (event := self._scan()) is NEED_DATA:
            pace.saw(self._read())
            watch()
        return event

    def _scan(self) -> Event:
        event = self._scanner.next_event()
        if isinstance(event, FileData):
            self._read_bytes = READ_BYTES
        elif isinstance(event, FileEnd):
            self._read_bytes = FIELDS_READ_BYTES
        return event

    def _read(self) -> int:
        if len(self._buffer) < self._read_bytes:
            self._buffer = memoryview(bytearray(self._read_bytes))
        count = self._body.readinto(self._buffer[: self._read_bytes])
        if count == 0:
            self._scanner.receive_end()
        self._scanner.receive_data(self._buffer[: count or 0])
        return count or 0


class FilePart:
    """A file in a form, read by one of two sources; unread bytes are skipped."""

    def __init__(self, reader: FormReader, begin: FileBegin) -> None:
        self._reader = reader
        self.name = begin.name
        self.filename = begin.filename
        self._exact: _ExactPayload | None = None

    def exactly(self, length: int) -> BodySource:
        """The payload of the length stated in the fields; it is not scanned."""
        self._exact = self._reader.take_payload(length)
        return self._exact

    def whole(self) -> BodySource:
        """The payload, scanned for the delimiter that ends it."""
        return self._reader.scan_payload()

    def pass_over(self, limits: BodyLimits) -> None:
        """Skip the rest of a payload of given length; the scanner skips the others."""
        if self._exact is not None and not self._exact.has_ended:
            discard(self._exact, limits=limits, watch=no_watch)
            self._exact.finish()


class _ExactPayload(SpliceSource):
    """A payload whose length was stated in the fields.

    If the body is longer than this file and the closing delimiter, that length may be wrong: then
    nothing may be kept before the delimiter has been seen.
    """

    def __init__(
        self,
        reader: FormReader,
        body: BodySource,
        head: memoryview,
        length: int,
        *,
        is_certain: bool,
    ) -> None:
        self._reader = reader
        self._body = body
        self._splicing = body if isinstance(body, SpliceSource) else None
        self._head = head
        self._remaining = length
        self.is_verified_at_end = not is_certain
        self.has_ended = False

    @property
    def remaining(self) -> int | None:
        return self._remaining

    def readinto(self, buffer: memoryview, /) -> int | None:
        buffer = buffer[: self._remaining]
        if self._head:
            count: int | None = min(len(buffer), len(self._head))
            buffer[:count] = self._head[:count]
            self._head = self._head[count:]
        else:
            count = self._body.readinto(buffer) if buffer else 0
        self._remaining -= count or 0
        return count

    @property
    def can_splice(self) -> bool:
        return not self._head and self._splicing is not None and self._splicing.can_splice

    def wait(self, count: int) -> bool:
        return self._body_to_splice.wait(min(count, self._remaining))

    def splice_into(self, pipe: int, count: int) -> int:
        moved = self._body_to_splice.splice_into(pipe, min(count, self._remaining))
        self._remaining -= moved
        return moved

    @property
    def _body_to_splice(self) -> SpliceSource:
        if self._splicing is None:
            raise TypeError("the body of this form cannot be spliced")
        return self._splicing

    def finish(self, watch: Watch = no_watch, /) -> None:
        self._reader.end_payload(watch)
        self.has_ended = True


class _ScannedPayload:
    is_verified_at_end = False
    remaining = None

    def __init__(self, reader: FormReader) -> None:
        self._reader = reader
        self._block = memoryview(b"")
        self._has_ended = False

    def readinto(self, buffer: memoryview, /) -> int | None:
        if not self._block and not self._has_ended:
            event = self._reader.next_event()
            if event is NEED_DATA:
                return None
            if isinstance(event, FileData):
                self._block = event.data
            else:
                self._has_ended = True
        count = min(len(buffer), len(self._block))
        buffer[:count] = self._block[:count]
        self._block = self._block[count:]
        return count

    def finish(self, _watch: Watch = no_watch, /) -> None:
        """Does nothing: the delimiter that ended the payload has been read."""
