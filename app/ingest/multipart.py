"""Streaming scanner for multipart/form-data: bytes go in, events come out, no I/O.

Small fields become values; file payloads pass through as slices of what was received, or bypass
the scanner altogether if their length is known (`MultipartScanner.take_payload`).
Sources: RFC 7578 (form-data), RFC 2046 section 5.1 (delimiters), HTML (how names are escaped).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Literal

from app.core.errors import MalformedBody
from app.ingest.boundary_reader import BoundaryReader
from app.ingest.part_headers import PartHeaders, decode_utf8, parse_parameters, parse_part_headers

# Beyond any of these the body is refused as malformed.
MAX_PREAMBLE_BYTES = 8 * 1024
MAX_HEADER_BYTES = 8 * 1024  # of one part
MAX_FIELD_BYTES = 64 * 1024  # of one value
MAX_FIELDS = 1000  # in one body; files are not counted, the caller sees each one begin
MAX_ALL_FIELDS_BYTES = 1024 * 1024  # names and values of one body: callers keep them in memory

# Added to both limits for each named file, for the fields before it.
FIELDS_OF_A_FILE = 2
FIELD_BYTES_OF_A_FILE = 1024

# RFC 2046, section 5.1.1, allows 70 characters; Werkzeug's test client sends up to 73.
_BOUNDARY = re.compile(r"[0-9A-Za-z'()+_,\-./:=? ]{0,99}[0-9A-Za-z'()+_,\-./:=?]")


@dataclass(frozen=True, slots=True)
class Field:
    """A whole small form field."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class FileBegin:
    """A file part begins; `filename` is what the client claims, empty when none was chosen."""

    name: str
    filename: str
    content_type: str | None


@dataclass(frozen=True, slots=True)
class FileData:
    """The next bytes of the file: a view, valid until the received buffer is used again."""

    data: memoryview


@dataclass(frozen=True, slots=True)
class FileEnd:
    """The file part is whole: its delimiter was seen."""


@dataclass(frozen=True, slots=True)
class End:
    """The closing delimiter was seen; whatever follows is ignored."""


class _NeedData(Enum):
    NEED_DATA = auto()


NEED_DATA: Final = _NeedData.NEED_DATA
Event = Field | FileBegin | FileData | FileEnd | End | Literal[_NeedData.NEED_DATA]


class _State(Enum):
    PREAMBLE = auto()  # -> HEADERS
    HEADERS = auto()  # -> FIELD, FILE_START, ENDED
    FIELD = auto()  # -> HEADERS
    FILE_START = auto()  # -> FILE, TAKEN
    FILE = auto()  # -> HEADERS
    TAKEN = auto()  # -> HEADERS
    ENDED = auto()
    FAILED = auto()  # from anywhere but ENDED


class MultipartScanner:
    """Turns a body, fed in pieces of any size, into events.

    Feed one piece, then take events up to NEED_DATA, then feed the next; NEED_DATA also means
    that nothing refers to the fed buffer any more. `next_event` raises MalformedBody.
    """

    def __init__(self, boundary: bytes) -> None:
        self._reader = BoundaryReader(boundary)
        self._state = _State.PREAMBLE
        self._gathered = bytearray()
        self._skipped_bytes = 0
        self._field_name = ""
        self._fields_left = MAX_FIELDS
        self._field_bytes_left = MAX_ALL_FIELDS_BYTES
        self._is_transport_ended = False

    def receive_data(self, data: bytes | bytearray | memoryview) -> None:
        """Feed the next piece; the caller leaves it unchanged until NEED_DATA."""
        if self._state is _State.ENDED:
            return
        if self._reader.has_unread:
            raise RuntimeError("take the events up to NEED_DATA before feeding more")
        self._reader.feed(data)

    def receive_end(self) -> None:
        """Note that the transport has ended: nothing more will be fed."""
        self._is_transport_ended = True

    def next_event(self) -> Event:
        """The next event; an End repeats forever, and so does a MalformedBody."""
        try:
            while (event := self._step()) is None:
                pass
            if event is NEED_DATA:
                self._demand_more()
        except MalformedBody:
            self._state = _State.FAILED
            raise
        return event

    def take_payload(self, length: int) -> memoryview:
        """After FileBegin: let `length` payload bytes bypass the scanner, whatever they contain.

        Returns those that were received already. The caller reads the rest, exactly
        `length - len(taken)` bytes, from the transport itself, then feeds what comes after. The
        next event is FileEnd, or MalformedBody if no delimiter follows right there.
        """
        if self._state is not _State.FILE_START:
            raise RuntimeError("a payload can be taken only right after FileBegin")
        if length < 0:
            raise ValueError("the length of a payload cannot be negative")
        taken = self._reader.peek(length)
        self._reader.skip(len(taken))
        self._state = _State.TAKEN
        return taken

    def _step(self) -> Event | None:
        match self._state:
            case _State.PREAMBLE:
                return self._skip_preamble()
            case _State.HEADERS:
                return self._read_headers()
            case _State.FIELD:
                return self._read_field()
            case _State.FILE_START | _State.FILE:
                return self._read_file()
            case _State.TAKEN:
                return self._read_end_of_taken()
            case _State.ENDED:
                return End()
            case _State.FAILED:
                raise MalformedBody("The body was refused before.")

    def _demand_more(self) -> None:
        self._reader.release()
        if self._is_transport_ended:
            raise MalformedBody("The body ends before its closing boundary.")

    def _skip_preamble(self) -> Event | None:
        skipped = self._reader.read_payload()
        if skipped is None:
            return NEED_DATA
        if not skipped:
            self._state = _State.HEADERS
        self._skipped_bytes += len(skipped)
        if self._skipped_bytes > MAX_PREAMBLE_BYTES:
            raise MalformedBody("The body does not begin with its boundary.")
        return None

    def _read_headers(self) -> Event | None:
        # From the boundary to the empty line after the headers, or to the two closing hyphens.
        known = len(self._gathered)
        piece = self._reader.peek(MAX_HEADER_BYTES - known)
        self._gathered += piece
        if self._gathered.startswith(b"--"):
            self._reader.release()
            self._state = _State.ENDED
            return End()
        end = self._gathered.find(b"\r\n\r\n", max(0, known - 3))
        if end >= 0:
            self._reader.skip(end + 4 - known)
            return self._begin_part(parse_part_headers(self._take_gathered()[:end]))
        self._reader.skip(len(piece))
        if len(self._gathered) == MAX_HEADER_BYTES:
            raise MalformedBody("The headers of a part are too long.")
        return NEED_DATA

    def _begin_part(self, part: PartHeaders) -> Event | None:
        if part.filename is not None:
            self._state = _State.FILE_START
            if part.filename:
                self._fields_left += FIELDS_OF_A_FILE
                self._field_bytes_left += FIELD_BYTES_OF_A_FILE
            return FileBegin(part.name, part.filename, part.content_type)
        self._fields_left -= 1
        if self._fields_left < 0:
            raise MalformedBody("The form has too many fields.")
        self._field_name = part.name
        self._state = _State.FIELD
        self._count_field_bytes(len(part.name))
        return None

    def _read_field(self) -> Event | None:
        piece = self._reader.read_payload()
        if piece is None:
            return NEED_DATA
        if not piece:
            self._state = _State.HEADERS
            return Field(self._field_name, decode_utf8(self._take_gathered()))
        if len(self._gathered) + len(piece) > MAX_FIELD_BYTES:
            raise MalformedBody("The value of a field is too long.")
        self._gathered += piece
        self._count_field_bytes(len(piece))
        return None

    def _count_field_bytes(self, count: int) -> None:
        self._field_bytes_left -= count
        if self._field_bytes_left < 0:
            raise MalformedBody("The fields of the form are too long.")

    def _read_file(self) -> Event:
        self._state = _State.FILE
        piece = self._reader.read_payload()
        if piece is None:
            return NEED_DATA
        if piece:
            return FileData(piece)
        self._state = _State.HEADERS
        return FileEnd()

    def _read_end_of_taken(self) -> Event:
        is_delimiter = self._reader.read_delimiter()
        if is_delimiter is None:
            return NEED_DATA
        if not is_delimiter:
            raise MalformedBody("The file does not end where its length says.")
        self._state = _State.HEADERS
        return FileEnd()

    def _take_gathered(self) -> bytes:
        gathered = bytes(self._gathered)
        self._gathered.clear()
        return gathered


def parse_boundary(content_type: str) -> bytes:
    """The boundary of a multipart/form-data content type; raises MalformedBody without one."""
    media_type, parameters = parse_parameters(content_type)
    boundary = parameters.get("boundary", "")
    if media_type != "multipart/form-data" or not _BOUNDARY.fullmatch(boundary):
        raise MalformedBody("The Content-Type is not multipart/form-data with a valid boundary.")
    return boundary.encode("ascii")
