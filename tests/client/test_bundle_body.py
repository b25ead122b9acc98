"""The fields before each file of a bundle."""

from pathlib import Path

from app.ingest.multipart import (
    NEED_DATA,
    End,
    Event,
    Field,
    FileBegin,
    MultipartScanner,
    parse_boundary,
)
from sluice_client.bundles import Bundle, BundleBody
from sluice_client.local_file import LocalFile


def events_of(body: BundleBody) -> list[Event]:
    scanner = MultipartScanner(parse_boundary(body.content_type))
    events: list[Event] = []
    for block in body:
        scanner.receive_data(block)
        while (event := scanner.next_event()) is not NEED_DATA and not isinstance(event, End):
            events.append(event)
    return events


def test_a_fingerprint_and_a_length_precede_each_file(tmp_path: Path) -> None:
    contents = {"a.mp4": b"first", "b.mp4": b""}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    files = [LocalFile.at(tmp_path / name) for name in contents]
    prints = {file: f"print of {file.name}" for file in files}
    body = BundleBody(Bundle(files), prints, is_over=lambda: False, on_sent=lambda _: None)
    told = [event for event in events_of(body) if isinstance(event, Field | FileBegin)]
    kind = "application/octet-stream"
    assert told == [
        Field("fingerprint", "print of a.mp4"),
        Field("length", "5"),
        FileBegin("file", "a.mp4", kind),
        Field("fingerprint", "print of b.mp4"),
        Field("length", "0"),
        FileBegin("file", "b.mp4", kind),
    ]
