"""The limits that /resumable/ announces on a server with narrow ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.dropzone_client import random_bytes
from tests.ietf_client import append, create, look, send
from tests.live_server import Server, running_server

FILE = random_bytes(50_000, 85)
LIMITS = "max-size=40000, max-age=3600"


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that accepts small videos, and keeps uploads for an hour."""
    options = {
        "SLUICE_MAX_UPLOAD_BYTES": "40000",
        "SLUICE_EXPIRY_SECONDS": "3600",
        "SLUICE_ALLOWED_EXTENSIONS": "mp4",
    }
    with running_server(tmp_path_factory.mktemp("narrow"), **options) as running:
        yield running


def disposition(name: str) -> dict[str, str]:
    return {"Content_Disposition": f'inline; filename="{name}"'}


MP4 = disposition("film.mp4")


def test_the_limits_match_the_settings(narrow: Server) -> None:
    assert send(narrow, "OPTIONS").headers["upload-limit"] == LIMITS


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize(
    "headers",
    [{"Upload_Length": "50000"}, {}, {"Transfer_Encoding": "chunked"}],
    ids=["told", "sent", "chunked"],
)
def test_a_file_over_the_limit_is_refused_with_the_limit(
    narrow: Server, headers: dict[str, str], is_last: bool
) -> None:
    fields = {"Upload_Complete": "?1" if is_last else "?0", **MP4, **headers}
    answer = send(narrow, "POST", "/resumable/", FILE, **fields)
    assert (answer.status, answer.json()["code"]) == (413, "too_large")
    assert answer.headers["upload-limit"] == LIMITS
    assert answer.headers["upload-complete"] == "?0"


@pytest.mark.parametrize("coding", [{}, {"Transfer_Encoding": "chunked"}], ids=["sent", "chunked"])
def test_an_append_over_the_limit_is_refused_with_the_limit(
    narrow: Server, coding: dict[str, str]
) -> None:
    upload_id = create(narrow, FILE[:30_000], is_last=False, **MP4).upload_id
    answer = append(narrow, upload_id, 30_000, FILE[30_000:], is_last=False, **coding)
    assert (answer.status, answer.headers["upload-limit"]) == (413, LIMITS)
    offset = int(look(narrow, upload_id).headers["upload-offset"])
    assert 30_000 <= offset <= 40_000
    rest = append(narrow, upload_id, offset, FILE[offset:40_000], is_last=True)
    assert rest.status == 200
    assert narrow.get(rest.json()["media"]).content == FILE[:40_000]


@pytest.mark.parametrize("described", [disposition("film.exe"), {}, {"Content_Type": "video/webm"}])
def test_a_file_of_another_type_is_refused(narrow: Server, described: dict[str, str]) -> None:
    answer = send(narrow, "POST", "/resumable/", FILE[:9], Upload_Complete="?1", **described)
    assert (answer.status, answer.json()["code"]) == (415, "type_not_allowed")
    assert "accept-patch" not in answer.headers


def test_a_file_without_a_name_is_taken_by_its_type(narrow: Server) -> None:
    fields = {"Upload_Complete": "?1", "Content_Type": "video/mp4"}
    assert send(narrow, "POST", "/resumable/", FILE[:9], **fields).status == 200
