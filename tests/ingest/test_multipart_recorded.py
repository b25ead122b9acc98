"""The scanner against bodies recorded from real clients: `bodies/`, each with what was sent."""

import hashlib
import json
from pathlib import Path

import pytest

from app.core.errors import MalformedBody
from app.ingest.multipart import Field, parse_boundary
from tests.ingest.form_bodies import Part, blocks_of, scan, scan_taking

BODIES = sorted((Path(__file__).parent / "bodies").glob("*.bin"))


class Recorded:
    def __init__(self, path: Path) -> None:
        described = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        self.body = path.read_bytes()
        self.boundary = parse_boundary(described["content_type"])
        self.parts = described["parts"]

    @property
    def lengths(self) -> list[int]:
        return [part["length"] for part in self.parts if "file" in part]


@pytest.fixture(params=BODIES, ids=lambda path: path.stem)
def recorded(request: pytest.FixtureRequest) -> Recorded:
    return Recorded(request.param)


def described(parts: list[Part]) -> list[dict[str, object]]:
    return [describe(part) for part in parts]


def describe(part: Part) -> dict[str, object]:
    if isinstance(part, Field):
        return {"field": part.name, "value": part.value}
    begin, payload = part
    return {
        "file": begin.name,
        "filename": begin.filename,
        "content_type": begin.content_type,
        "length": len(payload),
        "sha256": hashlib.sha256(payload).hexdigest(),
    }


def test_there_are_recorded_bodies_of_every_client() -> None:
    clients = {path.stem.partition("-")[0] for path in BODIES}
    assert clients == {"chromium", "curl", "dropzone", "requests"}


def test_a_recorded_body_fed_whole_yields_what_the_client_sent(recorded: Recorded) -> None:
    assert described(scan(recorded.body, boundary=recorded.boundary)) == recorded.parts


def test_a_recorded_body_fed_byte_by_byte_yields_the_same(recorded: Recorded) -> None:
    pieces = blocks_of(recorded.body, 1)
    assert described(scan(*pieces, boundary=recorded.boundary)) == recorded.parts


def test_a_recorded_body_split_anywhere_yields_the_same(recorded: Recorded) -> None:
    whole = scan(recorded.body, boundary=recorded.boundary)
    for cut in range(len(recorded.body) + 1):
        pieces = recorded.body[:cut], recorded.body[cut:]
        assert scan(*pieces, boundary=recorded.boundary) == whole, f"cut at {cut}"


def test_a_recorded_body_read_by_length_yields_the_same(recorded: Recorded) -> None:
    for block in range(1, len(recorded.body) + 1):
        parts = scan_taking(
            recorded.body, recorded.lengths, block=block, boundary=recorded.boundary
        )
        assert described(parts) == recorded.parts, f"blocks of {block}"


def test_a_recorded_body_truncated_anywhere_is_refused(recorded: Recorded) -> None:
    closing = b"--" + recorded.boundary + b"--"
    for length in range(recorded.body.rindex(closing) + len(closing)):
        with pytest.raises(MalformedBody):
            scan(recorded.body[:length], boundary=recorded.boundary)
