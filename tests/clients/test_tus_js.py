"""tus-js-client, the JavaScript client of the tus project, under node."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.client.bad_line import BadLine, Line, sometimes
from tests.dropzone_client import stored_sha256
from tests.live_server import Server
from tests.long_tests import long
from tests.nodejs import run_script

SCRIPT = Path(__file__).with_name("tus_upload.mjs")
CHUNK_BYTES = 3_000_000
LARGE_CHUNK_BYTES = 6_000_000

pytestmark = pytest.mark.e2e

Outcome = dict[str, Any]


def upload(url: str, film: Path, **more: Any) -> Outcome:
    """Upload the film in a Node.js process; the outcome."""
    task = {"path": str(film), "url": url, **more}
    outcome: Outcome = run_script(SCRIPT, task)
    assert "error" not in outcome, outcome
    return outcome


def check(server: Server, outcome: Outcome, film: Path) -> None:
    check_bytes(server, outcome, film)
    upload_id = outcome["url"].rpartition("/")[2]
    assert server.get(f"/api/videos/{upload_id}").json()["filename"] == "film.mp4"


def check_bytes(server: Server, outcome: Outcome, film: Path) -> None:
    upload_id = outcome["url"].rpartition("/")[2]
    assert stored_sha256(server, upload_id) == hashlib.sha256(film.read_bytes()).hexdigest()


def offsets_of(outcome: Outcome) -> list[int]:
    """The offsets at which its chunks began."""
    methods = [method.split(" ") for method in outcome["methods"]]
    return [int(words[1]) for words in methods if len(words) == 2]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"chunkSize": CHUNK_BYTES},
        {"uploadDataDuringCreation": True},
        *long([{"uploadDataDuringCreation": True, "chunkSize": CHUNK_BYTES}]),
        {"overridePatchMethod": True, "chunkSize": CHUNK_BYTES},
    ],
    ids=lambda options: "+".join(options) or "plain",
)
def test_it_uploads(server: Server, film: Path, options: dict[str, Any]) -> None:
    outcome = upload(server.url, film, options=options)
    check(server, outcome, film)
    assert outcome["retries"] == 0
    assert ("PATCH" in " ".join(outcome["methods"])) == (
        "overridePatchMethod" not in options and options != {"uploadDataDuringCreation": True}
    )


def test_it_uploads_a_stream_of_unknown_length(server: Server, film: Path) -> None:
    options = {"uploadLengthDeferred": True, "chunkSize": CHUNK_BYTES}
    outcome = upload(server.url, film, stream=True, options=options)
    check(server, outcome, film)
    assert offsets_of(outcome) == [0, CHUNK_BYTES, 2 * CHUNK_BYTES, 3 * CHUNK_BYTES]


def test_it_uploads_parts_in_parallel_and_concatenates_them(server: Server, film: Path) -> None:
    outcome = upload(server.url, film, options={"parallelUploads": 3})
    check(server, outcome, film)
    assert outcome["methods"].count("POST") == 3 + 1


def test_it_terminates_what_it_uploaded(server: Server, film: Path) -> None:
    outcome = upload(server.url, film, terminate=True)
    assert server.get(f"/media/{outcome['url'].rpartition('/')[2]}").status_code in {404, 410}


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({}, Line.cut_at_server_first),
        ({"chunkSize": LARGE_CHUNK_BYTES}, Line.reset_after_server),
        *long(
            [
                ({}, Line.reset_after_server),
                ({"chunkSize": LARGE_CHUNK_BYTES}, Line.cut_at_server_first),
            ]
        ),
    ],
    ids=["whole-cut", "chunks-reset", "whole-reset", "chunks-cut"],
)
def test_it_resumes_where_the_line_broke(
    server: Server,
    line: BadLine,
    film: Path,
    options: dict[str, Any],
    fault: Callable[[Line], None],
) -> None:
    line.on_body = sometimes(fault, after=1_000_000, times=3, path="/tus/")
    outcome = upload(line.url, film, options=options)
    check(server, outcome, film)
    assert outcome["retries"] == 3
    assert outcome["methods"].count("HEAD") == 3
    assert len([offset for offset in offsets_of(outcome) if offset % LARGE_CHUNK_BYTES]) >= 2


def test_parts_resume_where_the_line_broke(server: Server, line: BadLine, film: Path) -> None:
    line.on_body = sometimes(Line.reset, after=700_000, times=4, path="/tus/")
    outcome = upload(line.url, film, options={"parallelUploads": 3})
    check(server, outcome, film)
    assert outcome["methods"].count("HEAD") >= 2


def test_lost_answers_do_no_harm(server: Server, line: BadLine, film: Path) -> None:
    lost = sometimes(Line.cut, after=CHUNK_BYTES, times=3, path="/tus/")

    def lose_answer(way: Line, request: Any) -> None:
        if request.body == CHUNK_BYTES - CHUNK_BYTES % 65536:
            lost(way, request)

    line.on_body = lose_answer
    outcome = upload(line.url, film, options={"chunkSize": CHUNK_BYTES})
    check(server, outcome, film)


@pytest.mark.parametrize(
    ("options", "protocol"),
    [
        ({}, "ietf-draft-03"),
        ({"chunkSize": CHUNK_BYTES}, "ietf-draft-05"),
        *long([({}, "ietf-draft-05"), ({"chunkSize": CHUNK_BYTES}, "ietf-draft-03")]),
    ],
    ids=["whole-03", "chunks-05", "whole-05", "chunks-03"],
)
def test_it_supports_the_drafts_of_the_ietf(
    server: Server, film: Path, options: dict[str, Any], protocol: str
) -> None:
    endpoint = f"{server.url}/resumable/"
    more = {"endpoint": endpoint, "protocol": protocol, **options}
    outcome = upload(server.url, film, options=more)
    check_bytes(server, outcome, film)
    assert outcome["url"].startswith(endpoint)
    assert outcome["retries"] == 0
