"""Builds multipart bodies, and reads them through the scanner in pieces of any size."""

from collections.abc import Iterable, Iterator

import pytest

from app.core.errors import MalformedBody
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

BOUNDARY = b"----boundary"
DELIMITER = b"\r\n--" + BOUNDARY
CLOSING = DELIMITER + b"--\r\n"
READ = 64 * 1024

FilePart = tuple[FileBegin, bytes]
Part = Field | FilePart


def field(name: str, value: str | bytes) -> bytes:
    value = value if isinstance(value, bytes) else value.encode()
    return part(f'Content-Disposition: form-data; name="{name}"', value)


def file(payload: bytes, name: str = "file", filename: str = "clip.mp4") -> bytes:
    disposition = f'Content-Disposition: form-data; name="{name}"; filename="{filename}"'
    return part(f"{disposition}\r\nContent-Type: video/mp4", payload)


def part(headers: str | bytes, content: bytes = b"") -> bytes:
    headers = headers if isinstance(headers, bytes) else headers.encode()
    return DELIMITER + b"\r\n" + headers + b"\r\n\r\n" + content


def body_of(*parts: bytes) -> bytes:
    return (b"".join(parts) + CLOSING).removeprefix(b"\r\n")


def disposition(parameters: str) -> bytes:
    return body_of(part(f"Content-Disposition: form-data; {parameters}"))


def blocks_of(body: bytes, size: int) -> list[bytes]:
    return [body[start : start + size] for start in range(0, len(body), size)]


def events_of(pieces: Iterable[bytes], boundary: bytes = BOUNDARY) -> Iterator[Event]:
    """All events up to End; every piece is fed in one reused buffer that is then overwritten."""
    scanner = MultipartScanner(boundary)
    pieces = iter(pieces)
    while True:
        event = scanner.next_event()
        if event is not NEED_DATA:
            yield event
            if event == End():
                return
            continue
        piece = next(pieces, None)
        if piece is None:
            scanner.receive_end()
        else:
            fed = bytearray(piece)
            scanner.receive_data(fed)
            yield from events_until_need_data(scanner)
            fed[:] = b"#" * len(fed)
            if scanner.next_event() == End():
                yield End()
                return


def events_until_need_data(scanner: MultipartScanner) -> Iterator[Event]:
    while (event := scanner.next_event()) is not NEED_DATA and event != End():
        yield event


def join(events: Iterable[Event]) -> list[Part]:
    parts: list[Part] = []
    begin: FileBegin | None = None
    payload = b""
    for event in events:
        match event:
            case Field():
                parts.append(event)
            case FileBegin():
                begin, payload = event, b""
            case FileData(data):
                assert len(data) > 0
                payload += data
            case FileEnd():
                assert begin is not None
                parts.append((begin, payload))
                begin = None
    assert begin is None
    return parts


def scan(*pieces: bytes, boundary: bytes = BOUNDARY) -> list[Part]:
    return join(events_of(pieces, boundary))


def scan_taking(
    body: bytes, lengths: Iterable[int], *, block: int, boundary: bytes = BOUNDARY
) -> list[Part]:
    """Parts of a body whose payloads are taken by length, read in blocks of the given size."""
    scanner = MultipartScanner(boundary)
    left = iter(lengths)
    parts: list[Part] = []
    position = 0
    while (event := scanner.next_event()) != End():
        match event:
            case Field():
                parts.append(event)
            case FileBegin():
                length = next(left)
                taken = bytes(scanner.take_payload(length))
                rest = length - len(taken)
                parts.append((event, taken + body[position : position + rest]))
                position += rest
            case FileData():
                pytest.fail("a taken payload was scanned")
            case FileEnd():
                pass
            case _ if position < len(body):
                scanner.receive_data(body[position : position + block])
                position += block
            case _:
                scanner.receive_end()
    return parts


def refusal(body: bytes) -> str:
    with pytest.raises(MalformedBody) as caught:
        scan(body)
    return str(caught.value)


def files_of(parts: list[Part]) -> list[FilePart]:
    return [part for part in parts if not isinstance(part, Field)]
